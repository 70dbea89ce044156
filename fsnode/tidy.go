package fsnode

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// tidier gives memory back to the system when the mount has come to rest: after
// the start, which reads the registry, and after many requests, which a walk
// over the tree takes and the kernel's forgetting of it. Go's runtime by itself
// keeps as much garbage as there is live memory, for good.
type tidier struct {
	rest     func() // drops what is kept only as long as somebody may ask; may be nil
	requests atomic.Int64
	told     int64 // requests when memory was given back last
	seen     int64 // requests at the last look
	armed    atomic.Bool
	closed   atomic.Bool
	percent  atomic.Int32 // of garbage, as set last; 0: not set
}

const (
	tidyPause = 400 * time.Millisecond // without a request: the mount is at rest
	tidyAfter = 5000                   // requests, below which it is not worth it
	tidyPace  = 2048                   // requests between two looks at how large the heap is

	paceGarbage = 8 << 20 // bytes of garbage that are always worth waiting for
	paceLeast   = 12      // percent of the live heap: less costs too much time
	paceStep    = 4       // percent
)

// note counts a request. The first after a rest starts the looking.
func (t *tidier) note() {
	if t.requests.Add(1)%tidyPace == 0 {
		go t.pace()
	}
	if !t.armed.Load() && t.armed.CompareAndSwap(false, true) {
		time.AfterFunc(tidyPause, t.look)
	}
}

// released counts sessions whose state was dropped. It weighs more than the
// requests that brought it: they may go in several parts, and what is left of
// a few, lying about, keeps much from being given back.
func (t *tidier) released(sessions int) {
	t.requests.Add(int64(sessions) * 500)
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
		if t.rest != nil {
			t.rest()
		}
		debug.FreeOSMemory()
		t.pace()
	}
	t.armed.Store(false)
}

// pace lets less garbage gather beside a large heap. What stays for long lies
// between garbage when that is much, and then neither is given back. A process
// that was told by GOGC how to collect does that.
func (t *tidier) pace() {
	if t.closed.Load() || os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	percent := garbagePercent(live[0].Value.Uint64())
	if t.percent.Swap(percent) != percent {
		debug.SetGCPercent(int(percent))
	}
}

// garbagePercent is how much garbage may gather beside a live heap of a size in
// bytes, in percent of it: a multiple of paceStep.
func garbagePercent(live uint64) int32 {
	percent := 100 * paceGarbage / max(live, 1) / paceStep * paceStep
	return int32(min(max(percent, paceLeast), 100))
}

// close ends the looking.
func (t *tidier) close() { t.closed.Store(true) }
