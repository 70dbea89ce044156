package main

import (
	"context"
	"log/slog"
	"os"
	"time"
)

// served is a mount as serve needs it; *fsnode.Mount is one.
type served interface {
	// Wait returns when the mount is gone, whoever took it away.
	Wait()
	// Unmount takes it away; a busy mount is refused unless lazy.
	Unmount(lazy bool) error
}

// stopTimes are the limits of an orderly stop.
type stopTimes struct {
	busy   time.Duration // how long a busy mount is asked again
	retry  time.Duration // time between two attempts
	linger time.Duration // how long to wait after a lazy detach
}

// defaultStop keeps the whole stop below 5 s, so that a session manager that
// sends TERM and then KILL never comes to the KILL.
var defaultStop = stopTimes{busy: 3 * time.Second, retry: 100 * time.Millisecond, linger: 500 * time.Millisecond}

// serve waits until the mount is gone: unmounted by somebody, or by us after
// a signal. A busy mount is asked again for a while and then detached lazily;
// a second signal detaches it at once.
func serve(ctx context.Context, m served, signals <-chan os.Signal, t stopTimes, log *slog.Logger) {
	gone := make(chan struct{})
	go func() {
		m.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return
	case <-ctx.Done():
	case s := <-signals:
		log.Info("stopping", "signal", s.String())
	}
	if stopBusy(m, gone, signals, t) {
		return
	}
	log.Warn("the mount is busy, detaching it lazily")
	if err := m.Unmount(true); err != nil {
		log.Error("the mount could not be detached", "err", err)
	}
	// A process that stands in the detached tree keeps the connection open,
	// and with it Wait; it ends with this process.
	select {
	case <-gone:
	case <-time.After(t.linger):
	}
}

// stopBusy asks for an ordinary unmount until it works, and then waits for the
// server's own end, which needs no detaching any more; false when the time is
// up before that, or a second signal came.
func stopBusy(m served, gone <-chan struct{}, signals <-chan os.Signal, t stopTimes) bool {
	deadline := time.After(t.busy)
	for {
		if err := m.Unmount(false); err == nil {
			select {
			case <-gone:
			case <-signals:
			case <-deadline:
			}
			return true
		}
		select {
		case <-gone:
			return true
		case <-signals:
			return false
		case <-deadline:
			return false
		case <-time.After(t.retry):
		}
	}
}
