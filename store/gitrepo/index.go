package gitrepo

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// The index is decoded and encoded here, not by go-git: its decoder drops the
// assume-unchanged bit and refuses split indexes, its entries cost an
// allocation and two time.Time each, and its encoder knows neither cached trees
// nor the second half of a long name. The format is Git's gitformat-index.

// Flags of an index entry, as in the file.
const (
	flagAssumeValid  = 0x8000
	flagExtended     = 0x4000
	flagStageMask    = 0x3000
	flagNameMask     = 0x0fff
	flagSkipWorktree = 0x4000 // second word
	flagIntentToAdd  = 0x2000 // second word
)

// Modes of index entries and tree entries.
const (
	modeFile    uint32 = 0o100644
	modeExec    uint32 = 0o100755
	modeSymlink uint32 = 0o120000
	modeGitlink uint32 = 0o160000
	modeDir     uint32 = 0o040000
	modeType    uint32 = 0o170000
)

// errRebuildIndex says that an index cannot be read but made anew from HEAD.
var errRebuildIndex = errors.New("index must be rebuilt")

var errEntryShort = fmt.Errorf("%w: entry cut short", errRebuildIndex)

// statData is what the index remembers of a file, in the order of the file
// format: if it is unchanged, so is the file.
type statData struct {
	ctimeSec, ctimeNsec, mtimeSec, mtimeNsec uint32
	dev, ino                                 uint32
	uid, gid, size                           uint32
}

// indexEntry is one path in the index.
type indexEntry struct {
	name string
	mode uint32
	hash plumbing.Hash
	stat statData
	flg  uint16 // assume-valid and stage
	ext  uint16 // second word of version 3
}

func (e *indexEntry) stage() int { return int(e.flg&flagStageMask) >> 12 }

// pinned reports whether the work tree is not looked at for this entry.
func (e *indexEntry) pinned() bool {
	return e.flg&flagAssumeValid != 0 || e.ext&flagSkipWorktree != 0
}

// cachedTree is the tree object of a directory whose index entries, count of
// them, have not changed since.
type cachedTree struct {
	hash  plumbing.Hash
	count int
}

// gitIndex is a decoded index: entries by name, then stage, and the trees that
// the TREE extension still knows, by directory ("" is the top, no final slash).
type gitIndex struct {
	entries []indexEntry
	trees   map[string]cachedTree
}

const (
	indexHeader  = 12
	entryFixed   = 62
	checksumSize = sha1.Size
)

// parseIndex decodes an index of version 2, 3 or 4. The checksum is verified
// unless it is all zero (index.skipHash). errRebuildIndex for what is damaged
// or split.
func parseIndex(b []byte) (*gitIndex, error) {
	if len(b) < indexHeader+checksumSize || string(b[:4]) != "DIRC" {
		return nil, fmt.Errorf("%w: no index header", errRebuildIndex)
	}
	body, sum := b[:len(b)-checksumSize], b[len(b)-checksumSize:]
	if got := sha1.Sum(body); !bytes.Equal(got[:], sum) && !bytes.Equal(sum, make([]byte, checksumSize)) {
		return nil, fmt.Errorf("%w: wrong checksum", errRebuildIndex)
	}
	version := binary.BigEndian.Uint32(b[4:])
	if version < 2 || version > 4 {
		return nil, fmt.Errorf("%w: index version %d", ErrUnsupported, version)
	}
	n := int(binary.BigEndian.Uint32(b[8:]))
	if n > len(body)/entryFixed {
		return nil, fmt.Errorf("%w: %d entries in %d bytes", errRebuildIndex, n, len(b))
	}
	idx := &gitIndex{entries: make([]indexEntry, 0, n+8)}
	p := indexHeader
	var err error
	for range n {
		if p, err = idx.parseEntry(body, p, version); err != nil {
			return nil, err
		}
	}
	return idx, idx.parseExtensions(body[p:])
}

func (idx *gitIndex) parseEntry(body []byte, p int, version uint32) (int, error) {
	if len(body)-p < entryFixed {
		return 0, errEntryShort
	}
	start := p
	var e indexEntry
	u32 := func(i int) uint32 { return binary.BigEndian.Uint32(body[start+4*i:]) }
	e.stat = statData{u32(0), u32(1), u32(2), u32(3), u32(4), u32(5), u32(7), u32(8), u32(9)}
	e.mode = u32(6)
	copy(e.hash[:], body[p+40:])
	flags := binary.BigEndian.Uint16(body[p+60:])
	e.flg = flags & (flagAssumeValid | flagStageMask)
	p += entryFixed
	if flags&flagExtended != 0 {
		if version < 3 || len(body)-p < 2 {
			return 0, errEntryShort
		}
		e.ext = binary.BigEndian.Uint16(body[p:]) & (flagSkipWorktree | flagIntentToAdd)
		p += 2
	}
	strip := 0
	if version == 4 {
		var ok bool
		if strip, p, ok = offsetVarint(body, p); !ok {
			return 0, errEntryShort
		}
	}
	end := bytes.IndexByte(body[p:], 0)
	if end < 0 {
		return 0, errEntryShort
	}
	if version == 4 {
		prev := ""
		if len(idx.entries) > 0 {
			prev = idx.entries[len(idx.entries)-1].name
		}
		if strip > len(prev) {
			return 0, errEntryShort
		}
		e.name = prev[:len(prev)-strip] + string(body[p:p+end])
		p += end + 1
	} else {
		e.name = string(body[p : p+end])
		p = start + (p-start+end+8)&^7
	}
	if p > len(body) || !idx.inOrder(&e) {
		return 0, fmt.Errorf("%w: entries out of order", errRebuildIndex)
	}
	idx.entries = append(idx.entries, e)
	return p, nil
}

