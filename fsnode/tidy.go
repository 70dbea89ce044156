package fsnode

import (
	"runtime/debug"
	"sync/atomic"
	"time"
)

// tidier gives memory back to the system when the mount has come to rest: after
// the start, which reads the registry, and after many requests, which a walk
// over the tree takes and the kernel's forgetting of it. Go's runtime by itself
// keeps as much garbage as there is live memory, for good.
type tidier struct {
	requests atomic.Int64
	told     int64 // requests when memory was given back last
	seen     int64 // requests at the last look
	armed    atomic.Bool
	closed   atomic.Bool
}

const (
	tidyPause = time.Second // without a request: the mount is at rest
	tidyAfter = 5000        // requests, below which it is not worth it
)

// note counts a request. The first after a rest starts the looking.
func (t *tidier) note() {
	t.requests.Add(1)
	if !t.armed.Load() && t.armed.CompareAndSwap(false, true) {
		time.AfterFunc(tidyPause, t.look)
	}
}

// released counts sessions whose state was dropped: it is as much as the
// requests that brought it.
func (t *tidier) released(sessions int) {
	t.requests.Add(int64(sessions) * 100)
	t.note()
}

// start has memory given back when the mount has come to rest for the first
// time, however few its requests.
func (t *tidier) start() {
	t.told = -tidyAfter
	t.note()
}

// look looks whether there were requests since the last time, and waits on.
// Only one look is under way at a time.
func (t *tidier) look() {
	n := t.requests.Load()
	switch {
	case t.closed.Load():
		return
	case n != t.seen:
		t.seen = n
		time.AfterFunc(tidyPause, t.look)
		return
	}
	if n-t.told >= tidyAfter {
		t.told = n
		debug.FreeOSMemory()
	}
	t.armed.Store(false)
}

// close ends the looking.
func (t *tidier) close() { t.closed.Store(true) }
