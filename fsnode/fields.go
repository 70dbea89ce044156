package fsnode

import (
	"context"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// fieldsKind is fields/: one file for each persistent field.
var fieldsKind = &listKind{
	name: "fields",
	list: func(_ context.Context, s *session, v *view) ([]fuse.DirEntry, error) {
		fields := v.sn.Fields()
		out := make([]fuse.DirEntry, 0, len(fields))
		for _, f := range fields {
			if fieldName(f.Name) {
				out = append(out, vnode.FileEntry(f.Name, s.ident("field", f.Name)))
			}
		}
		return out, nil
	},
	find: func(_ context.Context, l *sessionList, name string) (vnode.Found, error) {
		if !l.s.isField(name) {
			return l.shelf().find(name)
		}
		return vnode.Found{Node: l.s.field(&l.List, name, l.s.watched())}, nil
	},
	verbs: shelfVerbs,
}

// newFields makes fields/, with its shelf.
func (s *session) newFields(watched bool) *vnode.List {
	l := s.newList(watched, fieldsKind)
	h := s.newShelf(&l.List, "fields")
	h.ours = s.isField
	h.target = s.fieldTarget
	return &l.List
}

// isField reports whether a name is that of a field that fields/ shows.
func (s *session) isField(name string) bool {
	_, ok := s.v.Load().sn.Field(name)
	return ok && fieldName(name)
}

// fieldTarget is the writing side of a field.
func (s *session) fieldTarget(_ context.Context, name string) (target, error) {
	f, ok := s.v.Load().sn.Field(name)
	switch {
	case !ok || !fieldName(name):
		return nil, vnode.NotFound
	case !f.Writable:
		return nil, vnode.Immutable
	}
	value := &field{s: s, name: name}
	return valueText{read: value.Read, set: value.set}, nil
}

// field returns the file of a field, which is made once.
func (s *session) field(dir *vnode.List, name string, watched bool) *field {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.fields.get(name)
	if !ok {
		f = &field{s: s, name: name}
		f.Policy = policyOf(kindOfField(s.v.Load(), name), watched)
		vnode.Place(context.Background(), &dir.Inode, f, vnode.Ino(s.ident("field", name)), s.gen)
		s.fields.put(f)
	}
	return f
}

// fieldName reports whether a key of meta.json can be a file's name as it is.
func fieldName(key string) bool {
	if key == "" || key == "." || key == ".." || len(key) > 255 {
		return false
	}
	for i := 0; i < len(key); i++ {
		if key[i] == '/' || key[i] < ' ' || key[i] == 0x7f {
			return false
		}
	}
	return true
}

// kindOfField tells whether a field's name can be taken away by a rename.
func kindOfField(v *view, name string) kind {
	if f, ok := v.sn.Field(name); ok && f.Writable {
		return kindWritable
	}
	return kindLive
}

// field is a file in fields/: the value and a newline.
type field struct {
	vnode.File
	s    *session
	name string
}

func (f *field) label() string { return f.name }

// Whole tells that the text changes.
func (f *field) Whole() bool { return true }

func (f *field) text(v *view) (text []byte, writable bool) {
	x, ok := v.sn.Field(f.name)
	return []byte(x.Text + "\n"), ok && x.Writable
}

// Read returns the value and a newline.
func (f *field) Read(context.Context) ([]byte, error) {
	b, _ := f.text(f.s.v.Load())
	return b, nil
}

// Stat tells the attributes.
func (f *field) Stat(ctx context.Context) (vnode.Stat, error) {
	v, err := f.s.current(ctx)
	if err != nil {
		return vnode.Stat{}, err
	}
	if _, ok := v.sn.Field(f.name); !ok {
		return vnode.Stat{}, vnode.Stale
	}
	perm := uint32(0o400)
	b, writable := f.text(v)
	if writable {
		perm = 0o600
	}
	return f.s.stat(v, perm, len(b)), nil
}

// set sets the field.
func (f *field) set(ctx context.Context, text string) error {
	return f.s.t.st.SetField(ctx, f.s.id, f.name, text)
}

// Writer begins the writing of a value.
func (f *field) Writer(ctx context.Context) (vnode.Writer, error) {
	if err := f.s.writable(ctx); err != nil {
		return nil, err
	}
	if _, writable := f.text(f.s.v.Load()); !writable {
		return nil, vnode.Immutable
	}
	legal := func(text string) bool { return store.LegalField(f.name, text) }
	return vnode.Value{Max: maxValue, Legal: legal, Set: f.set}.Writer(ctx)
}
