package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sessionfs/sessionfs/store/attachment"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/internal/safefile"
)

// AppendWithFiles appends a message and stores files with it: each is copied
// into the session's workdir/attachments under a safe, unique name, durable
// before the message that refers to it, and named in the text by a marker
// (reference 9). Paths are the caller's and are followed as he sees them.
// Errors are AppendText's, TooLarge over 32 MiB a file or 64 MiB together,
// NotFound for a path where nothing is, Invalid for what is no regular file.
func (s *Store) AppendWithFiles(ctx context.Context, id, role, text string, paths []string) (AppendResult, error) {
	switch role {
	case "user", "assistant", "system":
	default:
		return AppendResult{}, &Error{Code: Invalid, Op: "append", Session: id, Ref: role,
			Err: errors.New("the role must be user, assistant or system")}
	}
	var res AppendResult
	err := s.change(ctx, "append", id, 0, func(t *tx) error {
		if role != "assistant" {
			if err := t.refuseActiveRun(); err != nil {
				return err
			}
		}
		markers, err := t.saveFiles(ctx, paths)
		if err != nil {
			return err
		}
		msg := jsonedit.NewObject()
		msg.Set("role", jsonedit.EncodeString(role))
		msg.Set("content", jsonedit.EncodeString(withMarkers(text, markers)))
		if res, err = t.append(msg); err != nil || role != "assistant" {
			return err
		}
		t.commitTurn(ctx)
		return nil
	})
	if err == nil && role != "assistant" {
		s.Dirty(id)
	}
	return res, err
}

// withMarkers puts markers below a text, each on a line of its own.
func withMarkers(text string, markers []string) string {
	if text == "" {
		return strings.Join(markers, "\n")
	}
	return strings.Join(append([]string{text}, markers...), "\n")
}

// saveFiles stores the files of one turn and returns their markers.
func (t *tx) saveFiles(ctx context.Context, paths []string) ([]string, error) {
	saver := attachment.NewSaver(t.s.fs, t.place.Dir)
	markers := make([]string, 0, len(paths))
	for _, p := range paths {
		saved, err := saver.File(ctx, attachment.Upload{Name: filepath.Base(p)}, p)
		var tooLarge *attachment.TooLargeError
		switch {
		case errors.As(err, &tooLarge):
			return nil, t.fail(TooLarge, p, err)
		case errors.Is(err, safefile.ErrNotRegular):
			return nil, t.fail(Invalid, p, safefile.ErrNotRegular)
		case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			return nil, t.fail(NotFound, p, errors.New("no such file"))
		case err != nil:
			return nil, t.diskFail(p, err)
		}
		markers = append(markers, saved.Marker)
	}
	return markers, nil
}

// AttachmentRef is a file that a message refers to.
type AttachmentRef struct {
	Node string // the message's id
	Name string // as displayed
	// Recorded is the path in the marker, Path where the file is now: the same
	// path, or the session's present copy of it (reference 9.4). Path is ""
	// when the file is not there or may not be served; Err says why.
	Recorded, Path string
	Err            error
}

// Attachments lists the files that a session's messages refer to, in stored
// order, each where it is now. Markers are never rewritten. NotFound.
func (s *Store) Attachments(ctx context.Context, id string) ([]AttachmentRef, error) {
	sn, err := s.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	resolver, roots := s.readable(id)
	var out []AttachmentRef
	for i, e := range sn.entries {
		n := sn.Index.At(i)
		if !n.IsMessage() || !n.Speaks() {
			continue
		}
		text, err := sn.TextOfFile(e.File)
		if err != nil {
			continue // it is among the session's problems
		}
		for _, m := range attachment.Find(string(text)) {
			ref := AttachmentRef{Node: n.ID, Name: m.Name, Recorded: m.Path}
			ref.Path, ref.Err = resolver.Rebase(roots, id, m.Path)
			out = append(out, ref)
		}
	}
	return out, nil
}

// readable returns what resolves a session's attachments, and the roots whose
// files may be shown.
func (s *Store) readable(id string) (attachment.Resolver, attachment.Roots) {
	home, _ := os.UserHomeDir()
	r := attachment.Resolver{FS: s.fs, Root: s.root, State: s.opt.State, Home: home}
	project := ""
	if p, ok := s.layout.BoundProject(id); ok && !p.Default {
		project = p.Path
	}
	return r, r.Readable(project)
}

// ResolveAttachment finds the file that a marker's path means in a session.
// NotFound when it is not there, Invalid when it may not be served.
func (s *Store) ResolveAttachment(id, path string) (string, error) {
	resolver, roots := s.readable(id)
	found, err := resolver.Rebase(roots, id, path)
	switch {
	case err == nil:
		return found, nil
	case errors.Is(err, attachment.ErrMissing):
		return "", &Error{Code: NotFound, Op: "find attachment", Session: id, Ref: path, Err: err}
	}
	return "", &Error{Code: Invalid, Op: "find attachment", Session: id, Ref: path, Err: err}
}
