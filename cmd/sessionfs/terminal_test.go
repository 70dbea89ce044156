package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
)

func TestHarmless(t *testing.T) {
	for in, want := range map[string]string{
		"a\tb\nc": "a\tb\nc", "\x1b[2J": "\ufffd[2J", "日本\r\n": "日本\ufffd\n", "\u009b31m": "\ufffd31m", "\x00": "\ufffd",
		"a\u202eb\u202a\u2066c\u2069": "a\ufffdb\ufffd\ufffdc\ufffd",
	} {
		if got := string(harmless([]byte(in))); got != want {
			t.Errorf("harmless(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"a\tb\nc": "a b c", "\x1b[2J": " [2J", "a\u2028b": "a b", "\u202ea\u2069": " a ", "日本": "日本",
	} {
		if got := oneLine(in); got != want {
			t.Errorf("oneLine(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := &progress{w: &out, label: "check", every: barRefresh, drawn: time.Now()}
	p.step(1, 4)
	if out.Len() > 0 {
		t.Errorf("short work is drawn: %q", out.String())
	}
	p.drawn = time.Now().Add(-time.Second)
	p.step(2, 4)
	if got, want := out.String(), "\rcheck ["+strings.Repeat("#", 15)+strings.Repeat(".", 15)+"] 2/4"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	p.end()
	p.end()
	if !strings.HasSuffix(out.String(), "2/4\r\x1b[K") {
		t.Errorf("the bar stays: %q", out.String())
	}
	a := &app{stderr: &out}
	silentBar := a.progress("x")
	silentBar.drawn = time.Time{}
	before := out.Len()
	silentBar.step(1, 1)
	if out.Len() != before {
		t.Error("a bar is drawn where no terminal is")
	}
}

func TestNobodyIsAskedWithoutATerminal(t *testing.T) {
	a := &app{stdin: strings.NewReader("y\n"), stderr: io.Discard}
	if yes, asked := a.confirm("Really?"); yes || asked {
		t.Errorf("confirm = %v, %v", yes, asked)
	}
}

func TestPagedIsPlainWithoutATerminal(t *testing.T) {
	var out bytes.Buffer
	a := &app{stdout: &out, pager: "exit 1"}
	want := errors.New("x")
	err := a.paged(func(w io.Writer) error {
		io.WriteString(w, "text")
		return want
	})
	if !errors.Is(err, want) || out.String() != "text" {
		t.Errorf("paged = %v, %q", err, out.String())
	}
}

// writes counts the calls of Write.
type writes int

func (n *writes) Write(b []byte) (int, error) {
	*n++
	return len(b), nil
}

// TestTablesAreWrittenInLargePieces: one call for each cell took as long as
// making the list did.
func TestTablesAreWrittenInLargePieces(t *testing.T) {
	lines := make([][]string, 1000)
	for i := range lines {
		lines[i] = []string{"id", "a longer text", "x"}
	}
	for _, colour := range []string{"never", "always"} {
		var out writes
		a := &app{stdout: &out, color: colour}
		err := a.paged(func(w io.Writer) error { return a.markedTable(w, []string{"ID", "TEXT", "X"}, lines) })
		if err != nil || out > 2 {
			t.Errorf("colours %s: %d writes, %v", colour, out, err)
		}
	}
}

func TestMarkedTable(t *testing.T) {
	var out bytes.Buffer
	a := &app{stdout: &out, color: "always"}
	if err := a.markedTable(&out, []string{"  ID", "T"}, [][]string{{"! a", "x"}, {"  b", "y"}}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "  ID  T\n\x1b[31m! a   x\x1b[0m\n  b   y\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestJoinedErrorsHaveALineEach(t *testing.T) {
	err := errors.Join(
		&store.Error{Code: store.Locked, Op: "migrate", Session: "a", Err: errors.New("busy"), Hint: "wait"},
		&store.Error{Code: store.Conflict, Op: "migrate", Session: "b", Err: errors.New("taken"), Hint: "look"},
	)
	want := "sessionfs: migrate: session a: busy [locked]\nhint: wait\nsessionfs: migrate: session b: taken [conflict]\nhint: look\n"
	if got := errorText(err); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := exitStatus(err); got != exitBusy {
		t.Errorf("status %d, want the first one's", got)
	}
}

func TestCheckStatus(t *testing.T) {
	for _, tt := range []struct {
		severities []store.Severity
		want       int
	}{
		{nil, exitOK}, {[]store.Severity{store.Note}, exitOK},
		{[]store.Severity{store.Note, store.Warning}, exitFailure},
		{[]store.Severity{store.Warning, store.Fault, store.Note}, exitCorrupt},
	} {
		var left []store.Finding
		for _, s := range tt.severities {
			left = append(left, store.Finding{Severity: s})
		}
		if got := checkStatus(left); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.severities, got, tt.want)
		}
	}
}
