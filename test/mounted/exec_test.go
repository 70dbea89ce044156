package mounted

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestExecWithAnOpenFile: a program that has a message half written starts
// another one, whose exec closes the file. Nobody waits for the other, and the
// message is one.
func TestExecWithAnOpenFile(t *testing.T) {
	m := harness.Start(t, harness.Options{Store: harness.Golden(t, "chat_branches"), Limit: 30 * time.Second})
	nodes := len(names(t, m.Session(nested, "nodes")))
	f, err := os.OpenFile(m.Session(nested, "append", "user"), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString("one\n")
	err = errors.Join(err, exec.Command("true").Run())
	_, more := f.WriteString("two\n")
	if err := errors.Join(err, more, f.Close()); err != nil {
		t.Fatal(err)
	}
	if got := read(t, m.Session(nested, "head")); got != "one\ntwo\n" {
		t.Errorf("the message is %q", got)
	}
	if got := len(names(t, m.Session(nested, "nodes"))); got != nodes+1 {
		t.Errorf("%d nodes, were %d", got, nodes)
	}
}
