package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/store"
)

const (
	// flushEvery is how often the reply is written while it grows: each time is
	// a durable write of the whole message.
	flushEvery = 200 * time.Millisecond
	// pipeDelay is how long the output is awaited after the program's end, when
	// what it started still holds it open.
	pipeDelay = 2 * time.Second
	// graceTerminal is how long a program that shares our terminal has to end
	// after Ctrl-C, which the kernel sent to it as well.
	graceTerminal = time.Second
)

// branchInput is what the program reads: the branch that ends in a node.
func branchInput(sn *store.Snapshot, head, form string) (io.Reader, error) {
	if form == "none" {
		return nil, nil // /dev/null
	}
	var text []byte
	var err error
	if form == "jsonl" {
		if head != "" {
			text, err = sn.JSONLines(head)
		}
	} else {
		text, err = sn.TranscriptOf(head)
	}
	return bytes.NewReader(text), err
}

// reply collects what a program prints and writes it to the reply's node as it
// comes. It is the program's standard output.
type reply struct {
	set  func(text string) error
	copy io.Writer // also gets the output; nil for none

	mu     sync.Mutex
	text   []byte
	shown  int  // bytes that the node has
	excess bool // more than a message may hold
}

func newReply(set func(string) error) *reply { return &reply{set: set} }

var errExcess = errors.New("the program printed more than a message may hold")

// Write takes output. Past the limit it fails, which ends the program.
func (r *reply) Write(p []byte) (int, error) {
	r.mu.Lock()
	if len(r.text)+len(p) > maxMessage {
		r.excess = true
		r.mu.Unlock()
		return 0, errExcess
	}
	r.text = append(r.text, p...)
	r.mu.Unlock()
	if r.copy != nil {
		if _, err := r.copy.Write(p); err != nil {
			r.copy = nil // nobody looks any more; the message matters
		}
	}
	return len(p), nil
}

// flush writes what is new to the node, whole characters only.
func (r *reply) flush() error {
	r.mu.Lock()
	text := wholeRunes(r.text)
	grown := len(text) > r.shown
	out := string(text)
	r.shown = len(text)
	r.mu.Unlock()
	if !grown {
		return nil
	}
	return r.set(out)
}

// final is the whole text without its last newline.
func (r *reply) final() (text string, excess bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.TrimSuffix(string(r.text), "\n"), r.excess
}

// wholeRunes leaves out the beginning of a character at the end of a text.
func wholeRunes(b []byte) []byte {
	for cut := 1; cut < utf8.UTFMax && cut <= len(b); cut++ {
		if first := b[len(b)-cut]; utf8.RuneStart(first) {
			if !utf8.FullRune(b[len(b)-cut:]) {
				return b[:len(b)-cut]
			}
			break
		}
	}
	return b
}

// child is the program of one turn.
type child struct {
	cmd   *exec.Cmd
	reply *reply
	warn  func(format string, args ...any)
}

// ending is how a turn ended.
type ending struct {
	outcome store.Outcome
	exit    int   // the exit status that the command passes on
	err     error // a failure of our own
}

// turnSignals catches the signals that are passed on to the program of a turn.
func turnSignals() (signals chan os.Signal, stop func()) {
	signals = make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	// A reader of our output that goes away must not end us: the runtime does so
	// unless somebody wants the signal. Ignored, it would be ignored by the
	// program as well.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	return signals, func() {
		signal.Stop(signals)
		signal.Stop(pipe)
	}
}

// run starts the program and waits for its end. Signals that we get are the
// program's.
func (c *child) run(ctx context.Context, signals <-chan os.Signal) ending {
	if err := c.cmd.Start(); err != nil {
		text := ""
		return ending{
			outcome: store.Outcome{Status: "error", Text: &text, Error: "the program could not be started", ErrorType: "start"},
			err:     failf(exitFailure, "", "run: %w", err),
		}
	}
	done := make(chan error, 1)
	go func() { done <- c.cmd.Wait() }()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		c.showReply(stop)
	}()
	got, err := c.attend(ctx, signals, done)
	close(stop)
	<-stopped
	return c.ending(got, err)
}

// showReply writes the growing reply until stop is closed. A write may take
// long, of a long text or while another process holds the session's lock; it is
// followed by a pause that keeps the disk free most of the time.
func (c *child) showReply(stop <-chan struct{}) {
	pause, failing := flushEvery, false
	for {
		select {
		case <-stop:
			return
		case <-time.After(pause):
		}
		began := time.Now()
		// What could not be written now is written with the next text.
		err := c.reply.flush()
		if err != nil && !failing {
			failing = true
			c.warn("run: the reply cannot be written at the moment: %v", err)
		}
		pause = max(flushEvery, 4*time.Since(began))
	}
}

// attend passes signals on until the program has ended. It returns the first
// signal, nil when there was none.
func (c *child) attend(ctx context.Context, signals <-chan os.Signal, done <-chan error) (first os.Signal, err error) {
	gone := ctx.Done()
	var late <-chan time.Time
	for {
		select {
		case err := <-done:
			return first, err
		case s := <-signals:
			if first == nil {
				first = s
			}
			if s == syscall.SIGINT && c.cmd.SysProcAttr == nil {
				late = time.After(graceTerminal) // the terminal sent it to both
				continue
			}
			c.signal(s)
		case <-late:
			c.signal(syscall.SIGTERM)
		case <-gone:
			gone = nil
			c.signal(syscall.SIGTERM)
		}
	}
}

// signal sends a signal to the program: to its whole group when it has one.
func (c *child) signal(s os.Signal) {
	number, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	pid := c.cmd.Process.Pid
	if c.cmd.SysProcAttr != nil {
		pid = -pid
	}
	_ = syscall.Kill(pid, number) // it may have ended
}

// ending says how the turn ended, after a signal that we got (nil for none).
func (c *child) ending(got os.Signal, err error) ending {
	text, excess := c.reply.final()
	e := ending{outcome: store.Outcome{Status: "completed", Text: &text}}
	state := c.cmd.ProcessState
	how := ""
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.exit, how = 128+int(ws.Signal()), fmt.Sprintf("ended by signal %d", int(ws.Signal()))
	} else if e.exit = state.ExitCode(); e.exit != 0 {
		how = fmt.Sprintf("exit status %d", e.exit)
	}
	var exit *exec.ExitError
	switch {
	case excess:
		e.outcome.Status, e.outcome.Error, e.outcome.ErrorType = "error", errExcess.Error(), "too_large"
		e.err = &store.Error{Code: store.TooLarge, Op: "run", Err: errExcess}
	case got == syscall.SIGINT:
		e.outcome.Status = "cancelled"
	case got != nil:
		e.outcome.Status, e.outcome.Error, e.outcome.ErrorType = "interrupted", "the turn was interrupted", "signal"
	case how != "":
		e.outcome.Status, e.outcome.Error, e.outcome.ErrorType = "error", how, "exit"
	case err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay):
		e.outcome.Status, e.outcome.Error, e.outcome.ErrorType = "error", "the output could not be read", "output"
		e.err = failf(exitFailure, "", "run: %w", err)
	}
	return e
}

// foreground reports whether this process runs in the foreground of a terminal,
// where Ctrl-C goes to the program as well.
func foreground() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
