package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestWholeRunes(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""}, {"abc", "abc"}, {"日本", "日本"}, {"日\xe6", "日"}, {"日\xe6\x9c", "日"},
		{"a\xf0\x9f\x98", "a"}, {"a\x80", "a\x80"}, {"\xff\xff\xff\xff", "\xff\xff\xff\xff"},
	} {
		if got := string(wholeRunes([]byte(tt.in))); got != tt.want {
			t.Errorf("wholeRunes(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

// lostReader is a standard output that fails.
type lostReader struct{}

func (lostReader) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestReply(t *testing.T) {
	var sets []string
	r := newReply(func(text string) error { sets = append(sets, text); return nil })
	r.copy = lostReader{}
	for _, part := range []string{"a", "\xe6\x97", "\xa5\n"} {
		if n, err := r.Write([]byte(part)); err != nil || n != len(part) {
			t.Fatalf("write: %d, %v", n, err)
		}
		if err := r.flush(); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(sets, "|"); got != "a|a日\n" {
		t.Errorf("written: %q", got)
	}
	if text, excess := r.final(); text != "a日" || excess {
		t.Errorf("final = %q, %v", text, excess)
	}
	if _, err := r.Write(make([]byte, maxMessage)); !errors.Is(err, errExcess) {
		t.Errorf("past the limit: %v", err)
	}
}

// testChild is a child that runs a shell script.
func testChild(script string) *child {
	c := &child{cmd: exec.Command("sh", "-c", script), reply: newReply(func(string) error { return nil }), warn: func(string, ...any) {}}
	c.cmd.Stdout = c.reply
	c.cmd.WaitDelay = 100 * time.Millisecond
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c
}

func TestChildEndings(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		send         os.Signal
		status, text string
		exit         int
	}{
		{"success", "printf 'a\nb\n'", nil, "completed", "a\nb", 0},
		{"no output", "true", nil, "completed", "", 0},
		{"failure keeps the output", "echo half; exit 3", nil, "error", "half", 3},
		{"a signal of its own", "kill -KILL $$", nil, "error", "", 137},
		{"Ctrl-C", "echo go; sleep 20", syscall.SIGINT, "cancelled", "go", 130},
		{"Ctrl-C that is caught", "trap 'echo bye; exit 0' INT; echo go; while :; do sleep 0.05; done", syscall.SIGINT, "cancelled", "go\nbye", 0},
		{"TERM", "echo go; sleep 20", syscall.SIGTERM, "interrupted", "go", 143},
		{"a daemon that holds the output", "echo go; sleep 5 &", nil, "completed", "go", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			signals := make(chan os.Signal, 1)
			c := testChild(tt.script)
			if tt.send != nil {
				go func() {
					for text, _ := c.reply.final(); text == ""; text, _ = c.reply.final() {
						time.Sleep(5 * time.Millisecond)
					}
					signals <- tt.send
				}()
			}
			e := c.run(t.Context(), signals)
			if e.outcome.Status != tt.status || *e.outcome.Text != tt.text || e.exit != tt.exit || e.err != nil {
				t.Errorf("got %s, %q, exit %d, %v; want %s, %q, %d", e.outcome.Status, *e.outcome.Text, e.exit, e.err, tt.status, tt.text, tt.exit)
			}
		})
	}
}

func TestChildThatCannotStart(t *testing.T) {
	c := testChild("")
	c.cmd.Path = "/nonexistent/program"
	if e := c.run(t.Context(), nil); e.err == nil || e.outcome.Status != "error" {
		t.Errorf("got %+v", e)
	}
}
