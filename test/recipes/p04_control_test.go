package recipes

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestP04Control: a command's error that came only at close was lost in echo,
// and a long text was cut and executed; here the write fails, pieces join, junk
// is refused as a whole, and reading ends.
func TestP04Control(t *testing.T) {
	m := start(t, "chat_branches")
	path := m.Session(nested, "ctl")
	good, bad := "head "+tipTrunk, "no-such-verb x"
	state := func() string {
		return read(t, m.Session(nested, "head_id")) + strings.Join(names(t, m.Session(nested, "branch")), " ")
	}
	send := func(flags int, pieces ...string) error {
		fd, err := syscall.Open(path, syscall.O_WRONLY|flags, 0)
		if err != nil {
			return err
		}
		for _, p := range pieces {
			if err == nil {
				_, err = syscall.Write(fd, []byte(p))
			}
		}
		return errors.Join(err, syscall.Close(fd))
	}
	before := state()
	for what, c := range map[string]struct {
		flags  int
		pieces []string
		want   []error
	}{
		"a bad command":              {0, []string{bad + "\n"}, []error{syscall.EINVAL}},
		"nothing written":            {0, nil, []error{nil}},
		"an empty write":             {0, []string{""}, []error{nil}},
		"a newline":                  {0, []string{"\n"}, []error{nil}},
		"no newline":                 {0, []string{good}, []error{nil}},
		"a line":                     {0, []string{good + "\n"}, []error{nil}},
		"CRLF":                       {0, []string{good + "\r\n"}, []error{nil}},
		"two pieces":                 {0, []string{good[:3], good[3:] + "\n"}, []error{nil}},
		"O_TRUNC":                    {syscall.O_TRUNC, []string{good + "\n"}, []error{nil}},
		"O_APPEND":                   {syscall.O_APPEND, []string{good + "\n"}, []error{nil}},
		"300 kB of junk":             {0, []string{strings.Repeat("A", 300_000)}, []error{syscall.EINVAL, syscall.EFBIG}},
		"a bad line and a good line": {0, []string{bad + "\nhead " + tipDetour + "\n"}, []error{syscall.EINVAL}},
		"no text":                    {0, []string{"\x00\xff\xfe\n"}, []error{syscall.EINVAL, syscall.EILSEQ}},
	} {
		err := send(c.flags, c.pieces...)
		if !slices.ContainsFunc(c.want, func(w error) bool { return errors.Is(err, w) }) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
		if got := state(); got != before {
			t.Errorf("%s changed the state to %q", what, got)
		}
	}
	r := harness.Shell(t, t.TempDir(), `echo "$2" > "$1"`, path, bad)
	if r.Code == 0 || r.Err == "" {
		t.Errorf("the shell does not see a failure: exit status %d, %q", r.Code, r.Err)
	}
	if got := read(t, path); !strings.Contains(got, "error invalid") {
		t.Errorf("ctl reads %q", got)
	}
}
