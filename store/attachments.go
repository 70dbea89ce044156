package store

import (
	"context"
	"errors"
	"io"
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
// (reference 9). A user's paths are his own and are followed as he sees them;
// an assistant's message hands files out, so its paths must be ones that
// ResolveSendable accepts. Errors are AppendText's, TooLarge over 32 MiB a file
// or 64 MiB together, NotFound for a path where nothing is, Invalid for what is
// no regular file or may not be sent.
func (s *Store) AppendWithFiles(ctx context.Context, id, role, text string, paths []string) (AppendResult, error) {
	switch role {
	case "user", "assistant", "system":
	default:
		return AppendResult{}, &Error{Code: Invalid, Op: "append", Session: id, Ref: role,
			Err: errors.New("the role must be user, assistant or system")}
	}
	if err := refuseNotText("append", id, text); err != nil {
		return AppendResult{}, err
	}
	var res AppendResult
	err := s.change(ctx, "append", id, 0, func(t *tx) error {
		if role != "assistant" {
			if err := t.refuseActiveRun(); err != nil {
				return err
			}
		}
		markers, err := t.saveFiles(ctx, role, paths)
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
func (t *tx) saveFiles(ctx context.Context, role string, paths []string) ([]string, error) {
	saver := attachment.NewSaver(t.s.fs, t.place.Dir)
	markers := make([]string, 0, len(paths))
	for _, p := range paths {
		save := saver.File
		if role == "assistant" {
			save = t.sendFile(saver)
		}
		saved, err := save(ctx, attachment.Upload{Name: filepath.Base(p)}, p)
		var tooLarge *attachment.TooLargeError
		switch {
		case errors.As(err, &tooLarge):
			return nil, t.fail(TooLarge, p, err)
		case errors.Is(err, safefile.ErrNotRegular):
			return nil, t.fail(Invalid, p, safefile.ErrNotRegular)
		case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			return nil, t.fail(NotFound, p, errors.New("no such file"))
		case CodeOf(err) != "":
			return nil, t.asOp(err)
		case err != nil:
			return nil, t.diskFail(p, err)
		}
		markers = append(markers, saved.Marker)
	}
	return markers, nil
}

// sendFile is a Saver's File for what an assistant sends.
func (t *tx) sendFile(saver *attachment.Saver) func(context.Context, attachment.Upload, string) (attachment.Saved, error) {
	return func(ctx context.Context, u attachment.Upload, path string) (saved attachment.Saved, err error) {
		file, err := t.s.OpenSendable(t.se.id, path)
		if err != nil {
			return saved, err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		return saver.Reader(ctx, u, file)
	}
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
	// Sendable: an agent may send the file out (ResolveSendable).
	Sendable bool
}

// Attachments lists the files that a session's messages refer to, in stored
// order, each where it is now. Markers are never rewritten. NotFound.
func (s *Store) Attachments(ctx context.Context, id string) ([]AttachmentRef, error) {
	sn, err := s.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	resolver, project := s.resolver(id)
	roots, sendable := resolver.Readable(project), resolver.Sendable(project)
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
			ref.Sendable = ref.Err == nil && sendable.Contains(ref.Path)
			out = append(out, ref)
		}
	}
	return out, nil
}

// resolver returns what resolves a session's attachments, and the directory of
// the project that it is bound to, "" for none.
func (s *Store) resolver(id string) (r attachment.Resolver, project string) {
	home, _ := os.UserHomeDir()
	r = attachment.Resolver{FS: s.fs, Root: s.root, State: s.opt.State, Home: home}
	if p, ok := s.layout.BoundProject(id); ok && !p.Default {
		project = p.Path
	}
	return r, project
}

// ResolveAttachment finds the file that a marker's path means in a session, to
// show it to the user: below the readable roots of reference 9.3, all symlinks
// resolved first. NotFound when it is not there, Invalid when it may not be
// served.
func (s *Store) ResolveAttachment(id, path string) (string, error) {
	resolver, project := s.resolver(id)
	found, err := resolver.Rebase(resolver.Readable(project), id, path)
	return found, attachmentError("find attachment", id, path, err)
}

// ResolveSendable finds the file that a path means in a session, for an agent
// that wants to send it out: below the sendable roots of reference 9.3, which
// are the sessions and the directory of the bound project, but not what came in
// over a channel. All symlinks are resolved before that is tested; a path into
// the session's old attachments leads to the present ones. NotFound when it is
// not there, Invalid when it may not be sent. What is to be read should be
// opened with OpenSendable: a name may come to mean something else.
func (s *Store) ResolveSendable(id, path string) (string, error) {
	resolver, project := s.resolver(id)
	found, err := resolver.Rebase(resolver.Sendable(project), id, path)
	return found, attachmentError("send attachment", id, path, err)
}

// OpenSendable opens the regular file that ResolveSendable finds, for reading;
// nobody who changes a name on the way can make it another one outside.
func (s *Store) OpenSendable(id, path string) (io.ReadCloser, error) {
	found, err := s.ResolveSendable(id, path)
	if err != nil {
		return nil, err
	}
	resolver, project := s.resolver(id)
	file, err := resolver.Sendable(project).Open(found)
	if err != nil {
		return nil, attachmentError("send attachment", id, path, err)
	}
	return file, nil
}

// attachmentError gives a refusal of the attachments its code.
func attachmentError(op, id, path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, attachment.ErrMissing), errors.Is(err, os.ErrNotExist):
		return &Error{Code: NotFound, Op: op, Session: id, Ref: path, Err: err}
	}
	return &Error{Code: Invalid, Op: op, Session: id, Ref: path, Err: err}
}
