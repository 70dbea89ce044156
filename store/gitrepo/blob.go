package gitrepo

import (
	"io"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"golang.org/x/sys/unix"
)

// streamFrom is the size from which a file is not held in memory, unless it
// has to be converted.
const streamFrom = 4 << 20

// retries bounds the attempts to read a file that keeps changing.
const retries = 5

// store writes the blob of a file or symlink and returns its name. st is
// brought up to date when the file changed meanwhile.
func (s *scanner) store(d *dirScan, name, path string, mode uint32, st *unix.Stat_t, e *indexEntry) (plumbing.Hash, error) {
	if fileKind(st) == unix.S_IFLNK {
		target, err := readlinkAt(d.fd, name, st.Size)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		return s.objects.put(plumbing.BlobObject, target)
	}
	conv := s.conversion(d, path, mode)
	var h plumbing.Hash
	err := errFileChanged
	for i := 0; i < retries && err == errFileChanged; i++ {
		h, err = s.storeFile(d, name, path, conv, st, e)
	}
	return h, err
}

// conversion looks up the attributes of a file and reports what is not done.
func (s *scanner) conversion(d *dirScan, path string, mode uint32) conversion {
	if mode == modeSymlink {
		return conversion{}
	}
	conv := conversionFor((&attrFile{up: d.attrs, lines: s.info}).lookup(path), s.autocrlf)
	if conv.filter != "" {
		s.problem(path, "filter "+conv.filter+" was not run: the file is stored as it is")
	}
	if conv.encoding != "" {
		s.problem(path, "working-tree-encoding "+conv.encoding+" was not converted: the file is stored as it is")
		conv.eol, conv.ident = eolBinary, false
	}
	return conv
}

func (s *scanner) storeFile(d *dirScan, name, path string, conv conversion, st *unix.Stat_t, e *indexEntry) (plumbing.Hash, error) {
	fd, now, err := openRegular(d.fd, name)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	defer unix.Close(fd)
	*st = *now // taken before the content is: a later change shows
	if st.Size >= streamFrom && conv.none() {
		return s.objects.putStream(regular(fd), st.Size)
	}
	content, err := readSized(fd, st.Size)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	if !conv.none() {
		content = conv.apply(content, func() bool { return s.storedCRLF(e) })
	}
	return s.objects.put(plumbing.BlobObject, content)
}

// readSized reads a whole file, with one allocation and one read if its size is
// right.
func readSized(fd int, size int64) ([]byte, error) {
	b := make([]byte, 0, size+1)
	for {
		n, err := regular(fd).Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF || err == nil && len(b) < cap(b) {
			return b, nil // of a regular file, a short read is the end
		}
		if err != nil {
			return b, err
		}
		b = slices.Grow(b, max(len(b), 512))
	}
}

// regular is a descriptor of a regular file as an io.Reader. An os.File would
// cost two more system calls.
type regular int

// Read reads what comes next.
func (fd regular) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), p)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, err
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// storedCRLF reports whether the version in the index has CR LF line ends.
func (s *scanner) storedCRLF(e *indexEntry) bool {
	if e == nil {
		return false
	}
	b, err := s.r.objects.bytes(e.hash, plumbing.BlobObject)
	return err == nil && holdsCRLF(b)
}

func readlinkAt(dirfd int, name string, size int64) ([]byte, error) {
	buf := make([]byte, max(size, 127)+1)
	for {
		n, err := unix.Readlinkat(dirfd, name, buf)
		if err != nil {
			return nil, err
		}
		if n < len(buf) {
			return buf[:n], nil
		}
		buf = make([]byte, 2*len(buf))
	}
}
