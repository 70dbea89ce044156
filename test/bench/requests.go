package main

import (
	"fmt"
	"strings"
)

var requestFigures = []string{"find", "ls -l", "grep -r of all sessions", "grep -r of one session"}

// requestGroup counts what the kernel asks: exact, whatever the machine.
func requestGroup(s *suite) error {
	store, err := s.chats()
	if err != nil {
		return err
	}
	for _, mode := range []struct {
		name  string
		flags []string
		file  float64 // requests that the first read of a file may take
	}{{"rw", nil, 4}, {"ro", []string{"--read-only"}, 1}} {
		steps := []struct {
			name string
			do   func(*suite, *daemon, string, float64) error
		}{{"find", countFind}, {"ls -l", countList}, {"grep -r of all sessions", countGrepAll}, {"grep -r of one session", countGrepOne}}
		for _, step := range steps {
			if !s.wants("requests/" + step.name) {
				continue
			}
			d, err := s.mount(store, mode.flags...)
			if err != nil {
				return err
			}
			if err := step.do(s, d, mode.name, mode.file); err != nil {
				return fmt.Errorf("%s (%s): %w", step.name, mode.name, err)
			}
			if err := d.stop(); err != nil {
				return err
			}
		}
	}
	return nil
}

// slack is for what a first pass asks beside directories and files: once for
// the mount, and in more than two replies for a listing of thousands of names.
const slack = 0.01

// passes does something three times and counts the first and the third.
func passes(d *daemon, f func() error) (first, third counts, err error) {
	for n := range 3 {
		c, err := d.requests(f)
		if err != nil {
			return nil, nil, err
		}
		if n == 0 {
			first = c
		}
		third = c
	}
	return first, third, nil
}

// share adds the figure of a third pass: requests in percent of the entries.
func (s *suite) share(name string, n int64, entries int, c counts) {
	s.add(figure{Name: name + ", third pass", Unit: "%", Bound: 1, Value: 100 * perUnit(n, entries),
		Note: fmt.Sprintf("%d requests for %d entries; %s", n, entries, c)})
}

func countFind(s *suite, d *daemon, mode string, _ float64) error {
	var types string
	walk := func() (err error) {
		types, err = s.output("", "find", d.dir, "-printf", "%y\n")
		return err
	}
	first, third, err := passes(d, walk)
	if err != nil {
		return err
	}
	entries, dirs := strings.Count(types, "\n"), strings.Count(types, "d\n")
	s.add(figure{Name: "requests/find (" + mode + "), first pass", Unit: "/dir", Bound: 2, Value: perUnit(first.total(), dirs),
		Note: fmt.Sprintf("%d requests for %d directories; %s", first.total(), dirs, first)})
	s.share("requests/find ("+mode+")", third.total(), entries, third)
	return nil
}

func countList(s *suite, d *daemon, mode string, _ float64) error {
	_, third, err := passes(d, func() error { return s.command("", "ls", "-l", d.path("sessions")) })
	if err != nil {
		return err
	}
	s.share("requests/ls -l ("+mode+")", third.total(), s.sessions+1, third)
	return nil
}

func countGrepAll(s *suite, d *daemon, mode string, file float64) error {
	dirs := []string{d.session(bigID, "messages")}
	for n := range s.sessions {
		dirs = append(dirs, d.session(smallID(n), "messages"))
	}
	// Each session is a directory too, and so are sessions/ and the root.
	return s.countGrep(d, "grep -r of all sessions", mode, file, dirs, 2*len(dirs)+2, s.big+s.sessions*s.messages)
}

func countGrepOne(s *suite, d *daemon, mode string, file float64) error {
	return s.countGrep(d, "grep -r of one session", mode, file, []string{d.session(bigID, "messages")}, 4, s.big)
}

// countGrep counts grep. It asks STATFS of each directory that it is given, and
// no kernel keeps the answer: those are left out.
func (s *suite) countGrep(d *daemon, what, mode string, file float64, paths []string, dirs, files int) error {
	first, third, err := passes(d, func() error {
		return s.command("", "grep", append([]string{"-r", needle}, paths...)...)
	})
	if err != nil {
		return err
	}
	name := "requests/" + what + " (" + mode + ")"
	beyond := max(0, first.total()-first.total("statfs")-2*int64(dirs))
	s.add(figure{Name: name + ", first pass", Unit: "/file", Bound: file, Slack: slack, Value: perUnit(beyond, files),
		Note: fmt.Sprintf("%d requests, without 2 for each of %d directories and STATFS, for %d files; %s", first.total(), dirs, files, first)})
	if mode == "rw" {
		return nil // needs its handles
	}
	s.share(name, third.total()-third.total("statfs"), files, third)
	s.add(figure{Name: name + ", third pass: OPEN, READ, FLUSH", Unit: "req", Bound: 0, Value: float64(third.total("open", "read", "flush")),
		Note: "the kernel may give a page back by itself"})
	return nil
}
