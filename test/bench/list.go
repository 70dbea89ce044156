package main

import "fmt"

// listGroup measures the listing of many sessions by a fresh process, beyond
// what it takes to start one.
func listGroup(s *suite) error {
	root, err := s.manySessions(s.many)
	if err != nil {
		return err
	}
	raw, err := s.interleave(max(s.reps, 5), 2,
		timed("ls", func() error { return s.sessionfs(root, "ls", "--limit", "0") }),
		timed("start", func() error { return s.command("", s.bin, "version") }))
	if err != nil {
		return err
	}
	ls, start := median(raw["ls"]), median(raw["start"])
	s.add(figure{Name: fmt.Sprintf("list/%d sessions, fresh process", s.many), Unit: "ms", Bound: 120, Value: 1e3 * (ls - start),
		Note: fmt.Sprintf("ls --limit 0 %s, version %s", scaled(ls), scaled(start)), Raw: raw})
	return nil
}
