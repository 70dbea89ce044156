package main

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// fakeMount is busy for its first attempts; with inUse a lazy detach does not
// end Wait, as when a process stands in the tree.
type fakeMount struct {
	mu    sync.Mutex
	busy  int // ordinary unmounts that are refused
	inUse bool
	slow  time.Duration // from the unmount to the server's end
	calls []bool        // lazy or not, in order
	gone  chan struct{}
}

func (m *fakeMount) Wait() { <-m.gone }

func (m *fakeMount) Unmount(lazy bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, lazy)
	if !lazy && m.busy > 0 {
		m.busy--
		return syscall.EBUSY
	}
	if !m.inUse && len(m.calls) == 1 {
		time.AfterFunc(m.slow, func() { close(m.gone) })
	} else if !m.inUse {
		close(m.gone)
	}
	return nil
}

func (m *fakeMount) lazily() (attempts int, lazy bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.calls), len(m.calls) > 0 && m.calls[len(m.calls)-1]
}

func TestServe(t *testing.T) {
	quick := stopTimes{busy: 200 * time.Millisecond, retry: 5 * time.Millisecond, linger: 50 * time.Millisecond}
	patient := stopTimes{busy: time.Hour, retry: 5 * time.Millisecond, linger: 50 * time.Millisecond}
	for _, tt := range []struct {
		name    string
		busy    int
		inUse   bool
		slow    time.Duration
		times   stopTimes
		signals int
		gone    bool // unmounted by somebody else
		lazy    bool // ends with a lazy detach
	}{
		{name: "unmounted by another", gone: true, times: patient},
		{name: "one signal", signals: 1, times: patient},
		{name: "slow to end", slow: 200 * time.Millisecond, signals: 1, times: patient},
		{name: "busy for a moment", busy: 3, signals: 1, times: patient},
		{name: "busy to the end", busy: 1 << 30, signals: 1, times: quick, lazy: true},
		{name: "second signal", busy: 1 << 30, signals: 2, times: patient, lazy: true},
		{name: "somebody stands in it", busy: 1 << 30, inUse: true, signals: 2, times: patient, lazy: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := &fakeMount{busy: tt.busy, inUse: tt.inUse, slow: tt.slow, gone: make(chan struct{})}
			if m.inUse {
				t.Cleanup(func() { close(m.gone) }) // ends serve's own goroutine
			}
			if tt.gone {
				close(m.gone)
			}
			signals := make(chan os.Signal, 2)
			for range tt.signals {
				signals <- syscall.SIGTERM
			}
			done := make(chan struct{})
			go func() {
				serve(context.Background(), m, signals, tt.times, slog.New(slog.DiscardHandler))
				close(done)
			}()
			select {
			case <-done:
			case <-time.After(10 * time.Second):
				t.Fatal("serve does not end")
			}
			attempts, lazy := m.lazily()
			if lazy != tt.lazy {
				t.Errorf("%d attempts, the last lazy: %v, want %v", attempts, lazy, tt.lazy)
			}
			if tt.gone && attempts > 0 {
				t.Errorf("%d attempts to unmount what is gone", attempts)
			}
		})
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	m := &fakeMount{gone: make(chan struct{})}
	serve(ctx, m, make(chan os.Signal), defaultStop, slog.New(slog.DiscardHandler))
	if attempts, lazy := m.lazily(); attempts != 1 || lazy {
		t.Errorf("%d attempts, lazy %v; want one that is not", attempts, lazy)
	}
}
