package safefile

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is an open directory. Close it.
type Dir struct {
	f *os.File
}

// Path returns a path of a name in the directory that holds as long as Dir is
// open, whatever happens to the names that led to it. The empty name is the
// directory.
func (d *Dir) Path(name string) string {
	p := "/proc/self/fd/" + strconv.Itoa(int(d.f.Fd()))
	if name == "" {
		return p
	}
	return p + "/" + name
}

// Close releases the directory.
func (d *Dir) Close() error { return d.f.Close() }

// tries bounds how often a look-up is repeated that a rename came across.
const tries = 100

func open(root, rel string) (*Dir, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, err
	}
	if rel != "." {
		below, err := lookup(fd, rel)
		unix.Close(fd)
		if err != nil {
			return nil, err
		}
		fd = below
	}
	d := &Dir{os.NewFile(uintptr(fd), root)}
	if err := d.check(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// lookup finds a directory beneath another.
func lookup(fd int, rel string) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	below, err := retry(func() (int, error) { return unix.Openat2(fd, rel, &how) })
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return walk(fd, rel) // Linux before 5.6, or a sandbox that forbids the call
	}
	return below, err
}

// walk is lookup one component at a time: without "..", and following no
// symlink, no step can leave what the last one found.
func walk(fd int, rel string) (int, error) {
	at := fd
	for _, name := range strings.Split(rel, "/") {
		next, err := retry(func() (int, error) {
			return unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		})
		if at != fd {
			unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		var st unix.Stat_t
		if err := unix.Fstat(next, &st); err != nil {
			unix.Close(next)
			return -1, err
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
		case unix.S_IFLNK:
			unix.Close(next)
			return -1, unix.ELOOP
		default:
			unix.Close(next)
			return -1, unix.ENOTDIR
		}
		at = next
	}
	return at, nil
}

func retry(call func() (int, error)) (int, error) {
	for n := 0; ; n++ {
		fd, err := call()
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) || n == tries {
			return fd, err
		}
	}
}

// check makes sure that Path leads to the directory: without /proc every name
// would look as if it did not exist.
func (d *Dir) check() error {
	var want, got unix.Stat_t
	if err := unix.Fstat(int(d.f.Fd()), &want); err != nil {
		return err
	}
	if err := unix.Stat(d.Path(""), &got); err != nil || want.Ino != got.Ino || want.Dev != got.Dev {
		return fmt.Errorf("/proc/self/fd is not usable: %w", unix.ENOSYS)
	}
	return nil
}
