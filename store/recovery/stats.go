package recovery

import (
	"bytes"
	"path/filepath"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

const (
	// maxDiff is up to which size, in bytes, lines are compared.
	maxDiff = 1 << 20
	// maxEdits bounds the work of a comparison: files that differ in more
	// lines are compared without regard to the lines' order.
	maxEdits = 2000
)

// diff is how much of a file a turn has changed.
type diff struct {
	state          string // available, binary or large
	added, removed int
}

func (d diff) encode() []byte {
	added, removed := []byte("null"), []byte("null")
	if d.state == "available" {
		added, removed = jsonedit.EncodeInt(int64(d.added)), jsonedit.EncodeInt(int64(d.removed))
	}
	o := jsonedit.NewObject()
	o.SetAll([]jsonedit.Member{{Key: "added", Raw: added}, {Key: "removed", Raw: removed}, {Key: "binary", Raw: jsonedit.EncodeBool(d.state == "binary")}})
	return o.Bytes()
}

// count compares two states by the content of their blobs.
func (t *Tree) count(dir string, before, after State) (diff, error) {
	if before.Size > maxDiff || after.Size > maxDiff {
		return diff{state: "large"}, nil
	}
	var text [2][]byte
	for i, s := range []State{before, after} {
		if s.Blob == "" {
			continue
		}
		b, err := t.fs.ReadFile(filepath.Join(dir, s.Blob))
		if err != nil {
			return diff{}, err
		}
		if bytes.IndexByte(b, 0) >= 0 || !utf8.Valid(b) {
			return diff{state: "binary"}, nil
		}
		text[i] = b
	}
	added, removed := countLines(text[0], text[1])
	return diff{"available", added, removed}, nil
}

// countLines returns how many lines a shortest edit from a to b adds and
// removes.
func countLines(a, b []byte) (added, removed int) {
	ids := map[string]int{}
	x, y := number(a, ids), number(b, ids)
	for len(x) > 0 && len(y) > 0 && x[0] == y[0] {
		x, y = x[1:], y[1:]
	}
	for len(x) > 0 && len(y) > 0 && x[len(x)-1] == y[len(y)-1] {
		x, y = x[:len(x)-1], y[:len(y)-1]
	}
	edits, ok := distance(x, y)
	if !ok {
		edits = unordered(x, y)
	}
	added = (edits + len(y) - len(x)) / 2
	return added, edits - added
}

// number gives each line of a text the number of its content.
func number(text []byte, ids map[string]int) []int {
	var out []int
	for line := range bytes.Lines(text) {
		id, ok := ids[string(line)]
		if !ok {
			id = len(ids)
			ids[string(line)] = id
		}
		out = append(out, id)
	}
	return out
}

// distance is the number of edits by Myers' greedy algorithm; ok is false when
// there are more than maxEdits.
func distance(a, b []int) (edits int, ok bool) {
	limit := min(len(a)+len(b), maxEdits)
	reach := make([]int, 2*limit+3) // by diagonal, the furthest place in a
	for d := 0; d <= limit; d++ {
		for k := -d; k <= d; k += 2 {
			at := limit + 1 + k
			x := reach[at-1] + 1
			if k == -d || k != d && reach[at-1] < reach[at+1] {
				x = reach[at+1]
			}
			for x < len(a) && x-k < len(b) && a[x] == b[x-k] {
				x++
			}
			reach[at] = x
			if x >= len(a) && x-k >= len(b) {
				return d, true
			}
		}
	}
	return 0, false
}

// unordered is the number of edits when lines may change their places.
func unordered(a, b []int) int {
	count := map[int]int{}
	for _, n := range a {
		count[n]++
	}
	for _, n := range b {
		count[n]--
	}
	edits := 0
	for _, n := range count {
		edits += max(n, -n)
	}
	return edits
}
