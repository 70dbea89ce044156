package main

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// standardOutput is the process's standard output. Where the shell has closed
// it, it is one to which nothing can be written, so that a command which has
// something to print fails.
func standardOutput() io.Writer {
	if closedByShell() {
		return closedOutput{}
	}
	return os.Stdout
}

// closedOutput fails every write as a closed descriptor does.
type closedOutput struct{}

func (closedOutput) Write([]byte) (int, error) {
	return 0, &fs.PathError{Op: "write", Path: "standard output", Err: unix.EBADF}
}

// shells are those with which a command's output is closed: ">&-".
var shells = []string{"sh", "bash", "dash", "ash", "busybox", "ksh", "mksh", "zsh"}

// closedByShell reports whether standard output was closed when the program
// began. The Go runtime has opened /dev/null for reading and writing in its
// place by then, which looks like what programs give to a child whose output
// they ignore. So it counts only below a shell, whose ">/dev/null" is for
// writing alone, and only when the shell itself does not write to /dev/null.
func closedByShell() bool {
	flags, err := unix.FcntlInt(1, unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return false
	}
	out, err := os.Stdout.Stat()
	if err != nil {
		return false
	}
	null, err := os.Stat(os.DevNull)
	if err != nil || !os.SameFile(out, null) {
		return false
	}
	parent := filepath.Join("/proc", strconv.Itoa(os.Getppid()))
	name, err := os.ReadFile(filepath.Join(parent, "comm"))
	if err != nil || !slices.Contains(shells, strings.TrimSpace(string(name))) {
		return false
	}
	target, err := os.Readlink(filepath.Join(parent, "fd", "1"))
	if err != nil {
		return os.IsNotExist(err)
	}
	return target != os.DevNull
}
