package vnode

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var errBad = errors.New("bad value")

// step is one call of a writer: a write at an offset, or with off < 0 a flush.
type step struct {
	data string
	off  int64
	err  error
}

func flush(err error) step { return step{off: -1, err: err} }

func run(t *testing.T, w Writer, appending bool, steps []step) {
	t.Helper()
	for i, s := range steps {
		var err error
		if s.off < 0 {
			err = w.Flush(context.Background())
		} else {
			err = w.Write(context.Background(), []byte(s.data), s.off, appending)
		}
		if !errors.Is(err, s.err) || (err == nil) != (s.err == nil) {
			t.Errorf("step %d %+v: %v", i, s, err)
		}
	}
}

func TestValue(t *testing.T) {
	for _, c := range []struct {
		name      string
		appending bool
		steps     []step
		want      []string
	}{
		{"a line", false, []step{{"abc\n", 0, nil}, flush(nil)}, []string{"abc"}},
		{"two pieces", false, []step{{"ab", 0, nil}, {"c\n", 2, nil}}, []string{"abc"}},
		{"held until flush", false, []step{{"abc", 0, nil}, flush(nil), flush(nil)}, []string{"abc"}},
		{"legal at once", false, []step{{"legal", 0, nil}, flush(nil)}, []string{"legal"}},
		{"legal, then its newline", false, []step{{"legal", 0, nil}, {"\n", 5, nil}, flush(nil)}, []string{"legal"}},
		{"closed in between", false, []step{{"ab", 0, nil}, flush(nil), {"c", 2, nil}, flush(nil), {"\n", 3, nil}, flush(nil)}, []string{"ab", "abc"}},
		{"legal, then longer", false, []step{{"legal", 0, nil}, {"er\n", 5, nil}}, []string{"legal", "legaler"}},
		{"starts again", false, []step{{"ab", 0, nil}, {"xy\n", 0, nil}}, []string{"xy"}},
		{"two lines one after the other", false, []step{{"a\n", 0, nil}, {"b\n", 2, OneLine}, {"b", 2, OneLine}, flush(nil)}, []string{"a"}},
		{"two lines appended", true, []step{{"a\n", 13, nil}, {"b\n", 13, OneLine}}, []string{"a"}},
		{"another one from the start", false, []step{{"a\n", 0, nil}, {"b\n", 2, OneLine}, {"c\n", 0, nil}}, []string{"a", "c"}},
		{"a hole", false, []step{{"a", 0, nil}, {"b\n", 5, BadOffset}, flush(nil)}, nil},
		{"begins in the middle", false, []step{{"b\n", 5, BadOffset}, flush(nil)}, nil},
		{"append ignores offsets", true, []step{{"a", 13, nil}, {"b\n", 13, nil}}, []string{"ab"}},
		{"refused in the write", false, []step{{"bad\n", 0, errBad}, flush(nil)}, nil},
		{"refused at flush", false, []step{{"bad", 0, nil}, flush(errBad), flush(nil)}, nil},
		{"after a refusal a new value", false, []step{{"bad\n", 0, errBad}, {"good\n", 0, nil}}, []string{"good"}},
		{"empty line", false, []step{{"\n", 0, nil}}, []string{""}},
		{"nothing written", false, []step{flush(nil)}, nil},
		{"too large", false, []step{{strings.Repeat("x", 21), 0, TooLarge}, flush(nil)}, nil},
		{"too large in pieces", false, []step{{strings.Repeat("x", 20), 0, nil}, {"y", 20, TooLarge}, flush(nil)}, nil},
		{"one newline is taken off", false, []step{{"a\n\n", 0, nil}}, []string{"a\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			w, _ := Value{Max: 20, Legal: func(s string) bool { return s == "legal" }, Set: func(_ context.Context, s string) error {
				if s == "bad" {
					return errBad
				}
				got = append(got, s)
				return nil
			}}.Writer(context.Background())
			run(t, w, c.appending, c.steps)
			if !slices.Equal(got, c.want) {
				t.Errorf("applied %q, want %q", got, c.want)
			}
		})
	}
}

func TestValueTruncate(t *testing.T) {
	var got []string
	w, _ := Value{Max: 20, Set: func(_ context.Context, s string) error { got = append(got, s); return nil }}.Writer(context.Background())
	run(t, w, false, []step{{"abc", 0, nil}})
	if err := w.Truncate(0); err != nil {
		t.Error(err)
	}
	if err := w.Truncate(2); !errors.Is(err, BadSize) {
		t.Errorf("truncate to 2: %v", err)
	}
	run(t, w, false, []step{flush(nil)})
	if len(got) != 0 {
		t.Errorf("truncated, and applied %q", got)
	}
}

type fakeRunner struct {
	lines  []string
	closed int
}

func (r *fakeRunner) Run(_ context.Context, line string) error {
	if line == "bad" {
		return errBad
	}
	r.lines = append(r.lines, line)
	return nil
}
func (r *fakeRunner) Close(context.Context) { r.closed++ }

