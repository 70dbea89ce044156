package gitrepo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/go-git/go-billy/v5"
	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// Whoever may write to .git may put a FIFO in the place of a file: opening it
// waits for somebody at its other end, with the locks held.

// openFile opens a file that is there, without waiting. What is no regular file
// is refused.
func openFile(f disk.FS, path string, flag int) (disk.File, error) {
	file, err := f.OpenFile(path, flag|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENXIO) { // a FIFO that nobody reads, or a socket
		return nil, irregular(path)
	}
	if err != nil {
		return nil, err
	}
	if err := checkRegular(file, path); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func checkRegular(file disk.File, path string) error {
	fi, err := file.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = irregular(path)
	}
	return err
}

func irregular(path string) error {
	return fmt.Errorf("%s: %w: no regular file", path, ErrUnsupported)
}

// readFile reads a file; FS does not wait for it. That there is nothing in a
// FIFO does not make it an empty file.
func readFile(f disk.FS, path string) ([]byte, error) {
	b, err := f.ReadFile(path)
	if len(b) > 0 || err != nil && !errors.Is(err, unix.EAGAIN) {
		return b, err
	}
	if fi, serr := f.Stat(path); serr == nil && fi.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0 {
		return nil, irregular(path)
	}
	return b, err
}

// Open opens a file to read it.
func (w wholePacks) Open(path string) (billy.File, error) {
	fi, err := w.Stat(path)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, irregular(path)
	}
	return w.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
}
