package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/dag/render"
	"github.com/sessionfs/sessionfs/store/nodefile"
)

// ExportTree writes a session as plain files into dir, which must not exist:
//
//	transcript.md             the active branch as one document
//	messages.jsonl            the same as message dicts
//	meta.json                 the session's fields, byte for byte
//	nodes/<file>.md           the text of every message of every branch
//	branch/<name>/NNNNNN-….md every branch root to tip, links into nodes/
//	attachments/              the session's files
//
// Messages have the names that they have in the mount. Exists, NotFound, Corrupt. What was written
// when it failed stays.
func (s *Store) ExportTree(ctx context.Context, id, dir string) error {
	sn, err := s.Load(ctx, id)
	if err != nil {
		return err
	}
	x := treeExport{sn: sn, dir: dir}
	if err := x.run(ctx); err != nil {
		var e *Error
		if errors.As(err, &e) {
			return err
		}
		code := diskCode(err)
		if errors.Is(err, fs.ErrExist) {
			code = Exists
		}
		return &Error{Code: code, Op: "export", Session: id, Err: err}
	}
	return nil
}

// treeExport writes one session's tree.
type treeExport struct {
	sn  *Snapshot
	dir string
}

func (x treeExport) run(ctx context.Context) error {
	if err := x.sn.s.fs.MkdirAll(filepath.Dir(x.dir), 0o777); err != nil {
		return err
	}
	for _, d := range []string{"", "nodes", "branch"} {
		if err := x.sn.s.fs.Mkdir(filepath.Join(x.dir, d), 0o700); err != nil {
			return err
		}
	}
	if err := x.nodes(ctx); err != nil {
		return err
	}
	if raw := x.sn.MetaJSON(); raw != nil {
		if err := x.write(metaFile, raw); err != nil {
			return err
		}
	}
	if err := x.documents(); err != nil {
		return err
	}
	for _, b := range x.sn.Branches() {
		if err := x.branch(b); err != nil {
			return err
		}
	}
	return x.attachments(ctx)
}

func (x treeExport) write(name string, content []byte) error {
	f, err := x.sn.s.fs.OpenFile(filepath.Join(x.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// nodes writes the text of every message; one that cannot be read is left out,
// it is among the session's problems.
func (x treeExport) nodes(ctx context.Context) error {
	for _, e := range x.sn.Entries() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if e.NodeID == "" {
			continue
		}
		text, err := x.sn.TextOfFile(e.File)
		if err != nil {
			continue
		}
		if err := x.write(filepath.Join("nodes", nodefile.Stem(e.File)+".md"), text); err != nil {
			return err
		}
	}
	return nil
}

// documents writes the active branch as documents. A branch whose chain is
// broken has none.
func (x treeExport) documents() error {
	text, err := x.sn.Transcript()
	if err != nil {
		return nil
	}
	if err := x.write("transcript.md", text); err != nil {
		return err
	}
	lines, err := x.sn.JSONLines("")
	if err != nil {
		return nil
	}
	return x.write("messages.jsonl", lines)
}

// branch writes a directory of links, one a message.
func (x treeExport) branch(b Branch) error {
	nodes, err := x.sn.BranchOf(b.Head)
	if err != nil {
		return nil
	}
	name := b.Head
	if b.Named {
		name = b.Name
	}
	dir := filepath.Join(x.dir, "branch", render.EscapeName(name))
	err = x.sn.s.fs.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) { // two branches of one name
		dir = filepath.Join(x.dir, "branch", render.EscapeName(name+"~"+b.Head))
		err = x.sn.s.fs.Mkdir(dir, 0o700)
	}
	if err != nil {
		return err
	}
	for i, n := range nodes {
		if err := x.link(dir, i+1, n); err != nil {
			return err
		}
	}
	return nil
}

func (x treeExport) link(dir string, at int, n dag.Node) error {
	e, ok := x.sn.Entry(n.ID)
	if !ok {
		return nil
	}
	target := filepath.Join("..", "..", "nodes", nodefile.Stem(e.File)+".md")
	name := fmt.Sprintf("%06d-%s-%s.md", at, render.EscapeNameMax(n.Speaker(), 64), render.EscapeName(clipID(n.ID)))
	return x.sn.s.fs.Symlink(target, filepath.Join(dir, name))
}

// attachments copies the regular files of the session's attachments.
func (x treeExport) attachments(ctx context.Context) error {
	from := x.sn.AttachmentsPath()
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == from {
			return nil
		}
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		to := filepath.Join(x.dir, "attachments", rel)
		switch {
		case d.IsDir():
			return x.sn.s.fs.MkdirAll(to, 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		return x.copy(path, to)
	})
}

func (x treeExport) copy(from, to string) error {
	in, err := x.sn.s.fs.OpenFile(from, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := x.sn.s.fs.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// clipID is the start of a node's id, as file names show it.
func clipID(id string) string {
	if runes := []rune(id); len(runes) > 8 {
		return string(runes[:8])
	}
	return id
}
