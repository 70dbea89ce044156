package fsnode

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/sessionfs/sessionfs/dag/render"
)

// copyTime is for how long a session counts as made for what its maker does
// next.
const copyTime = 10 * time.Second

// takeBackWait is for how long a failing call waits for what it was to make to
// be gone again.
const takeBackWait = time.Second

// made keeps which process has made which session just now. The zero value is
// ready.
type made struct {
	mu  sync.Mutex // leaf
	all map[string]maker
}

type maker struct {
	who   process
	at    time.Time
	taken bool // back
}

// note takes over who has made a session.
func (m *made) note(id string, who process, now time.Time) {
	if who.self == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[string]maker{}
	}
	for id, x := range m.all {
		if now.Sub(x.at) > copyTime {
			delete(m.all, id)
		}
	}
	m.all[id] = maker{who: who, at: now}
}

// take reports whether a process has made a session just now, once.
func (m *made) take(id string, who func() process, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	x, ok := m.all[id]
	if !ok || x.taken || now.Sub(x.at) > copyTime || who().self != x.who.self {
		return false
	}
	x.taken = true
	m.all[id] = x
	return true
}

// again reports whether a session was taken back from a process that makes it
// once more, as those do that make all parents of a directory.
func (m *made) again(id string, who process, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	x, ok := m.all[id]
	return ok && x.taken && now.Sub(x.at) <= copyTime && who.self == x.who.self
}

var errNoCopy = errors.New("a session cannot be made of the files of another one, and the new one is taken back; `sessionfs export` writes one out")

// copied takes back a session that was made to become a copy, as by
// `cp -r sessions/a sessions/b`: its maker's next step is to set its head,
// which can be no message of an empty session. Nothing of the copy can arrive,
// and an empty session would look as if it had. It returns the reason to give.
func (t *tree) copied(ctx context.Context, at string, err error) error {
	dir, name := path.Split(at)
	name, ofHead := strings.CutPrefix(name, "head")
	id, ofSession := strings.CutPrefix(strings.TrimSuffix(dir, "/"), "sessions/")
	if !ofHead || name != "" && name != "_id" || !ofSession || strings.Contains(id, "/") {
		return err
	}
	id = render.UnescapeName(id)
	if !t.fresh.take(id, func() process { return processOf(ctx) }, t.now()) {
		return err
	}
	// The request may hold any lock, which the removal would wait for. Mostly it
	// is over, and the listing right, before the failing call returns.
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := t.rmdir(holdingAny(context.Background()), false, render.EscapeName(id)); err != nil {
			t.log.Info("a session that was made for a copy stays", "session", id, "err", err)
		}
	}()
	select {
	case <-over:
	case <-time.After(takeBackWait):
	}
	return errors.Join(err, errNoCopy)
}
