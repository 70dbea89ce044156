package vnode

import (
	"context"
	"strings"
)

// Value is the writing side of a small control file. A write at offset 0
// starts a value and a write at the end of what the handle wrote continues it;
// the value so far is applied before write(2) returns when it ends in a
// newline or is legal as it stands, so that echo sees the errno. What continues
// a value that a newline has ended is refused: the last of several lines would
// win, or the first. An unfinished text is applied at flush, unless its writer
// is dying by a signal. Truncation by itself changes nothing, and a flush
// without a write does nothing.
type Value struct {
	// Set applies a value; one final newline has been taken off.
	Set func(ctx context.Context, text string) error
	// Legal reports whether a text without a newline is a whole value, as an
	// id is and a part of an id is not. Nil: none is.
	Legal func(text string) bool
	// Max bounds a value in bytes.
	Max int
}

// Writer begins a handle's writing.
func (v Value) Writer(context.Context) (Writer, error) { return &valueWriter{v: v}, nil }

type valueWriter struct {
	v       Value
	buf     []byte // the value so far
	total   int64  // where the next write continues
	held    bool   // buf has not been applied
	ended   bool   // a newline has ended the value
	applied string // what was applied without its newline
}

func (w *valueWriter) Write(ctx context.Context, data []byte, off int64, appending bool) error {
	if appending {
		off = w.total
	}
	if off == 0 {
		w.drop()
		w.total, w.ended = 0, false
	}
	if off != w.total {
		w.drop()
		return BadOffset
	}
	if w.ended && len(data) > 0 {
		return OneLine
	}
	if len(w.buf)+len(data) > w.v.Max {
		w.drop()
		return TooLarge
	}
	w.buf = append(w.buf, data...)
	if err := w.apply(ctx); err != nil {
		w.drop()
		return err
	}
	w.total += int64(len(data))
	return nil
}

// apply applies the value if it is complete.
func (w *valueWriter) apply(ctx context.Context) error {
	text, ended := strings.CutSuffix(string(w.buf), "\n")
	switch {
	case ended:
		done := w.applied != "" && w.applied == text
		w.drop()
		if !done { // or the newline of a value that was legal without it
			if err := w.v.Set(ctx, text); err != nil {
				return err
			}
		}
		w.ended = true
		return nil
	case len(text) > 0 && w.v.Legal != nil && w.v.Legal(text):
		w.held = false
		if err := w.v.Set(ctx, text); err != nil {
			return err
		}
		w.applied = text
		return nil
	}
	w.held = len(w.buf) > 0
	return nil
}

// drop forgets the value so far; the next write starts one.
func (w *valueWriter) drop() { w.buf, w.held, w.applied = nil, false, "" }

func (w *valueWriter) Flush(ctx context.Context) error {
	if !w.held {
		return nil
	}
	if killed(ctx) {
		w.drop()
		return Killed
	}
	text := string(w.buf)
	w.held = false
	if err := w.v.Set(ctx, text); err != nil {
		w.drop()
		return err
	}
	w.applied = text // what comes after it continues it
	return nil
}

func (w *valueWriter) Sync(ctx context.Context) error { return w.Flush(ctx) }

// Truncate to nothing forgets what is held, and one to what the handle wrote
// ends what it wrote; any other size means nothing.
func (w *valueWriter) Truncate(size uint64) error {
	if size != 0 && size == uint64(w.total) {
		return nil
	}
	if size != 0 {
		return BadSize
	}
	w.drop()
	w.total, w.ended = 0, false
	return nil
}

func (w *valueWriter) Release(context.Context) {}
