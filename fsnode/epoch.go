package fsnode

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// epoch has the kernel ask again for every name of a mount, at its next use.
// The notification (FUSE_NOTIFY_INC_EPOCH, Linux 6.16) takes no lock, so that
// it may be sent from any request. go-fuse does not know it, so it is written
// to the mount's own device, which the kernel's list of open files tells.
type epoch struct {
	mu sync.Mutex // leaf
	fd int        // -1 when closed
}

// notifyEpoch is the code of the notification.
const notifyEpoch = 8

var errNoEpoch = errors.New("the kernel cannot be told to ask for all names again")

// openEpoch returns the epoch of the mount on a mountpoint, and an error where
// the kernel has none. The mount need not be served yet.
func openEpoch(point string) (*epoch, error) {
	dev, ok := connectionOf(point)
	if !ok {
		return nil, errNoEpoch
	}
	fd, err := deviceOf(dev)
	if err != nil {
		return nil, err
	}
	e := &epoch{fd: fd}
	if err := e.send(); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// connectionOf is the number of the connection that serves a mountpoint: the
// minor number of its device.
func connectionOf(point string) (dev string, ok bool) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) > 5 && unescapeMount(f[4]) == point {
			_, dev, ok = strings.Cut(f[2], ":") // the last one is on top
		}
	}
	return dev, ok
}

// deviceOf returns a descriptor of this process, of its own, for a connection.
func deviceOf(dev string) (int, error) {
	infos, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		return -1, err
	}
	for _, info := range infos {
		b, err := os.ReadFile(info)
		if err != nil {
			continue // closed meanwhile
		}
		if of, ok := fuseConnection(string(b)); !ok || of != dev {
			continue
		}
		if fd, err := strconv.Atoi(filepath.Base(info)); err == nil {
			return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		}
	}
	return -1, errNoEpoch
}

// next begins a new epoch. That it cannot be told any more is no matter: then
// the mount is gone.
func (e *epoch) next() { _ = e.send() }

func (e *epoch) send() error {
	var msg [16]byte // a header: length, code, and 0 in the place of a request
	binary.NativeEndian.PutUint32(msg[0:], uint32(len(msg)))
	binary.NativeEndian.PutUint32(msg[4:], notifyEpoch)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fd < 0 {
		return errNoEpoch
	}
	_, err := unix.Write(e.fd, msg[:])
	return err
}

func (e *epoch) close() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fd >= 0 {
		_ = unix.Close(e.fd)
		e.fd = -1
	}
}
