package vnode

import (
	"bytes"
	"context"
	"strings"
)

// Lines is the writing side of a file that takes one command a line. A line
// is run before the write that ends it returns; an unfinished one at flush,
// unless its writer is dying by a signal.
// After a line that fails the rest of the same write is dropped.
type Lines struct {
	// Begin starts what belongs to one handle.
	Begin func(ctx context.Context) (Runner, error)
	// Max bounds a line in bytes.
	Max int
}

// Runner runs the lines of one handle.
type Runner interface {
	Run(ctx context.Context, line string) error
	// Close is called when the handle ends.
	Close(ctx context.Context)
}

// Writer begins a handle's writing.
func (l Lines) Writer(ctx context.Context) (Writer, error) {
	r, err := l.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &lineWriter{max: l.Max, r: r}, nil
}

type lineWriter struct {
	max   int
	r     Runner
	buf   []byte // an unfinished line
	over  bool   // in a line that is too long, up to its newline
	total int64
}

func (w *lineWriter) Write(ctx context.Context, data []byte, off int64, appending bool) error {
	if appending {
		off = w.total
	}
	if off == 0 {
		w.buf, w.total, w.over = nil, 0, false
	}
	if off != w.total {
		w.buf = nil
		return BadOffset
	}
	if w.over {
		// The kernel cuts a long write and reports the pieces that went well:
		// the rest of the line comes again, and is no line of its own.
		w.over = !bytes.ContainsRune(data, '\n')
		return TooLarge
	}
	rest := append(w.buf, data...)
	w.buf = nil
	for {
		line, tail, ended := bytes.Cut(rest, []byte("\n"))
		if len(line) > w.max {
			w.over = true
			return TooLarge
		}
		if !ended {
			w.buf = bytes.Clone(line)
			break
		}
		if err := w.run(ctx, string(line)); err != nil {
			return err
		}
		rest = tail
	}
	w.total += int64(len(data))
	return nil
}

// run runs a line; an empty one is nothing.
func (w *lineWriter) run(ctx context.Context, line string) error {
	if line = strings.TrimSpace(line); line == "" {
		return nil
	}
	return w.r.Run(ctx, line)
}

func (w *lineWriter) Flush(ctx context.Context) error {
	line := string(w.buf)
	w.buf = nil
	if line != "" && killed(ctx) {
		return Killed
	}
	return w.run(ctx, line)
}

func (w *lineWriter) Sync(ctx context.Context) error { return w.Flush(ctx) }

func (w *lineWriter) Truncate(size uint64) error {
	if size != 0 {
		return BadSize
	}
	w.buf, w.total, w.over = nil, 0, false
	return nil
}

func (w *lineWriter) Release(ctx context.Context) { w.r.Close(ctx) }
