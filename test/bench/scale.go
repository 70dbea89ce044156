package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sessionfs/sessionfs/store"
)

// scaleGroup compares what an operation on one session costs in a small and
// in a large registry, and in a short and a long conversation.
func scaleGroup(s *suite) error {
	if s.wants("scale/sessions") {
		if err := s.scaleSessions(); err != nil {
			return err
		}
	}
	if !s.wants("scale/nodes") {
		return nil
	}
	return s.scaleNodes()
}

// scaledOp is an operation that is done in the small and the large place.
type scaledOp struct {
	name  string
	calls int // in one measured repetition
	do    func(w *sessionWriter, d *daemon) error
}

var storeOps = []scaledOp{
	{"append", 20, func(w *sessionWriter, _ *daemon) error { return w.append() }},
	{"head move", 20, func(w *sessionWriter, _ *daemon) error { return w.move() }},
	{"field", 20, func(w *sessionWriter, _ *daemon) error {
		w.n++
		return w.st.SetField(w.s.ctx, w.id, "title", fmt.Sprint("title ", w.n))
	}},
	{"commit of a turn", 5, func(w *sessionWriter, _ *daemon) error {
		if err := w.append(); err != nil {
			return err
		}
		_, _, err := w.st.CommitTurn(w.s.ctx, w.id, "")
		return err
	}},
	{"load", 20, func(w *sessionWriter, _ *daemon) error { return w.st.Reload(w.s.ctx, w.id) }},
	{"branch again", 500, func(w *sessionWriter, _ *daemon) error {
		_, err := w.st.GetBranch(w.s.ctx, w.id, "")
		return err
	}},
}

var mountOps = []scaledOp{
	{"cat head_id", 200, func(w *sessionWriter, d *daemon) error { return readWhole(d.session(w.id, "head_id")) }},
	{"cat a reply", 200, func(w *sessionWriter, d *daemon) error {
		return readWhole(d.session(w.id, "messages", messageFile(w.id, 1)))
	}},
	{"ls messages", 100, func(w *sessionWriter, d *daemon) error {
		_, err := os.ReadDir(d.session(w.id, "messages"))
		return err
	}},
	{"echo > head_id", 20, func(w *sessionWriter, d *daemon) error {
		w.n++
		return echoInto(d.session(w.id, "head_id"), nodeID(w.id, 1+w.n%2)+"\n")
	}},
}

// scaleSessions compares a large registry with a small one.
func (s *suite) scaleSessions() error {
	if s.huge == 0 {
		s.skip("scale/sessions", "left out of the quick form")
		return nil
	}
	small, err := s.manySessions(s.baseScale)
	if err != nil {
		return err
	}
	large, err := s.manySessions(s.huge)
	if err != nil {
		return err
	}
	title := fmt.Sprintf("scale/%%s, %d sessions to %d", s.huge, s.baseScale)
	if err := s.scaleStore(storeOps, title, 1.3, workID, small, large); err != nil {
		return err
	}
	if s.noFUSE != "" {
		s.skip("scale/mount", "no FUSE: "+s.noFUSE)
		return nil
	}
	return s.scaleMount(title, small, large)
}

// scaleStore does the operations of the store in both places in turn.
func (s *suite) scaleStore(ops []scaledOp, title string, bound float64, id, small, large string) (err error) {
	var w [2]*sessionWriter
	for i, root := range []string{small, large} {
		st, err := store.Open(s.ctx, store.Options{Root: root, Watch: true})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, st.Close()) }()
		w[i] = &sessionWriter{s: s, st: st, id: id}
	}
	for _, op := range ops {
		if err := s.scaleOp(op, title, bound, w, [2]*daemon{}); err != nil {
			return err
		}
	}
	return nil
}

func (s *suite) scaleMount(title, small, large string) error {
	var w [2]*sessionWriter
	var d [2]*daemon
	for i, root := range []string{small, large} {
		var err error
		if d[i], err = s.mount(root); err != nil {
			return err
		}
		w[i] = &sessionWriter{s: s, id: workID}
	}
	for _, op := range mountOps {
		if err := s.scaleOp(op, title, 1.3, w, d); err != nil {
			return err
		}
	}
	return errors.Join(d[0].stop(), d[1].stop())
}

// scaleOp measures one operation and adds its figure.
func (s *suite) scaleOp(op scaledOp, title string, bound float64, w [2]*sessionWriter, d [2]*daemon) error {
	loop := func(name string, i int) arm {
		return each(op.calls, timed(name, func() error {
			for range op.calls {
				if err := op.do(w[i], d[i]); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	raw, err := s.interleave(s.reps, 1, loop("small", 0), loop("large", 1))
	if err != nil {
		return fmt.Errorf("%s: %w", op.name, err)
	}
	s.compare(fmt.Sprintf(title, op.name), bound, raw, "large", "small")
	return nil
}

// scaleNodes compares a long conversation with a short one.
func (s *suite) scaleNodes() error {
	if s.hugeNodes == 0 {
		s.skip("scale/nodes", "left out of the quick form")
		return nil
	}
	var roots [2]string
	for i, nodes := range []int{s.baseScale, s.hugeNodes} {
		var err error
		roots[i], err = s.corpus(fmt.Sprint("nodes-", nodes), 1, func(int) spec { return spec{longID, nodes, 300, repoEmpty} })
		if err != nil {
			return err
		}
		if entries, err := os.ReadDir(filepath.Join(roots[i], longID, "history")); err != nil || len(entries) != nodes {
			return fmt.Errorf("%d nodes, want %d, %w", len(entries), nodes, err)
		}
	}
	title := fmt.Sprintf("scale/%%s, %d nodes to %d", s.hugeNodes, s.baseScale)
	return s.scaleStore(storeOps[:2], title, 2, longID, roots[0], roots[1])
}
