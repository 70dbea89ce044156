package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// fsType is how the kernel calls our mounts.
const fsType = "fuse.sessionfs"

// mountEntry is a line of /proc/self/mountinfo.
type mountEntry struct {
	point  string // absolute path
	fsType string
	source string
}

// mountedAt returns what is mounted on a path: the topmost mount, ok is false
// when the path is no mountpoint.
func mountedAt(path string) (mountEntry, bool, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return mountEntry{}, false, err
	}
	var found mountEntry
	ok := false
	for _, e := range parseMountinfo(string(text)) {
		if e.point == path {
			found, ok = e, true // later lines are mounted over earlier ones
		}
	}
	return found, ok, nil
}

// parseMountinfo reads the format of proc_pid_mountinfo(5): the mountpoint is
// the fifth field; type and source follow the field "-".
func parseMountinfo(text string) []mountEntry {
	var entries []mountEntry
	for _, line := range strings.Split(text, "\n") {
		before, after, ok := strings.Cut(line, " - ")
		fields, tail := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(tail) < 2 {
			continue
		}
		entries = append(entries, mountEntry{point: unescapeMount(fields[4]), fsType: tail[0], source: unescapeMount(tail[1])})
	}
	return entries
}

// unescapeMount undoes the kernel's \ooo for blanks and backslashes.
func unescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// resolveMountpoint makes a path absolute and free of symlinks, as the kernel
// lists it. The last component of a dead mount cannot be looked at, so it is
// kept as it stands then.
func resolveMountpoint(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real, nil
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", err
	}
	return filepath.Join(parent, filepath.Base(abs)), nil
}
