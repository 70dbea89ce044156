package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// needle is in no message.
const needle = "no such needle"

// warmPasses come before the first measured one: a READ or READDIR makes the
// kernel ask for attributes once more, so that only the third pass is warm.
const warmPasses = 2

// places are where a mount and the disk have the same thing.
type places struct {
	root     string // everything
	sessions string // one directory a session
	big      string // the messages of the big session, each a file
	all      string // the same of every session, as a pattern
	reply    string // a message that cannot be written
	question string // a user's message
	link     string // a symlink to a message
	missing  string // a name that is not there
}

func mountPlaces(d *daemon) places {
	one, big := d.session(smallID(3)), d.session(bigID)
	return places{
		root: d.dir, sessions: d.path("sessions"), big: filepath.Join(big, "messages"),
		all:   filepath.Join(d.path("sessions"), "*", "messages"),
		reply: filepath.Join(big, "messages", messageFile(bigID, 11)), question: filepath.Join(big, "messages", messageFile(bigID, 10)),
		link: filepath.Join(one, "head"), missing: filepath.Join(one, "nosuch"),
	}
}

// messageFile is the name in messages/ of a session's n-th message.
func messageFile(session string, n int) string {
	return fmt.Sprintf("%06d-%s-%.8s.md", n+1, []string{"user", "assistant"}[n%2], nodeID(session, n))
}

// diskPlaces are those of a store that was written out as a tree.
func (s *suite) diskPlaces(tree, skeleton string) (places, error) {
	one, big := filepath.Join(tree, smallID(3)), filepath.Join(tree, bigID)
	links, err := filepath.Glob(filepath.Join(one, "branch", "*", "000001-*"))
	if err != nil || len(links) != 1 {
		return places{}, fmt.Errorf("%d links of %s's first message, %w", len(links), one, err)
	}
	file := func(n int) string { return filepath.Join(big, "nodes", nodeFile(bigID, n)+".md") }
	return places{
		root: skeleton, sessions: tree, big: filepath.Join(big, "nodes"), all: filepath.Join(tree, "*", "nodes"),
		reply: file(11), question: file(10), link: links[0], missing: filepath.Join(one, "nosuch"),
	}, nil
}

// warmOp is an operation that is done on the disk and on both mounts.
type warmOp struct {
	name   string
	rw, ro float64 // bounds of the ratio to the disk; 0: none
	do     func(s *suite, p places) arm
}

var warmOps = []warmOp{
	{"find", 1.3, 1.3, func(s *suite, p places) arm { return s.commands(1, p.root, "find", ".") }},
	{"ls -l of the sessions", 1.2, 1.2, func(s *suite, p places) arm { return s.commands(10, p.sessions, "ls", "-l") }},
	{"grep -r of one session", 6.5, 1.5, func(s *suite, p places) arm { return s.commands(3, p.big, "grep", "-r", needle, ".") }},
	{"grep -r of all sessions", 5, 1.5, func(s *suite, p places) arm {
		dirs, _ := filepath.Glob(p.all) // grep of none fails
		return s.commands(2, "", "grep", append([]string{"-r", needle}, dirs...)...)
	}},
	{"read of a reply", 11, 1.8, func(s *suite, p places) arm { return s.loopOn(p.reply, readWhole) }},
	{"read of a user's message", 11, 1.8, func(s *suite, p places) arm { return s.loopOn(p.question, readWhole) }},
	{"lstat of a reply", 1.6, 1.6, func(s *suite, p places) arm { return s.loopOn(p.reply, lstat) }},
	{"lstat of a user's message", 1.6, 1.6, func(s *suite, p places) arm { return s.loopOn(p.question, lstat) }},
	{"readlink of head", 0, 1.6, func(s *suite, p places) arm { return s.loopOn(p.link, readlink) }},
	{"lstat of a missing name", 1.6, 1.6, func(s *suite, p places) arm { return s.loopOn(p.missing, noEntry) }},
	{"lstat of a missing session", 1.6, 1.6, func(s *suite, p places) arm {
		return s.loopOn(filepath.Join(p.sessions, "nosuch"), noEntry)
	}},
}

var mountFigures = func() []string {
	names := []string{"ls -l of many sessions"}
	for _, op := range warmOps {
		names = append(names, op.name)
	}
	return names
}()

// commands runs a program some times over, as one run is short, and measures
// one of them.
func (s *suite) commands(times int, dir, name string, args ...string) arm {
	return each(times, timed("", func() error {
		for range times {
			if err := s.command(dir, name, args...); err != nil {
				return err
			}
		}
		return nil
	}))
}

// loopOn calls f on one path many times and measures one call.
func (s *suite) loopOn(path string, f func(string) error) arm {
	return each(s.loop, timed("", func() error {
		for range s.loop {
			if err := f(path); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		return nil
	}))
}

// readWhole is open, read and close, as cat does them.
func readWhole(path string) error {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var buf [64 << 10]byte
	for {
		n, err := syscall.Read(fd, buf[:])
		if err != nil {
			return errors.Join(err, syscall.Close(fd))
		}
		if n < len(buf) {
			return syscall.Close(fd)
		}
	}
}

func readlink(path string) error {
	var buf [256]byte
	_, err := syscall.Readlink(path, buf[:])
	return err
}

func noEntry(path string) error {
	if err := lstat(path); !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("is there: %w", err)
	}
	return nil
}