func (idx *gitIndex) inOrder(e *indexEntry) bool {
	if e.name == "" || len(idx.entries) == 0 {
		return e.name != ""
	}
	last := &idx.entries[len(idx.entries)-1]
	c := strings.Compare(last.name, e.name)
	return c < 0 || c == 0 && last.stage() < e.stage()
}

// offsetVarint decodes the integer of pack offsets and of version 4 names.
func offsetVarint(b []byte, p int) (v, next int, ok bool) {
	for i := 0; p < len(b) && i < 9; i++ {
		c := b[p]
		p++
		v |= int(c & 0x7f)
		if c&0x80 == 0 {
			return v, p, true
		}
		v = (v + 1) << 7
	}
	return 0, p, false
}

func (idx *gitIndex) parseExtensions(b []byte) error {
	for len(b) > 0 {
		if len(b) < 8 {
			return fmt.Errorf("%w: extension cut short", errRebuildIndex)
		}
		name, size := string(b[:4]), int(binary.BigEndian.Uint32(b[4:]))
		b = b[8:]
		if size > len(b) {
			return fmt.Errorf("%w: extension %q cut short", errRebuildIndex, name)
		}
		switch {
		case name == "TREE":
			idx.trees = parseCachedTrees(b[:size])
		case name == "link":
			return fmt.Errorf("%w: split index", errRebuildIndex)
		case name[0] < 'A' || name[0] > 'Z':
			return fmt.Errorf("%w: index extension %q", ErrUnsupported, name)
		}
		b = b[size:]
	}
	return nil
}

// parseCachedTrees decodes the TREE extension; a malformed one caches nothing.
func parseCachedTrees(b []byte) map[string]cachedTree {
	trees := map[string]cachedTree{}
	if _, ok := parseCachedTree(b, "", trees, 0); !ok {
		return nil
	}
	return trees
}

const maxDepth = 1000 // of directories; a path has at most 4096 bytes on Linux

func parseCachedTree(b []byte, parent string, trees map[string]cachedTree, depth int) ([]byte, bool) {
	nul := bytes.IndexByte(b, 0)
	if nul < 0 || depth > maxDepth {
		return nil, false
	}
	nl := nul + bytes.IndexByte(b[nul:], '\n')
	if nl < nul {
		return nil, false
	}
	name := string(b[:nul])
	counts := strings.SplitN(string(b[nul+1:nl]), " ", 2)
	if len(counts) != 2 {
		return nil, false
	}
	count, err1 := strconv.Atoi(counts[0])
	subtrees, err2 := strconv.Atoi(counts[1])
	b = b[nl+1:]
	if err1 != nil || err2 != nil {
		return nil, false
	}
	path := joinPath(parent, name)
	if count >= 0 {
		if len(b) < 20 {
			return nil, false
		}
		trees[path] = cachedTree{plumbing.Hash(b[:20]), count}
		b = b[20:]
	}
	for range subtrees {
		var ok bool
		if b, ok = parseCachedTree(b, path, trees, depth+1); !ok {
			return nil, false
		}
	}
	return b, true
}

func joinPath(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// encode appends the entry as the file holds it.
func (e *indexEntry) encode(b []byte) []byte {
	start := len(b)
	s := &e.stat
	for _, v := range [...]uint32{s.ctimeSec, s.ctimeNsec, s.mtimeSec, s.mtimeNsec, s.dev, s.ino, e.mode, s.uid, s.gid, s.size} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	b = append(b, e.hash[:]...)
	flags := e.flg | uint16(min(len(e.name), flagNameMask))
	if e.ext != 0 {
		flags |= flagExtended
	}
	b = binary.BigEndian.AppendUint16(b, flags)
	if e.ext != 0 {
		b = binary.BigEndian.AppendUint16(b, e.ext)
	}
	b = append(b, e.name...)
	for n := 8 - (len(b)-start)%8; n > 0; n-- {
		b = append(b, 0)
	}
	return b
}

// under returns the range of entries whose names start with prefix.
func (idx *gitIndex) under(prefix string) (lo, hi int) {
	if prefix == "" {
		return 0, len(idx.entries)
	}
	cmp := func(e indexEntry, p string) int { return strings.Compare(e.name, p) }
	lo, _ = slices.BinarySearchFunc(idx.entries, prefix, cmp)
	// prefix ends in '/', the byte after which is '0'.
	hi, _ = slices.BinarySearchFunc(idx.entries, prefix[:len(prefix)-1]+"0", cmp)
	return lo, hi
}

// find returns the stage 0 entry of a path, nil when there is none.
func (idx *gitIndex) find(name string) *indexEntry {
	i, ok := slices.BinarySearchFunc(idx.entries, name, func(e indexEntry, n string) int {
		return strings.Compare(e.name, n)
	})
	if !ok || idx.entries[i].stage() != 0 {
		return nil
	}
	return &idx.entries[i]
}

// distrust makes every file be stored again, and every tree written.
func (idx *gitIndex) distrust() {
	idx.trees = nil
	for i := range idx.entries {
		idx.entries[i].stat = statData{}
	}
}
