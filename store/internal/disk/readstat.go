package disk

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// ReadStat asks the open file instead of the path: no path is walked twice, and
// what was read is what the Stat is of.
func (d *osDir) ReadStat(name string, buf []byte) ([]byte, Stat, error) {
	fd, err := openRetry(d.fd, name, unix.O_NOFOLLOW)
	if err != nil {
		return nil, Stat{}, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var sys unix.Stat_t
	if err := unix.Fstat(fd, &sys); err != nil {
		return nil, Stat{}, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	st := statOf(&sys)
	if !st.Mode.IsRegular() {
		return nil, st, &fs.PathError{Op: "read", Path: name, Err: errNotRegular}
	}
	if size := int(st.Size) + 1; cap(buf) < size { // +1: the end shows as a short read
		buf = make([]byte, 0, max(size, firstRead))
	}
	buf, err = readOpen(fd, buf[:0])
	if err != nil {
		return nil, st, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return buf, st, nil
}

// readOpen reads a regular file into buf, growing it where the file has grown.
func readOpen(fd int, buf []byte) ([]byte, error) {
	for {
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		buf = buf[:len(buf)+n]
		if len(buf) < cap(buf) { // a short read is the end
			return buf, nil
		}
		if buf, err = growFor(fd, buf); err != nil {
			return nil, err
		}
	}
}
