package main

import (
	"fmt"
	"os"
	"strings"
)

// moveGroup measures a head move by a write into head_id.
func moveGroup(s *suite) error {
	store, err := s.chats()
	if err != nil {
		return err
	}
	d, err := s.mount(store)
	if err != nil {
		return err
	}
	const id = "s000005"
	meta, err := os.ReadFile(store + "/" + id + "/meta.json")
	if err != nil {
		return err
	}
	bare, err := s.fresh("bare")
	if err != nil {
		return err
	}
	n := 0
	echo := func() error {
		n++
		return echoInto(d.session(id, "head_id"), nodeID(id, s.messages-1-n%2)+"\n")
	}
	if s.wants("move/requests") {
		if err := s.moveRequests(d, echo); err != nil {
			return err
		}
	}
	if !s.wants("move/time") {
		return d.stop()
	}
	raw, err := s.interleave(s.pairs, 3, timed("echo", echo), timed("bare", func() error { return durably(bare+"/meta.json", meta) }))
	if err != nil {
		return err
	}
	s.compare("move/echo id > head_id", 1.5, raw, "echo", "bare")
	return d.stop()
}

func (s *suite) moveRequests(d *daemon, echo func() error) error {
	for range 3 {
		if err := echo(); err != nil {
			return err
		}
	}
	const moves = 20
	c, err := d.requests(func() error {
		for range moves {
			if err := echo(); err != nil {
				return err
			}
		}
		return nil
	})
	// The kernel sends RELEASE after close has returned: nobody waits for it.
	s.add(figure{Name: "move/requests of echo id > head_id", Unit: "req", Bound: 3, Value: perUnit(c.total()-c["release"], moves),
		Note: fmt.Sprintf("over %d moves, without RELEASE: %s", moves, c)})
	return err
}

// echoInto writes as a shell's > does.
func echoInto(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(text); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// readText reads a small file without its final newline.
func readText(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimSuffix(string(b), "\n"), err
}
