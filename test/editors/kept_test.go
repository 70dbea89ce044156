package editors

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestBytesThatAreNoText: a message is text. Bytes that are not UTF-8 are
// refused, not replaced, and kept as they are.
func TestBytesThatAreNoText(t *testing.T) {
	m := start(t, harness.Options{})
	before, raw := conversation(t, m, nested), "caf\xe9 in Latin-1\n"
	message := lastUser(t, m, nested)
	tmp := m.Session(nested, "messages", "tmp")
	want := map[string]string{}
	for name, c := range map[string]struct {
		save func() error
		kept string
	}{
		"append/user":      {func() error { return put(m.Session(nested, "append", "user"), raw) }, "-append-user"},
		"append/assistant": {func() error { return put(m.Session(nested, "append", "assistant"), raw) }, "-append-assistant"},
		"a message":        {func() error { return put(m.Session(nested, "messages", message), raw) }, "-messages-" + message},
		"ctl":              {func() error { return put(m.Session(nested, "ctl"), "edit @ "+raw) }, ""},
		"a rename": {func() error {
			return errors.Join(put(tmp, raw), os.Rename(tmp, m.Session(nested, "messages", message)))
		}, "-messages-" + message},
	} {
		refused(t, m, name, c.save(), syscall.EILSEQ, "invalid")
		if c.kept != "" {
			want[nested+c.kept] = raw
		}
		got := failed(t, m)
		if c.kept != "" && got[nested+c.kept] != raw || len(got) > len(want) {
			t.Errorf("%s: failed/ holds %q", name, got)
		}
		clearFailed(t, m)
		clear(want)
	}
	if got := conversation(t, m, nested); got != before {
		t.Errorf("the session is %s, was %s", got, before)
	}
	refused(t, m, "append/message.json", put(m.Session(nested, "append", "message.json"), `{"role": "user", "content": "`+"\xff"+`"}`), syscall.EINVAL, "invalid")
	refused(t, m, "a title", put(m.Session(nested, "fields", "title"), raw), syscall.EINVAL, "invalid")
}