func TestLines(t *testing.T) {
	for _, c := range []struct {
		name      string
		appending bool
		steps     []step
		want      []string
	}{
		{"one", false, []step{{"go\n", 0, nil}, flush(nil)}, []string{"go"}},
		{"two in a write", false, []step{{"a\nb\n", 0, nil}}, []string{"a", "b"}},
		{"over two writes", false, []step{{"a\nb", 0, nil}, {"c\n", 3, nil}}, []string{"a", "bc"}},
		{"unfinished, at flush", false, []step{{"a", 0, nil}, flush(nil), flush(nil)}, []string{"a"}},
		{"the rest is dropped after an error", false, []step{{"a\nbad\nc\n", 0, errBad}, flush(nil)}, []string{"a"}},
		{"blank lines", false, []step{{"\n  \n a \n", 0, nil}}, []string{"a"}},
		{"long line", false, []step{{strings.Repeat("x", 31) + "\n", 0, TooLarge}}, nil},
		{"long unfinished line", false, []step{{strings.Repeat("x", 30), 0, nil}, {"x", 30, TooLarge}, flush(nil)}, nil},
		{"the rest of a long line is no line", false, []step{{strings.Repeat("x", 30), 0, nil}, {"yy\n", 30, TooLarge}, {"yy\n", 30, TooLarge}, {"a\n", 30, nil}}, []string{"a"}},
		{"a hole", false, []step{{"a", 0, nil}, {"b\n", 9, BadOffset}, flush(nil)}, nil},
		{"append", true, []step{{"a\n", 100, nil}, {"b\n", 100, nil}}, []string{"a", "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &fakeRunner{}
			w, _ := Lines{Max: 30, Begin: func(context.Context) (Runner, error) { return r, nil }}.Writer(context.Background())
			run(t, w, c.appending, c.steps)
			w.Release(context.Background())
			if !slices.Equal(r.lines, c.want) || r.closed != 1 {
				t.Errorf("ran %q, want %q; closed %d times", r.lines, c.want, r.closed)
			}
		})
	}
}

type fakeDraft struct {
	bytes.Buffer
	applied   []string
	abandoned []string
	closed    int
	err       error
}

// WriteAt takes ten bytes and no more.
func (d *fakeDraft) WriteAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > 10 {
		return 0, TooLarge
	}
	b := append([]byte(nil), d.Bytes()...)
	for int64(len(b)) < off+int64(len(p)) {
		b = append(b, 0)
	}
	copy(b[off:], p)
	d.Reset()
	return d.Write(b)
}

func (d *fakeDraft) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(d.Bytes()).ReadAt(p, off)
}
func (d *fakeDraft) Truncate(n int64) error { d.Buffer.Truncate(int(n)); return nil }
func (d *fakeDraft) Size() int64            { return int64(d.Len()) }
func (d *fakeDraft) Apply(context.Context) error {
	if d.err != nil {
		return d.err
	}
	d.applied = append(d.applied, d.String())
	return nil
}
func (d *fakeDraft) Abandon(context.Context, error) { d.abandoned = append(d.abandoned, d.String()) }
func (d *fakeDraft) Close()                         { d.closed++ }

func TestDoc(t *testing.T) {
	for _, c := range []struct {
		name               string
		appending, killed  bool
		err                error
		steps              []step
		applied, abandoned []string
	}{
		{name: "whole at flush", steps: []step{{"ab", 0, nil}, {"cd", 2, nil}, flush(nil), flush(nil)}, applied: []string{"abcd"}},
		{name: "a later flush completes", steps: []step{{"ab", 0, nil}, flush(nil), {"cd", 2, nil}, flush(nil)}, applied: []string{"ab", "abcd"}},
		{name: "nothing written", steps: []step{flush(nil)}},
		{name: "append ignores offsets", appending: true, steps: []step{{"ab", 7, nil}, {"cd", 0, nil}, flush(nil)}, applied: []string{"abcd"}},
		{name: "refused, and takes no more", err: errBad, steps: []step{{"ab", 0, nil}, flush(errBad), {"cd", 2, errBad}, flush(nil)}, abandoned: []string{"ab"}},
		{name: "too large", steps: []step{{"abcdefgh", 0, nil}, {"ijkl", 8, TooLarge}, {"x", 8, TooLarge}, flush(TooLarge), flush(nil)}, abandoned: []string{"abcdefgh"}},
		{name: "the writer dies", killed: true, steps: []step{{"ab", 0, nil}, flush(Killed)}, abandoned: []string{"ab"}},
		{name: "never flushed", steps: []step{{"ab", 0, nil}}, abandoned: []string{"ab"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &fakeDraft{err: c.err}
			y := newToy(t, func(y *toy) Table {
				return Table{y.file("doc", "", Doc{
					Begin:  func(context.Context) (Draft, error) { return d, nil },
					Killed: func(uint32) bool { return c.killed },
				}.Writer)}
			})
			e := y.must(1, "doc")
			flags := uint32(syscall.O_WRONLY)
			if c.appending {
				flags |= syscall.O_APPEND
			}
			o, errno := y.open(e.NodeId, flags)
			if errno != 0 {
				t.Fatal(errno)
			}
			for i, s := range c.steps {
				got := syscall.Errno(0)
				if s.off < 0 {
					got = y.flush(e.NodeId, o.Fh)
				} else {
					got = y.write(e.NodeId, o.Fh, s.data, uint64(s.off))
				}
				if (got != 0) != (s.err != nil) {
					t.Errorf("step %d %+v: %v", i, s, got)
				}
			}
			y.release(e.NodeId, o.Fh)
			if !slices.Equal(d.applied, c.applied) || !slices.Equal(d.abandoned, c.abandoned) || d.closed != 1 {
				t.Errorf("applied %q, abandoned %q, closed %d; want %q, %q, 1", d.applied, d.abandoned, d.closed, c.applied, c.abandoned)
			}
		})
	}
}

func TestDyingBySignal(t *testing.T) {
	if dyingBySignal(0) || dyingBySignal(uint32(syscall.Getpid())) {
		t.Error("a living process counts as dying")
	}
}
