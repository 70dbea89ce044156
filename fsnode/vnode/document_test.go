package vnode

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// TestDocGoesOn: a text that may still become whole is kept and applied again
// with what follows; any other refusal ends the handle.
func TestDocGoesOn(t *testing.T) {
	ctx := context.Background()
	d := &fakeDraft{err: errBad}
	w, err := Doc{
		Begin:      func(context.Context) (Draft, error) { return d, nil },
		Unfinished: func(err error) bool { return errors.Is(err, errBad) },
	}.Writer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	run(t, w, false, []step{{"ab", 0, nil}, flush(errBad), flush(nil)})
	d.err = nil
	run(t, w, false, []step{{"cd", 2, nil}, flush(nil)})
	if !slices.Equal(d.applied, []string{"abcd"}) || !slices.Equal(d.abandoned, []string{"ab"}) {
		t.Errorf("applied %q, kept %q", d.applied, d.abandoned)
	}
	d.err = Stale
	run(t, w, false, []step{{"ef", 4, nil}, flush(Stale), {"gh", 6, Stale}, flush(nil)})
	if !slices.Equal(d.applied, []string{"abcd"}) || !slices.Equal(d.abandoned, []string{"ab", "abcdef"}) {
		t.Errorf("applied %q, kept %q", d.applied, d.abandoned)
	}
	w.Release(ctx)
	if d.closed != 1 {
		t.Errorf("closed %d times", d.closed)
	}
}

// TestDocInPlace: a handle reads the file's text until it has written, and
// then what it has written.
func TestDocInPlace(t *testing.T) {
	ctx := context.Background()
	for _, inPlace := range []bool{true, false} {
		d := &fakeDraft{}
		w, err := Doc{Begin: func(context.Context) (Draft, error) { return d, nil }, InPlace: inPlace}.Writer(ctx)
		if err != nil {
			t.Fatal(err)
		}
		r, ok := w.(ownReader)
		if !ok {
			t.Fatal("a document's handle reads nothing of its own")
		}
		b := make([]byte, 10)
		if _, own, err := r.ReadAt(ctx, b, 0); own || err != nil {
			t.Errorf("before a write: %v %v", own, err)
		}
		run(t, w, false, []step{{"abc", 0, nil}})
		n, own, err := r.ReadAt(ctx, b, 1)
		if own != inPlace || err != nil || own && string(b[:n]) != "bc" {
			t.Errorf("after a write: %q %v %v", b[:n], own, err)
		}
		if got := w.(whole).InPlace(); got != inPlace {
			t.Errorf("InPlace is %v", got)
		}
	}
}