// mountGroup compares what a user does in a mount with the same on disk.
func mountGroup(s *suite) error {
	if err := s.warm(); err != nil {
		return err
	}
	if !s.wants("mount/ls -l of many sessions") {
		return nil
	}
	return s.listMany()
}

func (s *suite) warm() error {
	var ops []warmOp
	for _, op := range warmOps {
		if s.wants("mount/" + op.name) {
			ops = append(ops, op)
		}
	}
	if len(ops) == 0 {
		return nil
	}
	store, err := s.chats()
	if err != nil {
		return err
	}
	tree := s.path("tree")
	if err := s.sessionfs(store, "export", "--all", "--format", "tree", "--output", tree); err != nil {
		return err
	}
	rw, err := s.mount(store)
	if err != nil {
		return err
	}
	ro, err := s.mount(store, "--read-only")
	if err != nil {
		return err
	}
	skeleton := s.path("skeleton")
	if s.wants("mount/find") {
		if err := copyNames(rw.dir, skeleton); err != nil {
			return err
		}
	}
	s.calm()
	disk, err := s.diskPlaces(tree, skeleton)
	if err != nil {
		return err
	}
	for _, op := range ops {
		if err := s.warmOp(op, disk, rw, ro); err != nil {
			return fmt.Errorf("%s: %w", op.name, err)
		}
	}
	return errors.Join(rw.stop(), ro.stop(), os.RemoveAll(tree), os.RemoveAll(skeleton))
}

func (s *suite) warmOp(op warmOp, disk places, rw, ro *daemon) error {
	arms := []arm{op.do(s, disk), op.do(s, mountPlaces(rw)), op.do(s, mountPlaces(ro))}
	for i, name := range []string{"disk", "rw", "ro"} {
		arms[i].name = name
	}
	raw, err := s.interleave(s.reps, warmPasses, arms...)
	if err != nil {
		return err
	}
	if op.rw > 0 {
		s.compare("mount/"+op.name+" (rw)", op.rw, raw, "rw", "disk")
	} else if err := s.requestsEach(op, rw, raw); err != nil {
		return err
	}
	s.compare("mount/"+op.name+" (ro)", op.ro, raw, "ro", "disk")
	return nil
}

// requestsEach is the figure of an operation that may cost one request.
func (s *suite) requestsEach(op warmOp, d *daemon, raw map[string][]float64) error {
	a := op.do(s, mountPlaces(d))
	c, err := d.requests(func() error { _, err := a.do(); return err })
	if err != nil {
		return err
	}
	s.add(figure{Name: "mount/" + op.name + " (rw)", Unit: "req", Bound: 1, Value: float64(c.total()) / float64(s.loop), Raw: raw,
		Note: fmt.Sprintf("requests a call; %s, disk %s, x%s", scaled(median(raw["rw"])), scaled(median(raw["disk"])), number(ratio(raw["rw"], raw["disk"])))})
	return nil
}

// listMany is ls -l of a larger registry; on disk, of as many directories.
func (s *suite) listMany() error {
	store, err := s.manySessions(s.many)
	if err != nil {
		return err
	}
	dirs := s.path("dirs")
	for n := range s.many {
		if err := os.MkdirAll(filepath.Join(dirs, smallID(n)), 0o700); err != nil {
			return err
		}
	}
	s.calm()
	rw, err := s.mount(store)
	if err != nil {
		return err
	}
	ro, err := s.mount(store, "--read-only")
	if err != nil {
		return err
	}
	ls := func(name, dir string) arm { return arm{name, s.commands(2, dir, "ls", "-l").do} }
	raw, err := s.interleave(s.reps, warmPasses, ls("disk", dirs), ls("rw", rw.path("sessions")), ls("ro", ro.path("sessions")))
	if err != nil {
		return err
	}
	name := "mount/ls -l of " + strconv.Itoa(s.many) + " sessions"
	s.compare(name+" (rw)", 1.2, raw, "rw", "disk")
	s.compare(name+" (ro)", 1.2, raw, "ro", "disk")
	return errors.Join(rw.stop(), ro.stop(), os.RemoveAll(dirs))
}

// copyNames makes the same tree as a mount's on disk, as far as find looks at
// it: directories, files and links by their names. A name that goes while the
// tree is walked is left out.
func copyNames(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		target := to + strings.TrimPrefix(path, from)
		switch {
		case e.IsDir():
			return os.Mkdir(target, 0o700)
		case e.Type()&fs.ModeSymlink != 0:
			return os.Symlink("nowhere", target)
		}
		f, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		return f.Close()
	})
}

// perUnit divides a count.
func perUnit(n int64, units int) float64 { return float64(n) / float64(max(units, 1)) }
