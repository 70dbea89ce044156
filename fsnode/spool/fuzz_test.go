package spool

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzBuf compares a Spool with plain byte slices under the same operations:
// contents, sizes, refusals and the sum of all sizes agree after each step.
func FuzzBuf(f *testing.F) {
	for seed := range 40 {
		rnd := rand.New(rand.NewPCG(7, uint64(seed)))
		ops := make([]byte, 5*200)
		for i := range ops {
			ops[i] = byte(rnd.Uint32())
		}
		f.Add(ops)
	}
	base := f.TempDir()
	f.Fuzz(func(t *testing.T, ops []byte) {
		dir, err := os.MkdirTemp(base, "")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		s, err := Open(filepath.Join(dir, "spool"), Limits{File: 160 << 10, Total: 320 << 10, Count: 4})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		m := model{t: t, s: s}
		for ; len(ops) >= 5; ops = ops[5:] {
			m.step(ops[0], ops[1], int(ops[2])<<8|int(ops[3]), int(ops[4]))
		}
	})
}

type model struct {
	t    *testing.T
	s    *Spool
	bufs []*Buf
	want [][]byte
}

func (m *model) total() (sum int64) {
	for _, w := range m.want {
		sum += int64(len(w))
	}
	return sum
}

// resize is what a size of n should do to buf i: the content, or the refusal.
func (m *model) resize(i, n int) error {
	switch {
	case n > 160<<10:
		return ErrTooLarge
	case n > len(m.want[i]) && m.total()+int64(n-len(m.want[i])) > 320<<10:
		return ErrNoSpace
	case n > len(m.want[i]):
		m.want[i] = append(m.want[i], make([]byte, n-len(m.want[i]))...)
	}
	return nil
}

func (m *model) step(op, which byte, a, b int) {
	if len(m.bufs) == 0 || op%8 == 0 {
		buf, err := m.s.Create("b")
		if (err != nil) != (len(m.bufs) >= 4) {
			m.t.Fatalf("Create with %d live: %v", len(m.bufs), err)
		}
		if err == nil {
			m.bufs, m.want = append(m.bufs, buf), append(m.want, nil)
		}
		return
	}
	i := int(which) % len(m.bufs)
	buf := m.bufs[i]
	switch op % 8 {
	case 1:
		n := a * 3
		want := m.resize(i, n)
		if want == nil {
			m.want[i] = m.want[i][:n]
		}
		if err := buf.Truncate(int64(n)); !errors.Is(err, want) {
			m.t.Fatalf("Truncate(%d) = %v, want %v", n, err, want)
		}
	case 2:
		if err := buf.Persist(); err != nil {
			m.t.Fatal(err)
		}
	case 3:
		if op >= 128 {
			buf.Discard()
		} else if kept, err := buf.Fail("x"); err != nil {
			m.t.Fatal(err)
		} else if data, err := os.ReadFile(kept); err != nil || !bytes.Equal(data, m.want[i]) {
			m.t.Fatalf("kept %d bytes, want %d: %v", len(data), len(m.want[i]), err)
		}
		m.bufs = append(m.bufs[:i], m.bufs[i+1:]...)
		m.want = append(m.want[:i], m.want[i+1:]...)
	default:
		m.write(i, buf, a*2, b*300+1)
	}
	m.check()
}

func (m *model) write(i int, buf *Buf, off, n int) {
	data := bytes.Repeat([]byte{byte(n)}, n)
	want := m.resize(i, off+n)
	if want == nil {
		copy(m.want[i][off:], data)
	}
	got, err := buf.WriteAt(data, int64(off))
	if !errors.Is(err, want) || (got == n) != (want == nil) {
		m.t.Fatalf("WriteAt(%d, %d) = %d, %v, want %v", n, off, got, err, want)
	}
}

func (m *model) check() {
	if used, n := m.s.Used(); used != m.total() || n != len(m.bufs) {
		m.t.Fatalf("Used() = %d, %d, want %d, %d", used, n, m.total(), len(m.bufs))
	}
	for i, b := range m.bufs {
		got, err := b.Bytes()
		if err != nil || !bytes.Equal(got, m.want[i]) {
			m.t.Fatalf("buf %d: %d bytes, want %d: %v", i, len(got), len(m.want[i]), err)
		}
	}
}

func FuzzSanitise(f *testing.F) {
	for _, s := range []string{"", "..", "-rf", "a/b", "\x00\n", "Ünïcode~1", strings.Repeat("é", 100), "\xff", "a b$c", "日本語"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, hint string) {
		got := sanitise(hint)
		if got == "" || len(got) > hintMax || strings.ContainsAny(got, "/\x00\n $*'\"\\") || got[0] == '.' || got[0] == '-' || !utf8.ValidString(got) {
			t.Errorf("sanitise(%q) = %q", hint, got)
		}
		if again := sanitise(got); again != got {
			t.Errorf("sanitise is not idempotent: %q, %q, %q", hint, got, again)
		}
		if back := hintOf(liveName(7, hint)); back != got {
			t.Errorf("hintOf(liveName(%q)) = %q, want %q", hint, back, got)
		}
	})
}
