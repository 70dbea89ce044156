package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/store"
)

func TestExitStatus(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want int
	}{
		{"plain", errors.New("x"), exitFailure},
		{"store code", &store.Error{Code: store.RunActive, Op: "set head"}, exitBusy},
		{"wrapped store code", fmt.Errorf("sample: %w", &store.Error{Code: store.NotFound}), exitNotFound},
		{"own", failf(exitMount, "", "mount: x"), exitMount},
		{"own beats cause", failf(exitUsage, "", "x: %w", fs.ErrPermission), exitUsage},
		{"permission", fmt.Errorf("open: %w", fs.ErrPermission), exitDenied},
		{"read-only disk", fmt.Errorf("open: %w", syscall.EROFS), exitDenied},
		{"full disk", fmt.Errorf("write: %w", syscall.ENOSPC), exitNoSpace},
		{"detached process", &printedError{status: exitMount, text: "sessionfs: x\n"}, exitMount},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := exitStatus(tt.err); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"code and its hint",
			&store.Error{Code: store.RunActive, Op: "set head", Session: "local_demo", Err: errors.New("a run is active")},
			"sessionfs: set head: session local_demo: a run is active [run_active]\nhint: wait for the run to end, or stop it, and try again\n"},
		{"the error's own hint",
			&store.Error{Code: store.Locked, Op: "append", Session: "s", Err: errors.New("the lock is held"), Hint: "wait"},
			"sessionfs: append: session s: the lock is held [locked]\nhint: wait\n"},
		{"no code", failf(exitMount, "", "mount: nothing"), "sessionfs: mount: nothing\n"},
		{"one line, whatever the id holds",
			&store.Error{Code: store.NotFound, Op: "show", Session: "a\nb\x1b[2J\u202e", Err: errors.New("one\ntwo\\n"), Hint: "look at a\nb"},
			"sessionfs: show: session a\\nb\\x1b[2J\\u202e: one\\ntwo\\n [not_found]\nhint: look at a\\nb\n"},
		{"more than one cause",
			&store.Error{Code: store.ReadOnly, Op: "set aside", Ref: "a\nb", Err: fmt.Errorf("write: %w", errors.Join(errors.New("create"), errors.Join(errors.New("remove"), errors.New("a\nb"))))},
			"sessionfs: set aside: a\\nb: write: create; remove; a\\nb [read_only]\nhint: use a store that may be written\n"},
		{"printed already", &printedError{text: "sessionfs: a [b]\nhint: c\n"}, "sessionfs: a [b]\nhint: c\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := errorText(tt.err); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestCommandLinesThatAreWrong(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"frobnicate", `unknown command "frobnicate"`},
		{"help frobnicate", `unknown command "frobnicate"`},
		{"--nope", "unknown flag: --nope"},
		{"ls --nope", "unknown flag: --nope"},
		{"ls extra", `unexpected argument "extra"`},
		{"ls --limit -1", "--limit -1 is negative"},
		{"ls --limit x", "invalid argument"},
		{"show", "an argument is missing"},
		{"head", "an argument is missing"},
		{"head a b c", `unexpected argument "c"`},
		{"head a --expect x", "--expect needs a REF"},
		{"branch", "an argument is missing"},
		{"branch s what", `"what" is none of ls, name, rm`},
		{"branch s name x", "an argument is missing"},
		{"branch s rm x y", `unexpected argument "y"`},
		{"append", "an argument is missing"},
		{"append s x --role tool", `--role "tool" is none of`},
		{"append s x --role user --message", "--role does not go with it"},
		{"new a b", `unexpected argument "b"`},
		{"mount", "an argument is missing"},
		{"mount -o frob /m", `unknown mount option "frob"`},
		{"mount -o commits=both /m", `unknown mount option "commits=both"`},
		{"--log-level loud --store / ls", "--log-level"},
		{"--log-format xml --store / ls", "--log-format"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(context.Background(), strings.Fields(tt.args), strings.NewReader(""), &stdout, &stderr)
			if code != exitUsage {
				t.Errorf("status %d, want %d", code, exitUsage)
			}
			if stdout.Len() > 0 {
				t.Errorf("stdout %q, want nothing", stdout.String())
			}
			got := stderr.String()
			if !strings.HasPrefix(got, "sessionfs: ") || !strings.Contains(got, tt.want) || !strings.Contains(got, "\nhint: ") {
				t.Errorf("got %q, want %q with prefix and hint", got, tt.want)
			}
		})
	}
}

func TestHelpIsNoError(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}, {"help"}, {"help", "mount"}, {"mount", "--help"}} {
		var stdout, stderr bytes.Buffer
		if code := run(context.Background(), args, strings.NewReader(""), &stdout, &stderr); code != exitOK {
			t.Errorf("%q: status %d, stderr %q", args, code, stderr.String())
		}
		if !strings.Contains(stdout.String(), "Usage:") {
			t.Errorf("%q: no usage in %q", args, stdout.String())
		}
	}
}
