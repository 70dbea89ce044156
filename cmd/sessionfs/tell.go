package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/sessionfs/sessionfs/fsnode"
	"github.com/sessionfs/sessionfs/store"
)

// mountsTold has the mounts of a store look at each session that this process
// changes, before the verb ends: whoever runs the next command sees the change
// there, and need not wait until the mount has noticed it by itself.
type mountsTold struct {
	root   string
	points []string
	asked  time.Time       // when points were looked up
	silent map[string]bool // mounts that did not answer
}

const (
	// tellWait bounds how long a verb waits for a mount that does not answer.
	tellWait = 2 * time.Second
	// tellFresh is how long a list of mounts is used.
	tellFresh = 2 * time.Second
)

func (m *mountsTold) Swapped(store.Change) {}

// Published is called by one operation of a verb after the other.
func (m *mountsTold) Published(_ context.Context, c store.Change) {
	if c.Foreign {
		return
	}
	if time.Since(m.asked) > tellFresh {
		m.points, m.asked = nil, time.Now()
		for _, live := range liveMounts(m.root) {
			m.points = append(m.points, live.Mountpoint)
		}
	}
	for _, point := range m.points {
		if !m.silent[point] && !tell(point, c.ID) {
			m.silent[point] = true
		}
	}
}

// tell has one mount look at a session; false when it does not answer in time.
func tell(point, id string) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = os.Lstat(filepath.Join(point, fsnode.FollowPath, id)) // never there
	}()
	select {
	case <-done:
		return true
	case <-time.After(tellWait):
		return false
	}
}

// telling subscribes a verb's store to the mounts.
func telling(st *store.Store, err error) (*store.Store, error) {
	if err == nil {
		st.Subscribe(&mountsTold{root: st.Root(), silent: map[string]bool{}})
	}
	return st, err
}
