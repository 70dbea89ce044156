package fsnode

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// rootHelp is the first part of what reading .sessionfs/ctl shows.
const rootHelp = `# commands, one a line:
#   reload [<id>]         read a session again from the disk, or all of them
#   delete-session <id>   delete a session for good
# the last outcomes, newest last:
`

// newRootControl makes .sessionfs/ctl.
func (t *tree) newRootControl(parent *vnode.List) *vnode.File {
	o := &outcomes{help: rootHelp}
	f := &vnode.FuncFile{
		Spec: vnode.Spec{Number: vnode.Ino("control/ctl"), Policy: policyOf(kindFresh, true)},
		Read: func(context.Context) ([]byte, error) {
			b, _ := o.text()
			return b, nil
		},
		Whole: true,
	}
	f.Stat = func(context.Context) (vnode.Stat, error) {
		b, at := o.text()
		perm := uint32(0o600)
		if t.readOnly {
			perm = 0o400
		}
		return vnode.Stat{Perm: perm, Size: int64(len(b)), MTime: latest(t.started, at), UID: t.uid, GID: t.gid}, nil
	}
	f.Writer = vnode.Lines{Max: maxLine, Begin: func(context.Context) (vnode.Runner, error) {
		if err := t.writable("ctl"); err != nil {
			return nil, err
		}
		return &rootCommands{t: t, o: o}, nil
	}}.Writer
	t.place(parent, f)
	return &f.File
}

// rootCommands runs the command lines of one open .sessionfs/ctl.
type rootCommands struct {
	t *tree
	o *outcomes
}

// Run runs a line and notes its outcome.
func (c *rootCommands) Run(ctx context.Context, line string) error {
	word, rest, _ := cutWord(line)
	err := c.do(ctx, word, wholeArg(rest))
	c.o.note(word, "", err, c.t.now())
	return err
}

func (c *rootCommands) do(ctx context.Context, word, id string) error {
	invalid := func(why string) error {
		return &store.Error{Code: store.Invalid, Op: "ctl", Ref: word, Err: errors.New(why), Hint: "read the file for the commands"}
	}
	switch word {
	case "reload":
		return c.t.st.Reload(ctx, id)
	case "delete-session":
		if id == "" {
			return invalid("takes a session's id")
		}
		return c.t.st.DeleteSession(ctx, id)
	}
	return invalid("unknown command")
}

// Close has nothing to do: no command outlives its line.
func (c *rootCommands) Close(context.Context) {}

// note notes the outcome of a command.
func (o *outcomes) note(word, result string, err error, now time.Time) {
	if err != nil {
		_, code := errnoOf(err)
		o.add("error "+orDash(string(code))+" "+word+": "+reason(err), now)
		return
	}
	o.add(strings.TrimSpace("ok "+word+" "+result), now)
}
