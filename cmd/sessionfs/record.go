package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// mountRecord is a file that a serving process keeps locked as long as it
// lives, so that "umount" can wait until the last commit is on disk. The
// kernel drops the lock with the process, whatever ended it.
type mountRecord struct {
	file *os.File
	path string
}

// recordPath names the record of a mountpoint.
func recordPath(point string) (string, error) {
	dir, err := stateDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "mounts", mountKey(point)+".json"), nil
}

// mountKey names a mountpoint in file names.
func mountKey(point string) string {
	sum := sha256.Sum256([]byte(point))
	return hex.EncodeToString(sum[:8])
}

// writeRecord creates and locks the record of a mount; metrics is the address
// that serves its figures, "" for none.
func writeRecord(point, root, metrics string) (*mountRecord, error) {
	path, err := recordPath(point)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	for range 100 {
		r, err := lockRecord(path)
		if err != nil {
			return nil, err
		}
		if r == nil {
			continue // removed by its last holder between our open and our lock
		}
		fields := map[string]any{"pid": os.Getpid(), "mountpoint": point, "store": root}
		if metrics != "" {
			fields["metrics"] = metrics
		}
		text, err := json.Marshal(fields)
		if err != nil {
			return nil, err
		}
		if err := r.file.Truncate(0); err != nil {
			return nil, err
		}
		_, err = r.file.WriteAt(append(text, '\n'), 0)
		return r, err
	}
	return nil, errors.New("the record of an earlier mount does not go away")
}

func lockRecord(path string) (*mountRecord, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) { // the server of an earlier mount is still closing
			time.Sleep(50 * time.Millisecond)
			return nil, nil
		}
		return nil, err
	}
	held, err1 := file.Stat()
	named, err2 := os.Stat(path)
	if err1 != nil || err2 != nil || !os.SameFile(held, named) {
		file.Close()
		return nil, nil
	}
	return &mountRecord{file: file, path: path}, nil
}

// remove takes the record away. It is safe on nil.
func (r *mountRecord) remove() {
	if r == nil {
		return
	}
	os.Remove(r.path)
	r.file.Close()
}

// waitServed waits until the process that serves a mountpoint has ended, or
// the time is up. A mountpoint without a record needs no wait.
func waitServed(point string, limit time.Duration) bool {
	path, err := recordPath(point)
	if err != nil {
		return true
	}
	file, err := os.Open(path)
	if err != nil {
		return true
	}
	defer file.Close()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB); err == nil {
			return true
		}
	}
	return false
}
