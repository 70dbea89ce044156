package fsnode

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/spool"
	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// messageFile is the name in append/ that takes whole message dicts; the
// others are roles.
const messageFile = "message.json"

// appendKind is append/: what is written there becomes a new message. Its
// files are made at each lookup, and are known to nobody but the kernel.
var appendKind = &listKind{
	name: "append",
	list: func(_ context.Context, s *session, _ *view) ([]fuse.DirEntry, error) {
		out := make([]fuse.DirEntry, len(appendNames))
		for i, name := range appendNames {
			out[i] = vnode.FileEntry(name, s.ident("append", name))
		}
		return out, nil
	},
	find: func(_ context.Context, l *sessionList, name string) (vnode.Found, error) {
		i := slices.Index(appendNames[:], name)
		if i < 0 {
			return vnode.Found{Absent: long}, vnode.NotFound // it never will be there
		}
		f := &appended{s: l.s, what: appendNames[i]}
		f.Policy = policyOf(kindDirectory, l.s.watched())
		vnode.Place(context.Background(), &l.Inode, f, vnode.Ino(l.s.ident("append", name)), l.s.gen)
		return vnode.Found{Node: f}, nil
	},
	stat: func(ctx context.Context, s *session) (vnode.Stat, error) { return s.appendStat(ctx, 0o700) },
}

// appendNames are the files of append/.
var appendNames = [...]string{"user", "assistant", "system", messageFile}

// appendStat is the attributes of append/ and its files, which read empty:
// their time is the session's creation.
func (s *session) appendStat(ctx context.Context, perm uint32) (vnode.Stat, error) {
	v, err := s.current(ctx)
	if err != nil {
		return vnode.Stat{}, err
	}
	st := s.stat(v, perm, 0)
	st.MTime = v.sn.Created
	return st, nil
}

// appended is a file in append/.
type appended struct {
	vnode.File
	s    *session
	what string // "user", "assistant", "system" or messageFile
}

// Stat tells the attributes.
func (a *appended) Stat(ctx context.Context) (vnode.Stat, error) { return a.s.appendStat(ctx, 0o600) }

// Read returns nothing.
func (a *appended) Read(context.Context) ([]byte, error) { return nil, nil }

// Writer begins a message.
func (a *appended) Writer(ctx context.Context) (vnode.Writer, error) {
	begin := func(ctx context.Context) (vnode.Draft, error) { return a.s.newDraft(ctx, a.what) }
	return a.s.guarded(vnode.Doc{Begin: begin}.Writer)(ctx)
}

// draft is one message being written: one open file of append/.
type draft struct {
	*spool.Buf
	s    *session
	what string // "user", "assistant", "system" or messageFile

	node    string // the message that the first flush made
	applied int64  // how many bytes of the text it holds
}

// newDraft makes the checks that can be made before anything is written.
func (s *session) newDraft(ctx context.Context, what string) (vnode.Draft, error) {
	if what == "user" || what == "system" {
		if err := s.refuseRun(ctx, "append"); err != nil {
			return nil, err
		}
	}
	b, err := s.t.sp.Create(s.id + "-append-" + what)
	if err != nil {
		return nil, err
	}
	return &draft{Buf: b, s: s, what: what}, nil
}

// refuseRun refuses what cannot be begun while a run is active.
func (s *session) refuseRun(ctx context.Context, op string) error {
	active, err := s.t.st.RunIsActive(holdingAny(ctx), s.id)
	if err == nil && active {
		err = &store.Error{Code: store.RunActive, Op: op, Session: s.id, Err: errors.New("a run is active"),
			Hint: "wait for the run to finish, or stop it, then try again"}
	}
	return err
}

// Apply appends the message, or completes the one that an earlier flush of
// this file appended.
func (d *draft) Apply(ctx context.Context) error {
	raw, err := d.Bytes()
	if err != nil {
		return err
	}
	if len(raw) == 0 {
		return nil // a command that failed behind ">"
	}
	text := strings.TrimSuffix(string(raw), "\n")
	if text == "" && d.node == "" {
		return nil // an empty text is no message
	}
	switch {
	case d.what != messageFile && !utf8.ValidString(text):
		return vnode.NotText // the record is JSON, which cannot hold it
	case d.node != "" && d.what == messageFile:
		err = &store.Error{Code: store.Conflict, Op: "append", Session: d.s.id, Ref: d.node, Err: errors.New("the message has been appended already; open the file again for another one")}
	case d.node != "":
		err = d.s.t.st.ExtendMessage(ctx, d.s.id, d.node, text)
	default:
		err = d.append(ctx, raw, text)
	}
	if err != nil {
		return err
	}
	d.applied = int64(len(raw))
	return nil
}

func (d *draft) append(ctx context.Context, raw []byte, text string) error {
	var r store.AppendResult
	var err error
	if d.what == messageFile {
		r, err = d.s.t.st.AppendMessage(ctx, d.s.id, raw)
	} else {
		r, err = d.s.t.st.AppendText(ctx, d.s.id, d.what, text)
	}
	d.node = r.ID
	return err
}

// Abandon keeps in failed/ what could not be applied: the whole text, or what
// came after the part that was.
func (d *draft) Abandon(_ context.Context, why error) {
	name := d.s.id + "-append-" + d.what
	var kept string
	var err error
	if d.applied == 0 {
		kept, err = d.Fail(name)
	} else {
		var raw []byte
		if raw, err = d.Bytes(); err == nil && int64(len(raw)) > d.applied {
			kept, err = d.s.t.sp.FailBytes(name, raw[d.applied:])
		}
	}
	if err != nil {
		d.s.t.log.Error("a text could not be kept", "session", d.s.id, "file", d.what, "err", err)
		return
	}
	d.s.t.log.Info("a text was not applied and is kept", "session", d.s.id, "file", kept, "reason", string(store.CodeOf(why)))
}

// Close drops what was collected: it has been applied, or kept.
func (d *draft) Close() { d.Discard() }
