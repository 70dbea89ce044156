package fsnode

import (
	"context"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
	"github.com/sessionfs/sessionfs/store"
)

// newFields makes fields/: one file for each persistent field.
func (s *session) newFields(watched bool) *vnode.List {
	l := s.newList(watched, "fields", func(_ context.Context, v *view) ([]fuse.DirEntry, error) {
		fields := v.sn.Fields()
		out := make([]fuse.DirEntry, 0, len(fields))
		for _, f := range fields {
			if fieldName(f.Name) {
				out = append(out, vnode.FileEntry(f.Name, s.ident("field", f.Name)))
			}
		}
		return out, nil
	})
	h := s.newShelf(l, "fields")
	h.ours = func(name string) bool {
		_, ok := s.v.Load().sn.Field(name)
		return ok && fieldName(name)
	}
	l.Find = func(ctx context.Context, name string) (vnode.Found, error) {
		if _, err := s.current(ctx); err != nil {
			return vnode.Found{}, err
		}
		if !h.ours(name) {
			return h.find(name)
		}
		return vnode.Found{Node: s.field(l, name, watched)}, nil
	}
	h.target = func(ctx context.Context, name string) (target, error) {
		f, ok := s.v.Load().sn.Field(name)
		switch {
		case !ok || !fieldName(name):
			return nil, vnode.NotFound
		case !f.Writable:
			return nil, vnode.Immutable
		}
		return valueText{read: s.field(l, name, watched).Read, set: func(ctx context.Context, text string) error {
			return s.t.st.SetField(ctx, s.id, name, text)
		}}, nil
	}
	l.Verbs = h.verbs()
	l.Entries = h.listing(l.Entries)
	return l
}

// field returns the file of a field, which is made once.
func (s *session) field(dir *vnode.List, name string, watched bool) *vnode.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.fields[name]
	if !ok {
		f = s.newField(name, watched)
		vnode.Place(context.Background(), &dir.Inode, f)
		s.fields[name] = f
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

// newField makes fields/<name>: the value and a newline.
func (s *session) newField(name string, watched bool) *vnode.File {
	text := func(v *view) ([]byte, bool) {
		f, ok := v.sn.Field(name)
		return []byte(f.Text + "\n"), ok && f.Writable
	}
	f := &vnode.File{
		Base: vnode.Base{Env: s.t.env, ID: s.ident("field", name), Gen: s.gen, Policy: policyOf(kindOfField(s.v.Load(), name), watched)},
		Read: func(context.Context) ([]byte, error) {
			b, _ := text(s.v.Load())
			return b, nil
		},
		Whole: true,
	}
	f.Stat = func(ctx context.Context) (vnode.Stat, error) {
		v, err := s.current(ctx)
		if err != nil {
			return vnode.Stat{}, err
		}
		if _, ok := v.sn.Field(name); !ok {
			return vnode.Stat{}, vnode.Stale
		}
		perm := uint32(0o400)
		b, writable := text(v)
		if writable {
			perm = 0o600
		}
		return s.stat(v, perm, len(b)), nil
	}
	value := vnode.Value{
		Max:   maxValue,
		Legal: func(text string) bool { return store.LegalField(name, text) },
		Set: func(ctx context.Context, text string) error {
			return s.t.st.SetField(ctx, s.id, name, text)
		},
	}
	f.Writer = s.guarded(func(ctx context.Context) (vnode.Writer, error) {
		if _, writable := text(s.v.Load()); !writable {
			return nil, vnode.Immutable
		}
		return value.Writer(ctx)
	})
	return f
}
