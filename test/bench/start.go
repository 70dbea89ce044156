package main

import (
	"fmt"
	"time"
)

// startGroup measures from the start of the program to the end of the first
// ls of a mount.
func startGroup(s *suite) error {
	if s.wants("start/10k") {
		if err := s.start(s.many, 250); err != nil {
			return err
		}
	}
	if !s.wants("start/100k") {
		return nil
	}
	if s.huge == 0 {
		s.skip("start/mount and first ls, 100000 sessions", "left out of the quick form")
		return nil
	}
	return s.start(s.huge, 2500)
}

func (s *suite) start(sessions int, bound float64) error {
	store, err := s.manySessions(sessions)
	if err != nil {
		return err
	}
	loaded := 0.0
	start := func(name string, flags ...string) arm {
		return arm{name, func() (time.Duration, error) {
			began := time.Now()
			d, err := s.mount(store, flags...)
			if err != nil {
				return 0, err
			}
			if err := s.command("", "ls", d.path("sessions")); err != nil {
				return 0, err
			}
			took := time.Since(began)
			open, err := d.gauge("sessionfs_sessions_open")
			if err != nil {
				return 0, err
			}
			loaded = max(loaded, open)
			return took, d.stop()
		}}
	}
	raw, err := s.interleave(s.reps, 1, start("rw"), start("ro", "--read-only"))
	if err != nil {
		return err
	}
	for _, mode := range []string{"rw", "ro"} {
		s.add(figure{Name: fmt.Sprintf("start/mount and first ls, %d sessions (%s)", sessions, mode), Unit: "ms", Bound: bound,
			Value: 1e3 * median(raw[mode]), Raw: map[string][]float64{mode: raw[mode]}})
	}
	s.add(figure{Name: fmt.Sprintf("start/histories read, %d sessions", sessions), Unit: "", Bound: 0, Value: loaded,
		Note: "sessions that were loaded before anybody looked into one"})
	return nil
}
