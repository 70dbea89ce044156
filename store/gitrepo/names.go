package gitrepo

import (
	"cmp"
	"encoding/binary"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// diskName is a directory entry under its sort key: its name, with a slash when
// it is stored as a tree.
type diskName struct {
	key     string
	order   uint64 // the key's first bytes, which mostly decide
	kind    uint32 // S_IFMT part
	gitlink bool
}

func (n *diskName) tree() bool   { return n.key[len(n.key)-1] == '/' }
func (n *diskName) name() string { return strings.TrimSuffix(n.key, "/") }

// direntSize is the buffer for directory entries: more does not make the kernel
// faster.
const direntSize = 64 << 10

// Where the fields of a struct linux_dirent64 lie.
const (
	direntLength = 16
	direntType   = 18
	direntName   = 19
)

// readNames reads a directory but for ".git", which is about expect names, in
// the order of the disk. The names of one buffer share a string: a large
// directory costs few allocations, and all directories have one buffer.
func (s *scanner) readNames(fd, expect int) ([]diskName, error) {
	names := make([]diskName, 0, expect+16)
	if want := min(direntSize, 4096+64*expect); len(s.dirents) < want {
		s.dirents = make([]byte, want)
	}
	buf := s.dirents
	for {
		n, err := unix.ReadDirent(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return names, err
		}
		for text := string(buf[:n]); len(text) > direntName; {
			size := int(binary.NativeEndian.Uint16([]byte(text[direntLength : direntLength+2])))
			name, _, _ := strings.Cut(text[direntName:size], "\x00")
			kind := kindOf(text[direntType])
			text = text[size:]
			if name == "." || name == ".." || name == ".git" {
				continue
			}
			if kind == 0 {
				var st unix.Stat_t
				if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
					continue // gone
				}
				kind = storedKind(fileKind(&st))
			}
			names = append(names, diskName{key: name, kind: kind})
		}
	}
}

// kindOf is the S_IFMT part that a directory entry's type stands for; 0 when
// the file system does not say.
func kindOf(t byte) uint32 {
	if t == unix.DT_UNKNOWN {
		return 0
	}
	return storedKind(uint32(t) << 12)
}

// storedKind makes one of all kinds of files that Git does not store.
func storedKind(kind uint32) uint32 {
	switch kind {
	case unix.S_IFDIR, unix.S_IFREG, unix.S_IFLNK:
		return kind
	}
	return unix.S_IFIFO
}

// sortNames sorts by key. Numbers decide almost always, and cost a fraction of
// what comparing strings does.
func sortNames(names []diskName) {
	for i := range names {
		var b [8]byte
		copy(b[:], names[i].key)
		names[i].order = binary.BigEndian.Uint64(b[:])
	}
	slices.SortFunc(names, func(a, b diskName) int {
		if a.order != b.order {
			return cmp.Compare(a.order, b.order)
		}
		return strings.Compare(a.key, b.key)
	})
}

// manyNames is the number of index entries from which it pays to look at their
// files while the directory is still being read.
const manyNames = 256

// lookAhead makes the lstat of the files that the index has of a large
// directory, side by side with the reading of the directory. A file that seems
// to differ is looked at again before it is stored.
type lookAhead struct {
	s    *scanner
	d    *dirScan
	same []bool // by entry from d.lo on: lstat shows what the index has
	next atomic.Int64
	wg   sync.WaitGroup
}

func (s *scanner) lookAhead(d *dirScan) *lookAhead {
	if d.hi-d.lo < manyNames {
		return nil
	}
	a := &lookAhead{s: s, d: d, same: make([]bool, d.hi-d.lo)}
	for range min(runtime.GOMAXPROCS(0), 4) - 1 {
		a.wg.Go(a.work)
	}
	return a
}

// work looks at entries until none is left. It reads nothing of an entry that
// the scan may change meanwhile (its flags).
func (a *lookAhead) work() {
	const share = 64
	var st unix.Stat_t
	for {
		to := int(a.next.Add(share))
		if to-share >= len(a.same) {
			return
		}
		for i := to - share; i < min(to, len(a.same)); i++ {
			name := a.s.below(a.d, a.d.lo+i)
			if strings.IndexByte(name, '/') < 0 && unix.Fstatat(a.d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
				a.same[i] = a.s.unchanged(&a.s.old.entries[a.d.lo+i], &st, false)
			}
		}
	}
}

// finish helps with what is left and waits for the others.
func (a *lookAhead) finish() {
	if a != nil {
		a.work()
		a.wg.Wait()
	}
}

// wait ends the work, also when it is no longer wanted: it uses the directory.
func (a *lookAhead) wait() {
	if a != nil {
		a.next.Store(int64(len(a.same)))
		a.wg.Wait()
	}
}

// saw reports whether an entry's file is as the index has it, by the lstat that
// was made ahead.
func (a *lookAhead) saw(d *dirScan, i int) bool { return a != nil && a.same[i-d.lo] }
