package gitrepo

import (
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// Log returns the commits that HEAD reaches, newest first in the order of git
// log; limit <= 0 is all. A repository without a commit has none.
func (r *Repo) Log(ctx context.Context, limit int) ([]Commit, error) {
	tip, err := r.readTip()
	if err != nil || tip.commit == nil {
		return nil, err
	}
	w := logWalk{r: r, seen: map[plumbing.Hash]bool{}, shallow: r.shallow()}
	if err := w.add(tip.hash); err != nil {
		return nil, err
	}
	abbrev := r.newAbbreviator()
	var commits []Commit
	for len(w.queue) > 0 && (limit <= 0 || len(commits) < limit) {
		if err := checkContext(ctx); err != nil {
			return nil, err
		}
		c := heap.Pop(&w.queue).(queued).commit
		commits = append(commits, Commit{
			Hash: c.Hash.String(), Short: abbrev.short(c.Hash),
			Message: subject(c.Message), Time: c.Author.When,
		})
		if len(commits) == limit || w.shallow[c.Hash] {
			continue
		}
		for _, p := range c.ParentHashes {
			if err := w.add(p); err != nil {
				return nil, err
			}
		}
	}
	return commits, nil
}

// logWalk visits commits by date, as git log does; a linear history comes out
// parent by parent, whatever its dates are.
type logWalk struct {
	r       *Repo
	queue   commitQueue
	seen    map[plumbing.Hash]bool
	shallow map[plumbing.Hash]bool
}

func (w *logWalk) add(h plumbing.Hash) error {
	if w.seen[h] {
		return nil
	}
	w.seen[h] = true
	c, err := w.r.objects.commit(h)
	if err != nil {
		return err
	}
	heap.Push(&w.queue, queued{c, len(w.seen)})
	return nil
}

// queued is a commit and when it was found, which decides between equal dates.
type queued struct {
	commit *object.Commit
	order  int
}

type commitQueue []queued

func (q commitQueue) Len() int      { return len(q) }
func (q commitQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q commitQueue) Less(i, j int) bool {
	a, b := q[i].commit.Committer.When.Unix(), q[j].commit.Committer.When.Unix()
	return a > b || a == b && q[i].order < q[j].order
}
func (q *commitQueue) Push(x any) { *q = append(*q, x.(queued)) }
func (q *commitQueue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}

// shallow are the commits whose parents were never fetched.
func (r *Repo) shallow() map[plumbing.Hash]bool {
	b, err := r.fs.ReadFile(filepath.Join(r.common, "shallow"))
	if err != nil {
		return nil
	}
	set := map[plumbing.Hash]bool{}
	for _, f := range strings.Fields(string(b)) {
		if h, ok := parseHash(f); ok {
			set[h] = true
		}
	}
	return set
}

// abbreviator shortens hashes as git does: at least seven digits, more in large
// repositories, and as many as it takes to be unique among all objects.
type abbreviator struct {
	r     *Repo
	dirs  []string // of objects
	packs []*packNames
	loose map[string][]string // by directory, sorted
	min   int
}

// packNames are the sorted object names of one pack, of which only those are
// read that a hash is compared with: a commit wants the one short name.
type packNames struct {
	r      *Repo
	path   string          // of the pack's index
	ends   [256]uint32     // by first byte, how many names begin with it or less
	groups map[byte][]byte // the names read so far, by first byte
	whole  int             // 1 when the pack is known to be there to its end, -1 when not
}

func (r *Repo) newAbbreviator() *abbreviator {
	a := &abbreviator{r: r, dirs: r.objects.objectDirs(), loose: map[string][]string{}, min: 7}
	count := 0
	for _, dir := range a.dirs {
		packs, err := r.fs.ReadDir(filepath.Join(dir, "pack"))
		if err != nil {
			continue
		}
		for _, p := range packs {
			if filepath.Ext(p.Name()) != ".idx" {
				continue
			}
			if names, err := r.readPackNames(filepath.Join(dir, "pack", p.Name())); err == nil {
				a.packs = append(a.packs, names)
				count += int(names.ends[255])
			}
		}
	}
	// git: half of the bits that count the packed objects, as hex digits.
	bits := 0
	for n := count; n > 0; n >>= 1 {
		bits++
	}
	a.min = max(a.min, (bits+1)/2)
	return a
}

var errPackIndex = errors.New("unknown pack index")

// Where things lie in a pack index of version 2.
const (
	packIndexMagic = "\xfftOc\x00\x00\x00\x02"
	packIndexNames = len(packIndexMagic) + 256*4
)

// readPackNames reads how many objects a pack index has.
func (r *Repo) readPackNames(path string) (*packNames, error) {
	p := &packNames{r: r, path: path, groups: map[byte][]byte{}}
	var head [packIndexNames]byte
	if err := p.readAt(head[:], 0); err != nil {
		return nil, err
	}
	if string(head[:len(packIndexMagic)]) != packIndexMagic {
		return nil, errPackIndex
	}
	before := uint32(0)
	for i := range p.ends {
		p.ends[i] = binary.BigEndian.Uint32(head[len(packIndexMagic)+4*i:])
		if p.ends[i] < before {
			return nil, errPackIndex
		}
		before = p.ends[i]
	}
	return p, nil
}

func (p *packNames) readAt(b []byte, at int64) error {
	f, err := openFile(p.r.fs, p.path, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := f.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	return err
}

// group returns the names that begin with a byte; none when the pack is gone.
func (p *packNames) group(first byte) []byte {
	if names, ok := p.groups[first]; ok {
		return names
	}
	from := uint32(0)
	if first > 0 {
		from = p.ends[first-1]
	}
	const size = len(plumbing.ZeroHash)
	names := make([]byte, size*min(int(p.ends[first]-from), maxGroup))
	if p.readAt(names, int64(packIndexNames)+int64(size)*int64(from)) != nil {
		names = nil
	}
	p.groups[first] = names
	return names
}

// maxGroup bounds what a damaged pack index can make us read.
const maxGroup = 1 << 20

// short returns the shortest abbreviation of h, "" for no commit.
func (a *abbreviator) short(h plumbing.Hash) string {
	if h.IsZero() {
		return ""
	}
	full, n := h.String(), a.min
	for _, p := range a.packs {
		names := p.group(h[0])
		at := func(i int) string { return plumbing.Hash(names[20*i : 20*i+20]).String() }
		n = max(n, uniqueLength(full, len(names)/20, at))
	}
	names := a.looseNames(full[:2])
	n = max(n, uniqueLength(full, len(names), func(i int) string { return names[i] }))
	return full[:min(n, len(full))]
}

// uniqueLength is how many digits tell full from its neighbours in a sorted
// list.
func uniqueLength(full string, count int, at func(int) string) int {
	i := sort.Search(count, func(i int) bool { return at(i) >= full })
	n := 0
	for _, j := range []int{i - 1, i, i + 1} {
		if j < 0 || j >= count || at(j) == full {
			continue
		}
		n = max(n, commonPrefix(full, at(j))+1)
	}
	return n
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func (a *abbreviator) looseNames(first string) []string {
	if names, ok := a.loose[first]; ok {
		return names
	}
	var names []string
	for _, dir := range a.dirs {
		entries, err := a.r.fs.ReadDir(filepath.Join(dir, first))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if len(e.Name()) == 38 {
				names = append(names, first+e.Name())
			}
		}
	}
	sort.Strings(names)
	a.loose[first] = names
	return names
}
