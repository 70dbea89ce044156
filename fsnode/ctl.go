package fsnode

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

const (
	// maxLine bounds a command line, in bytes.
	maxLine = 1 << 20
	// maxOutcomes is how many outcomes reading ctl shows.
	maxOutcomes = 20
)

// ctlHelp is the first part of what reading ctl shows.
const ctlHelp = `# commands, one a line; words may be quoted, the last argument takes the rest:
#   head <ref>                  move the head to a node, a branch or a prefix of an id
#   retry <node>                back to the question that a reply answers
#   edit <node> <text>          ask a question anew, beside the old one
#   sibling <node> next|prev|<n>  to another version of a message
#   leaf [<node>]               down to the end under a node
#   checkout <branch>           to the end of a branch
#   name <node> <name>          give a node a branch name
#   delete <branch>             delete a branch's own messages
#   attach <branch> [<anchor>]  point to a branch from a node
#   rewind <user-node>          back to before a question
#   commit [<message>]          commit what changed
#   begin                       begin a run; it belongs to the open file
#   end [failed]                end it
# the last outcomes, newest last:
`

// outcomes are the results of the last commands of a session.
type outcomes struct {
	help string // what a reader sees first

	mu    sync.Mutex // leaf
	lines []string
	at    time.Time
}

func (o *outcomes) add(line string, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines = append(o.lines, clip(strings.ReplaceAll(line, "\n", " ")))
	if n := len(o.lines) - maxOutcomes; n > 0 {
		o.lines = o.lines[n:]
	}
	o.at = tick(o.at, now)
}

// maxText bounds what is repeated of what a user wrote, in bytes.
const maxText = 500

// clip shortens a text that is shown for information.
func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return cut(s, maxText) + "…"
}

func (o *outcomes) text() ([]byte, time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var b strings.Builder
	b.WriteString(o.help)
	for _, l := range o.lines {
		b.WriteString(l)
		b.WriteByte('\n')
	}
	return []byte(b.String()), o.at
}

// controlFile is ctl.
type controlFile struct {
	vnode.File
	s *session
}

// newControl makes ctl.
func (s *session) newControl(watched bool) *vnode.File {
	f := &controlFile{s: s}
	f.Policy = policyOf(kindLive, watched)
	s.put(f, s.ident("file", "ctl"))
	return &f.File
}

// Read returns the help and the last outcomes.
func (f *controlFile) Read(context.Context) ([]byte, error) {
	b, _ := f.s.ctl.text()
	return b, nil
}

// Whole tells that the text changes.
func (f *controlFile) Whole() bool { return true }

// Stat tells the attributes, with the time of the last outcome.
func (f *controlFile) Stat(ctx context.Context) (vnode.Stat, error) {
	v, err := f.s.current(ctx)
	if err != nil {
		return vnode.Stat{}, err
	}
	b, at := f.s.ctl.text()
	st := f.s.stat(v, 0o600, len(b))
	st.MTime = v.sn.Created
	if at.After(st.MTime) {
		st.MTime = at
	}
	return st, nil
}

// Writer begins the command lines of a handle.
func (f *controlFile) Writer(ctx context.Context) (vnode.Writer, error) {
	return f.s.guarded(vnode.Lines{Max: maxLine, Begin: func(context.Context) (vnode.Runner, error) {
		return &commands{s: f.s, file: &f.File}, nil
	}}.Writer)(ctx)
}

// commands runs the command lines of one open ctl. A run that it begins is
// its own.
type commands struct {
	s    *session
	file *vnode.File
	run  *store.Run
}

// Run runs a line and notes its outcome.
func (c *commands) Run(ctx context.Context, line string) error {
	word, rest, err := cutWord(line)
	var result string
	switch {
	case err != nil:
		err = c.invalid(line, err)
	case !utf8.ValidString(line):
		word, err = strings.ToValidUTF8(word, "?"), vnode.NotText
	default:
		result, err = c.do(ctx, word, rest)
	}
	c.s.ctl.note(word, result, err, c.s.t.now())
	c.file.Changed() // written by direct I/O, so this waits for nobody
	return err
}

func (c *commands) note(line string) {
	c.s.ctl.add(line, c.s.t.now())
	c.file.Changed() // written by direct I/O, so this waits for nobody
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (c *commands) invalid(word string, why error) error {
	return &store.Error{Code: store.Invalid, Op: "ctl", Session: c.s.id, Ref: word, Err: why, Hint: "read the file for the commands"}
}

func (c *commands) begin(ctx context.Context) error {
	if c.run != nil {
		return &store.Error{Code: store.RunActive, Op: "begin run", Session: c.s.id, Err: errors.New("this file has begun a run already")}
	}
	run, err := c.s.t.st.Begin(ctx, c.s.id)
	c.run = run
	return err
}

// end ends the run, which commits its turn.
func (c *commands) end(ctx context.Context, rest string) error {
	status := "idle"
	switch {
	case rest == "failed":
		status = "failed"
	case rest != "":
		return c.invalid("end", errors.New("takes no argument but failed"))
	}
	if c.run == nil {
		return c.invalid("end", errors.New("no run was begun through this open file"))
	}
	run := c.run
	c.run = nil
	return run.End(ctx, status)
}

func (c *commands) commit(ctx context.Context, message string) (string, error) {
	com, ok, err := c.s.t.st.CommitTurn(ctx, c.s.id, message)
	if err != nil || !ok {
		return "nothing to commit", err
	}
	return com.Short, nil
}

// Close interrupts a run whose file was closed without an end.
func (c *commands) Close(ctx context.Context) {
	if c.run == nil {
		return
	}
	if err := c.run.End(context.WithoutCancel(ctx), "interrupted"); err != nil {
		c.s.t.log.Warn("end run", "session", c.s.id, "err", err)
	}
	c.run = nil
	c.note("ok end interrupted: the file was closed without end")
}
