package registry

import (
	"errors"
	"fmt"

	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// State is what Open found at the path.
type State int

// The states. In all but Loaded there are no rows, and the file should be
// rebuilt from the sessions (reference 8.2).
const (
	Loaded     State = iota
	Missing          // there is no file
	Empty            // zero bytes
	Corrupt          // not JSON, or cut
	NotObject        // JSON of another kind
	Unreadable       // it cannot be read, and must not be rebuilt
)

// String returns the state as a word for logs.
func (s State) String() string {
	switch s {
	case Loaded:
		return "loaded"
	case Missing:
		return "missing"
	case Empty:
		return "empty"
	case Corrupt:
		return "corrupt"
	case NotObject:
		return "not an object"
	case Unreadable:
		return "unreadable"
	}
	return fmt.Sprintf("State(%d)", int(s))
}

// file is one text of index.json and where its rows are. It is immutable.
type file struct {
	text    []byte
	members []member
	last    map[string]int32 // id to its last member
	dup     bool             // some id comes more than once
}

// member is a row's place in the text: [key,val) the key with what follows it
// up to the value, [val,end) the value.
type member struct {
	id            string
	key, val, end int
}

// emptyFile is what stands for a file without rows.
func emptyFile() *file { return &file{text: []byte("{}"), last: map[string]int32{}} }

// usualRow is about how long a row is at least.
const usualRow = 320

// parse reads a text. Of duplicate ids the last row counts, at the place of
// the first, as in the peer's memory.
func parse(text []byte) (*file, State) {
	if len(text) == 0 {
		return emptyFile(), Empty
	}
	f := &file{text: text, members: make([]member, 0, len(text)/usualRow+1)}
	pos := 0
	err := jsonedit.WalkBytes(text, func(key, raw []byte) error {
		m := member{id: string(key)}
		m.key, m.val = locate(text, pos)
		m.end = m.val + len(raw)
		pos = m.end
		f.members = append(f.members, m)
		return nil
	})
	if err != nil {
		if jsonedit.Check(text) == nil {
			return emptyFile(), NotObject
		}
		return emptyFile(), Corrupt
	}
	f.index()
	return f, Loaded
}

// locate finds the next key from pos on, in a text known to be valid, and the
// value after it.
func locate(text []byte, pos int) (key, val int) {
	for text[pos] != '"' {
		pos++
	}
	key = pos
	for pos++; text[pos] != '"'; pos++ {
		if text[pos] == '\\' {
			pos++
		}
	}
	for pos++; text[pos] != ':'; {
		pos++
	}
	for pos++; isSpace(text[pos]); {
		pos++
	}
	return key, pos
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

func (f *file) index() {
	f.last = make(map[string]int32, len(f.members))
	for i := range f.members {
		f.last[f.members[i].id] = int32(i)
	}
	f.dup = len(f.last) != len(f.members)
}

// row returns a row's raw text.
func (f *file) row(id string) ([]byte, bool) {
	i, ok := f.last[id]
	if !ok {
		return nil, false
	}
	m := f.members[i]
	return f.text[m.val:m.end:m.end], true
}

// ids calls yield with each id once, in file order, until it returns false.
func (f *file) ids(yield func(id string) bool) bool {
	var seen map[string]bool
	if f.dup {
		seen = make(map[string]bool, len(f.last))
	}
	for i := range f.members {
		id := f.members[i].id
		if f.dup {
			if seen[id] {
				continue
			}
			seen[id] = true
		}
		if !yield(id) {
			return false
		}
	}
	return true
}

// diff returns the ids whose rows differ between two texts or are in one only:
// those of next in its order, then those that are gone.
func diff(old, next *file) []string {
	var ids []string
	next.ids(func(id string) bool {
		a, had := old.row(id)
		b, _ := next.row(id)
		if !had || string(a) != string(b) {
			ids = append(ids, id)
		}
		return true
	})
	old.ids(func(id string) bool {
		if _, ok := next.last[id]; !ok {
			ids = append(ids, id)
		}
		return true
	})
	return ids
}

// ErrDamaged is wrapped by the error of a file that is there and holds no
// registry.
var ErrDamaged = errors.New("registry damaged")
