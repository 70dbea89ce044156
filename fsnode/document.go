package fsnode

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/fsnode/spool"
	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// document is what one handle collects of a new text for a file of ours. It
// begins with the text that the file has, so that an append and a write in the
// middle mean what they mean elsewhere.
type document struct {
	*spool.Buf
	s    *session
	hint string
	tg   target

	served []byte // what the handle has read of the file
	loaded bool
	kept   string // in failed/, of a text that may still become whole
}

// newDocument is the writing side of a file whose text is replaced as a whole.
// begin makes the checks that can be made before anything is written.
func (s *session) newDocument(hint string, begin func(ctx context.Context) (target, error)) func(context.Context) (vnode.Writer, error) {
	return s.guarded(vnode.Doc{
		InPlace: true,
		Unfinished: func(err error) bool {
			return store.CodeOf(err) == store.Invalid
		},
		Begin: func(ctx context.Context) (vnode.Draft, error) {
			tg, err := begin(ctx)
			if err != nil {
				return nil, err
			}
			b, err := s.t.sp.Create(hint)
			if err != nil {
				return nil, err
			}
			return &document{Buf: b, s: s, hint: hint, tg: tg}, nil
		},
	}.Writer)
}

// load takes the file's text over, once.
func (d *document) load() error {
	if d.loaded {
		return nil
	}
	raw, err := d.served, error(nil)
	if raw == nil {
		raw, err = d.tg.shown(context.Background())
	}
	if err != nil {
		return err
	}
	if _, err := d.Buf.WriteAt(raw, 0); err != nil {
		return err
	}
	d.loaded = true
	return nil
}

// Served takes over what the handle has read: what it writes in the middle of
// it is meant for that text.
func (d *document) Served(text []byte) {
	if d.loaded {
		return
	}
	d.served = text
	if tg, ok := d.tg.(interface{ served(text []byte) }); ok {
		tg.served(text)
	}
}

// ReadAt reads from what the handle has written.
func (d *document) ReadAt(p []byte, off int64) (int, error) {
	if err := d.load(); err != nil {
		return 0, err
	}
	return d.Buf.ReadAt(p, off)
}

// WriteAt writes into the text.
func (d *document) WriteAt(p []byte, off int64) (int, error) {
	if err := d.load(); err != nil {
		return 0, err
	}
	return d.Buf.WriteAt(p, off)
}

// Truncate cuts or extends the text.
func (d *document) Truncate(size int64) error {
	if size == 0 {
		d.loaded = true
	}
	if err := d.load(); err != nil {
		return err
	}
	return d.Buf.Truncate(size)
}

// Size is the size of the text.
func (d *document) Size() int64 {
	if err := d.load(); err != nil {
		return 0
	}
	return d.Buf.Size()
}

// Apply gives the file its new text.
func (d *document) Apply(ctx context.Context) error {
	raw, err := d.Bytes()
	if err != nil {
		return err
	}
	if err := d.tg.apply(ctx, raw); err != nil {
		return err
	}
	d.forget()
	return nil
}

// Abandon keeps the text in failed/. Of a text that grows the last form is
// kept.
func (d *document) Abandon(_ context.Context, why error) {
	if !d.loaded {
		return
	}
	raw, err := d.Bytes()
	if err != nil {
		d.s.t.log.Error("a text could not be kept", "session", d.s.id, "file", d.hint, "err", err)
		return
	}
	old := d.kept
	d.kept = ""
	if kept := d.s.keep(d.hint, raw, why); kept != "" || len(raw) == 0 {
		if old != "" {
			_ = os.Remove(old)
		}
		d.kept = kept
		return
	}
	d.kept = old
}

// forget takes back from failed/ what has been applied after all.
func (d *document) forget() {
	if d.kept != "" {
		_ = os.Remove(d.kept)
		d.kept = ""
	}
}

// Close drops what was collected: it has been applied, or kept.
func (d *document) Close() { d.Discard() }

// messageText is the writing side of a user's message: a new text is an edit.
type messageText struct {
	s          *session
	name, node string

	mu   sync.Mutex // level 0: one text at a time
	made string     // the sibling that the first text made
	text string     // of the sibling
}

func (m *messageText) document() bool { return true }

func (m *messageText) shown(context.Context) ([]byte, error) {
	return m.s.v.Load().sn.Text(m.node)
}

// apply makes an edit, unless the text is empty, as a command that failed
// behind ">" leaves it, or what is there already. A text that comes after the
// first one completes the message that it made.
func (m *messageText) apply(ctx context.Context, raw []byte) error {
	if len(raw) == 0 {
		return nil
	}
	if !utf8.Valid(raw) {
		return vnode.NotText // the record is JSON, which cannot hold it
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	text := strings.TrimSuffix(string(raw), "\n")
	if m.made != "" {
		if text == m.text {
			return nil
		}
		if err := m.s.t.st.ExtendMessage(ctx, m.s.id, m.made, text); err != nil {
			return err
		}
		m.text = text
		return nil
	}
	old, err := m.shown(ctx)
	if err != nil {
		return err
	}
	if string(old) == string(raw) || string(old) == string(raw)+"\n" {
		return nil
	}
	made, err := m.s.t.st.EditOnBranch(ctx, m.s.id, m.node, text)
	if err != nil {
		return err
	}
	m.made, m.text = made, text
	return nil
}

// metaText is the writing side of meta.json, which is merged key by key.
type metaText struct {
	s    *session
	base []byte // what the handle has read or saved; nil when it is a rename, or has not
}

func (m *metaText) document() bool { return true }

// shown is the text that a write begins from. Nobody has seen it by that: only
// what was read counts as known to whoever saves.
func (m metaText) shown(context.Context) ([]byte, error) {
	return m.s.v.Load().sn.MetaJSON(), nil
}

func (m *metaText) served(text []byte) { m.base = text }

func (m *metaText) apply(ctx context.Context, raw []byte) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil
	}
	who := processOf(ctx)
	seen := m.s.t.seen.of(m.s.id, who)
	if m.base != nil {
		seen.Own = [][]byte{m.base}
	}
	if err := m.s.t.st.MergeMeta(ctx, m.s.id, seen, raw); err != nil {
		return err
	}
	// The process knows what it has saved. Nobody else does, until it is read.
	m.base = bytes.Clone(raw)
	m.s.t.seen.note(m.s.id, seenText{who: who, text: m.base, saved: true})
	return nil
}

// valueText is the writing side of a small control file, for a rename.
type valueText struct {
	read func(ctx context.Context) ([]byte, error)
	set  func(ctx context.Context, text string) error
}

func (v valueText) document() bool { return false }

func (v valueText) shown(ctx context.Context) ([]byte, error) { return v.read(ctx) }

func (v valueText) apply(ctx context.Context, raw []byte) error {
	if len(raw) > maxValue {
		return vnode.TooLarge
	}
	return v.set(ctx, strings.TrimSuffix(string(raw), "\n"))
}
