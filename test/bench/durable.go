package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sessionfs/sessionfs/store"
)

// durableGroup compares what must be on the disk when a call returns with the
// bare writes of the same files.
func durableGroup(s *suite) error {
	root, err := s.corpus("durable", 1, func(int) spec { return spec{longID, 1000, 1500, repoFull} })
	if err != nil {
		return err
	}
	w, err := s.newWriter(root)
	if err != nil {
		return err
	}
	bare, err := s.newBare(root)
	if err != nil {
		return errors.Join(err, w.close())
	}
	if s.wants("durable/append") {
		raw, err := s.interleave(s.pairs, 3, timed("append", w.append), timed("bare", bare.append))
		if err != nil {
			return errors.Join(err, w.close())
		}
		s.compare("durable/append", 1.15, raw, "append", "bare")
	}
	if s.wants("durable/head") {
		raw, err := s.interleave(s.pairs, 3, timed("move", w.move), timed("bare", bare.move))
		if err != nil {
			return errors.Join(err, w.close())
		}
		s.compare("durable/head move", 1.15, raw, "move", "bare")
	}
	return errors.Join(w.close(), s.drop("durable"))
}

// sessionWriter appends to a session and moves its head, through the store.
type sessionWriter struct {
	s  *suite
	st *store.Store
	id string
	n  int
}

func (s *suite) newWriter(root string) (*sessionWriter, error) {
	st, err := store.Open(s.ctx, store.Options{Root: root})
	return &sessionWriter{s: s, st: st, id: longID}, err
}

func (w *sessionWriter) append() error {
	w.n++
	_, err := w.st.AppendText(w.s.ctx, w.id, "user", turnText("user", w.n))
	return err
}

// move goes to and fro between the second and the third message.
func (w *sessionWriter) move() error {
	w.n++
	_, err := w.st.SetHead(w.s.ctx, w.id, nodeID(w.id, 1+w.n%2), store.HeadMove{})
	return err
}

func (w *sessionWriter) close() error { return w.st.Close() }

// bareWriter writes the same files in the same order, and does nothing else.
type bareWriter struct {
	dir  string
	meta []byte
	n    int
}

// newBare makes a copy of the session to write into: a directory of as many
// files.
func (s *suite) newBare(root string) (*bareWriter, error) {
	dir, err := s.fresh("bare")
	if err != nil {
		return nil, err
	}
	if err := s.command("", "cp", "-a", filepath.Join(root, longID)+"/.", dir); err != nil {
		return nil, err
	}
	s.calm()
	meta, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	return &bareWriter{dir: dir, meta: meta, n: 5000}, err
}

func (b *bareWriter) append() error {
	b.n++
	raw := message(nodeID(longID, b.n), b.n, nodeID(longID, b.n-1), turnText("user", b.n))
	return errors.Join(durably(filepath.Join(b.dir, "history", fmt.Sprintf("%04d-u-%s.json", b.n, nodeID(longID, b.n))), raw), b.move())
}

func (b *bareWriter) move() error { return durably(filepath.Join(b.dir, "meta.json"), b.meta) }
