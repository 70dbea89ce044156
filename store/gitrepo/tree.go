package gitrepo

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// treeEntry is one entry of a tree object.
type treeEntry struct {
	name string
	mode uint32
	hash plumbing.Hash
}

func (e *treeEntry) isDir() bool { return e.mode&modeType == modeDir }

// sortKey orders entries as Git does: a directory as if its name ended in '/'.
func (e *treeEntry) sortKey() string {
	if e.isDir() {
		return e.name + "/"
	}
	return e.name
}

func decodeTree(b []byte) ([]treeEntry, bool) {
	var entries []treeEntry
	for len(b) > 0 {
		sp := bytes.IndexByte(b, ' ')
		nul := bytes.IndexByte(b, 0)
		if sp < 0 || nul < sp || len(b) < nul+21 {
			return nil, false
		}
		mode, err := strconv.ParseUint(string(b[:sp]), 8, 32)
		if err != nil {
			return nil, false
		}
		entries = append(entries, treeEntry{string(b[sp+1 : nul]), uint32(mode), plumbing.Hash(b[nul+1 : nul+21])})
		b = b[nul+21:]
	}
	return entries, true
}

// treeNode is the tree object of one directory of the index.
type treeNode struct {
	name  string // last component, "" at the top
	hash  plumbing.Hash
	count int // index entries below
	subs  []*treeNode
}

// encodeCached appends the node and its subtrees as the TREE extension holds
// them.
func (n *treeNode) encodeCached(b []byte, name string) []byte {
	b = append(b, name...)
	b = fmt.Appendf(b, "\x00%d %d\n", n.count, len(n.subs))
	b = append(b, n.hash[:]...)
	for _, s := range n.subs {
		b = s.encodeCached(b, s.name)
	}
	return b
}

// cached adds the node and its subtrees, by directory, to what an index knows.
func (n *treeNode) cached(trees map[string]cachedTree, dir string) {
	trees[dir] = cachedTree{n.hash, n.count}
	for _, s := range n.subs {
		s.cached(trees, joinPath(dir, s.name))
	}
}

// treeBuilder makes the tree objects of an index.
type treeBuilder struct {
	idx     *gitIndex
	known   map[string]cachedTree // trees of the index before the changes
	changed map[string]bool       // directories below which an entry changed
	// write stores a tree's content, whose pieces end at ends.
	write func(content []byte, ends []int) (plumbing.Hash, error)
}

// build returns the tree of the entries lo to hi, all below prefix. A directory
// without a change below it is not looked at entry by entry.
func (t *treeBuilder) build(prefix, name string, lo, hi int) (*treeNode, error) {
	dir := strings.TrimSuffix(prefix, "/")
	node := &treeNode{name: name, count: hi - lo}
	known, ok := t.known[dir]
	fresh := ok && !t.changed[dir] && known.count == hi-lo
	var content []byte
	var ends []int
	if !fresh {
		content = make([]byte, 0, t.sizeOf(prefix, lo, hi))
	}
	piece := 0
	add := func(mode uint32, name string, h plumbing.Hash) {
		content = appendTreeEntry(content, mode, name, h)
		if endsPiece(h, len(content)-piece) {
			piece = len(content)
			ends = append(ends, piece)
		}
	}
	for i := lo; i < hi; {
		e := &t.idx.entries[i]
		rest := e.name[len(prefix):]
		slash := strings.IndexByte(rest, '/')
		if slash < 0 {
			if !fresh {
				add(e.mode, rest, e.hash)
			}
			i++
			continue
		}
		sub := prefix + rest[:slash+1]
		end := i + t.span(sub, i, hi)
		child, err := t.build(sub, rest[:slash], i, end)
		if err != nil {
			return nil, err
		}
		node.subs = append(node.subs, child)
		if !fresh {
			add(modeDir, child.name, child.hash)
		}
		i = end
	}
	if fresh {
		node.hash = known.hash
		return node, nil
	}
	var err error
	node.hash, err = t.write(content, ends)
	return node, err
}

// sizeOf is about how many bytes the tree of a directory has, unless most of
// what is below it lies deeper.
func (t *treeBuilder) sizeOf(prefix string, lo, hi int) int {
	if lo == hi {
		return 0
	}
	const fixed = len("100644 ") + 1 + len(plumbing.ZeroHash)
	names := t.idx.entries[lo : lo+min(hi-lo, 64)]
	n := 0
	for i := range names {
		rest := names[i].name[len(prefix):]
		if strings.IndexByte(rest, '/') < 0 {
			n += fixed + len(rest) + 4
		}
	}
	return (n/len(names) + 1) * (hi - lo)
}

// span counts the entries from i on that lie below prefix.
func (t *treeBuilder) span(prefix string, i, hi int) int {
	if n, ok := t.known[strings.TrimSuffix(prefix, "/")]; ok && n.count > 0 && i+n.count <= hi &&
		strings.HasPrefix(t.idx.entries[i+n.count-1].name, prefix) &&
		(i+n.count == hi || !strings.HasPrefix(t.idx.entries[i+n.count].name, prefix)) {
		return n.count
	}
	n := 0
	for i+n < hi && strings.HasPrefix(t.idx.entries[i+n].name, prefix) {
		n++
	}
	return n
}

func appendTreeEntry(b []byte, mode uint32, name string, h plumbing.Hash) []byte {
	b = strconv.AppendUint(b, uint64(mode), 8)
	b = append(b, ' ')
	b = append(b, name...)
	b = append(b, 0)
	return append(b, h[:]...)
}
