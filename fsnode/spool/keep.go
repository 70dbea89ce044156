package spool

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// KeepFile gives the regular file at name in the directory dirfd a second name
// in failed/, made from hint, durably, so that it outlives the first, and
// returns the path. Where the two cannot be one file (another file system, or
// one without links) it is copied. No symlink is followed. ErrNoSpace when
// failed/ would hold more than half of its limit with it: the rest is for
// texts.
func (s *Spool) KeepFile(hint string, dirfd int, name string) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return "", fmt.Errorf("keep %s: %w", hint, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", fmt.Errorf("keep %s: %w", hint, ErrInvalid)
	}
	used, err := s.failed.used()
	if err != nil {
		return "", err
	}
	if used+st.Size > s.lim.Failed/2 {
		return "", fmt.Errorf("keep %s: failed/ has no room for a large file: %w", hint, ErrNoSpace)
	}
	tmp, err := s.beginWrite(hint)
	if err != nil {
		return "", err
	}
	defer s.writers.Done()
	if err := linkOrCopy(dirfd, name, tmp); err != nil {
		return "", fmt.Errorf("keep %s: %w", hint, noSpace(err))
	}
	kept, err := s.failed.take(tmp, hint, s.now())
	if err != nil {
		_ = os.Remove(tmp)
		return kept, fmt.Errorf("keep %s: %w", hint, noSpace(err))
	}
	return kept, nil
}

func linkOrCopy(dirfd int, name, to string) error {
	if unix.Linkat(dirfd, name, unix.AT_FDCWD, to, 0) == nil {
		return nil
	}
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	from := os.NewFile(uintptr(fd), name)
	defer func() { _ = from.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		_ = os.Remove(to)
	}
	return err
}
