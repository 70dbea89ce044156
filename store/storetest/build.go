package storetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/nodefile"
	"github.com/sessionfs/sessionfs/store/registry"
)

// Epoch is the time of the first thing in a built store, in seconds since the
// epoch; each line is one second later.
const Epoch = 1700000000.0

// Build writes a store's root from a text, one thing a line; words are parted
// by blanks, and a word may be a quoted Go string. Empty lines and what
// follows a # at the start of a word are left out.
//
//	project ID NAME          a project, bound by "session ... project=ID"; its
//	                         folder is work-ID beside the root
//	work ID NAME TEXT        a file in a project's folder
//	session ID [KEY=VALUE].. a session; the lines below it are its; to have a
//	                         blank in it, "KEY=VALUE" is one quoted word;
//	                         place=folder puts it into its project's folder, as
//	                         old versions did, place=history makes it one of
//	                         the first layout, whose repository is history/
//	root                     the ROOT node
//	user|llm ID [<PRED] TEXT a message, after PRED, else after the one before
//	tool ID [^CALLER] TEXT   a call, of CALLER, else of the message before
//	summary ID OF.. TEXT     a compaction summary after the one before
//	running ID [<PRED] TEXT  a reply that is still being written
//	head ID                  the head; without it, the last message
//	name ID NAME             the name of a branch
//	field KEY JSON           a key of meta.json
//	raw NAME TEXT            a file of the session's directory, as it is
//	commit MESSAGE           what there is by now, into Git
//	break WHAT [ARG]         damage at the very end: "meta" and "node ID" are
//	                         cut in half, "history", "git" and "file NAME"
//	                         taken away, "index" (of the root) is cut in half
//	deleted ID               a delete intent
//	noindex                  no index.json
//
// Root's parent is the state directory when there is a project. Nothing is
// synced.
func Build(tb testing.TB, root, text string) {
	tb.Helper()
	b := &builder{root: root, now: Epoch, index: true}
	if err := b.build(text); err != nil {
		tb.Fatalf("build a store: %v", err)
	}
}

type builder struct {
	root     string
	now      float64
	index    bool
	cut      bool // index.json in half
	projects []project
	sessions []*built
}

type project struct {
	id, name string
	ids      []string // the sessions bound to it
	old      []string // of these, the ones in its folder
}

// built is a session being built.
type built struct {
	id, dir string
	meta    *jsonedit.Object
	seq     int64
	last    string // the message before
	head    string
	files   map[string]string // node id to file name
	damage  [][]string
	first   bool // of the first layout
}

func (b *builder) build(text string) error {
	if err := os.MkdirAll(filepath.Join(b.root, ".locks"), 0o700); err != nil {
		return err
	}
	for i, line := range strings.Split(text, "\n") {
		words, err := splitWords(line)
		if err == nil && len(words) > 0 {
			err = b.line(words[0], words[1:])
		}
		if err != nil {
			return fmt.Errorf("line %d, %q: %w", i+1, line, err)
		}
	}
	for _, s := range b.sessions {
		if err := errors.Join(s.writeMeta(), s.breakThings()); err != nil {
			return err
		}
	}
	return errors.Join(b.writeProjects(), b.writeIndex())
}

// splitWords splits a line.
func splitWords(line string) ([]string, error) {
	var out []string
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" || line[0] == '#' {
			return out, nil
		}
		if line[0] != '"' && line[0] != '`' {
			word, rest, _ := strings.Cut(line, " ")
			out, line = append(out, word), rest
			continue
		}
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return nil, err
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, err
		}
		out, line = append(out, word), line[len(quoted):]
	}
}

var errWords = errors.New("too few words, or nothing of that name")

func (b *builder) line(what string, args []string) error {
	b.now++
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	switch what {
	case "noindex":
		b.index = false
		return nil
	case "project":
		b.projects = append(b.projects, project{id: arg(0), name: arg(1)})
		return nil
	case "work":
		return b.write(filepath.Join(b.folder(arg(0)), filepath.FromSlash(arg(1))), arg(2))
	case "deleted":
		return b.write(filepath.Join(b.root, ".deleted", arg(0)),
			fmt.Sprintf("{\n  \"session_id\": %q,\n  \"deleted_at\": %.1f\n}", arg(0), b.now))
	case "session":
		return b.session(arg(0), args[1:])
	}
	if what == "break" && arg(0) == "index" {
		b.cut = true
		return nil
	}
	if len(b.sessions) == 0 {
		return errWords
	}
	return b.sessions[len(b.sessions)-1].line(b, what, args, arg)
}

func (b *builder) write(path, text string) error {
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600))
}

// folder is a project's working folder.
func (b *builder) folder(pid string) string { return filepath.Join(filepath.Dir(b.root), "work-"+pid) }

func (b *builder) session(id string, options []string) error {
	s := &built{id: id, dir: filepath.Join(b.root, id), meta: jsonedit.NewObject(), files: map[string]string{}}
	set := func(k string, raw []byte) { s.meta.Set(k, raw) }
	set("id", jsonedit.EncodeString(id))
	set("agent_id", jsonedit.EncodeString("main"))
	set("title", jsonedit.EncodeString(id))
	set("source", jsonedit.EncodeString("web"))
	set("created_at", jsonedit.EncodeFloat(b.now))
	set("updated_at", jsonedit.EncodeFloat(b.now))
	place, pid := "", ""
	for _, o := range options {
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "project":
			pid = value
			set("project_id", jsonedit.EncodeString(value))
		case "place":
			place = value
		default:
			set(key, jsonedit.EncodeString(value))
		}
	}
	s.first = place == "history"
	b.bind(s, pid, place == "folder")
	b.sessions = append(b.sessions, s)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	return gitrepo.Init(context.Background(), s.dir, s.git(b))
}

// bind gives a session the place that its project has for it.
func (b *builder) bind(s *built, pid string, folder bool) {
	if pid == "" {
		return
	}
	s.dir = filepath.Join(b.root, "projects", pid, s.id)
	if folder {
		s.dir = filepath.Join(b.folder(pid), ".openprogram", "sessions", s.id)
	}
	for i := range b.projects {
		if b.projects[i].id != pid {
			continue
		}
		b.projects[i].ids = append(b.projects[i].ids, s.id)
		if folder {
			b.projects[i].old = append(b.projects[i].old, s.id)
		}
	}
}

func (s *built) git(b *builder) gitrepo.Options {
	return gitrepo.Options{FS: NewDisk(), Now: func() time.Time { return time.Unix(int64(b.now), 0) },
		Env: func(string) string { return "" }}
}

func (s *built) line(b *builder, what string, args []string, arg func(int) string) error {
	str := jsonedit.EncodeString
	switch what {
	case "root":
		md := jsonedit.NewObject()
		md.Set("display", str("root"))
		return s.node(b, nodefile.Spec{ID: "ROOT", Role: "user", Output: str(""), Metadata: md}, false)
	case "user", "llm", "running":
		return s.message(b, what, args)
	case "tool":
		spec := nodefile.Spec{ID: arg(0), Role: "code", Name: "tool", Input: []byte("{}"), Output: str(args[len(args)-1]), Caller: s.last}
		if c, ok := strings.CutPrefix(arg(1), "^"); ok {
			spec.Caller = c
		}
		return s.node(b, spec, false)
	case "summary":
		if len(args) < 3 {
			return errWords
		}
		md := jsonedit.NewObject()
		md.Set("covers_ids", jsonedit.EncodeStrings(args[1:len(args)-1]))
		return s.node(b, nodefile.Spec{ID: arg(0), Role: "llm", Output: str(args[len(args)-1]), Predecessor: s.last, Metadata: md}, false)
	case "head":
		s.head = arg(0)
		return nil
	case "name":
		return s.name(b, arg(0), arg(1))
	case "field":
		s.meta.Set(arg(0), []byte(arg(1)))
		return nil
	case "raw":
		return b.write(filepath.Join(s.dir, filepath.FromSlash(arg(0))), arg(1))
	case "commit":
		return s.commit(b, arg(0))
	case "break":
		s.damage = append(s.damage, args)
		return nil
	}
	return errWords
}

func (s *built) message(b *builder, what string, args []string) error {
	if len(args) < 2 {
		return errWords
	}
	spec := nodefile.Spec{ID: args[0], Role: what, Output: jsonedit.EncodeString(args[len(args)-1]), Predecessor: s.last}
	if p, ok := strings.CutPrefix(args[1], "<"); ok && len(args) > 2 {
		spec.Predecessor = p
	}
	if spec.Predecessor == "" {
		spec.Predecessor = "ROOT"
	}
	if what == "running" {
		spec.Role, spec.Metadata = "llm", jsonedit.NewObject()
		spec.Metadata.Set("status", jsonedit.EncodeString("running"))
	}
	return s.node(b, spec, true)
}

func (s *built) node(b *builder, spec nodefile.Spec, speaks bool) error {
	spec.Seq, spec.CreatedAt = s.seq, b.now
	name := nodefile.FileName(spec.Seq, spec.Role, spec.ID)
	s.seq++
	s.files[spec.ID] = name
	if speaks {
		s.last, s.head = spec.ID, spec.ID
		s.meta.Set("updated_at", jsonedit.EncodeFloat(b.now))
	}
	return os.WriteFile(filepath.Join(s.dir, "history", name), spec.Encode(), 0o600)
}

func (s *built) name(b *builder, node, name string) error {
	branches := jsonedit.NewObject()
	if raw, ok := s.meta.Get("branches"); ok {
		var err error
		if branches, err = jsonedit.ParseObject(raw); err != nil {
			return err
		}
	}
	e := jsonedit.NewObject()
	e.Set("name", jsonedit.EncodeString(name))
	e.Set("created_at", jsonedit.EncodeFloat(b.now))
	e.Set("updated_at", jsonedit.EncodeFloat(b.now))
	branches.Set(node, e.Bytes())
	s.meta.Set("branches", branches.Bytes())
	return nil
}

func (s *built) writeMeta() error {
	head := []byte("null")
	if s.head != "" {
		head = jsonedit.EncodeString(s.head)
	}
	s.meta.Set("head_id", head)
	return os.WriteFile(filepath.Join(s.dir, "meta.json"), s.meta.Bytes(), 0o600)
}

func (s *built) commit(b *builder, message string) error {
	if err := s.writeMeta(); err != nil {
		return err
	}
	dir := s.dir
	if s.first {
		dir = filepath.Join(s.dir, "history")
		if err := os.Rename(filepath.Join(s.dir, ".git"), filepath.Join(dir, ".git")); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	r, err := gitrepo.Open(dir, s.git(b))
	if err != nil {
		return err
	}
	_, _, err = r.CommitAll(context.Background(), message)
	return errors.Join(err, r.Close())
}

func (s *built) breakThings() error {
	var errs []error
	for _, d := range s.damage {
		arg := ""
		if len(d) > 1 {
			arg = d[1]
		}
		switch d[0] {
		case "meta":
			errs = append(errs, halve(filepath.Join(s.dir, "meta.json")))
		case "node":
			errs = append(errs, halve(filepath.Join(s.dir, "history", s.files[arg])))
		case "history":
			errs = append(errs, os.RemoveAll(filepath.Join(s.dir, "history")))
		case "git":
			errs = append(errs, os.RemoveAll(filepath.Join(s.dir, ".git")))
		case "file":
			errs = append(errs, os.RemoveAll(filepath.Join(s.dir, filepath.FromSlash(arg))))
		default:
			errs = append(errs, fmt.Errorf("break %s: unknown", d[0]))
		}
	}
	return errors.Join(errs...)
}

func halve(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b[:len(b)/2], 0o600)
}

// writeProjects writes the project registry, and the locations of the sessions
// that are bound.
func (b *builder) writeProjects() error {
	if len(b.projects) == 0 {
		return nil
	}
	all, places := jsonedit.NewObject(), jsonedit.NewObject()
	for _, p := range b.projects {
		o := jsonedit.NewObject()
		o.Set("id", jsonedit.EncodeString(p.id))
		o.Set("name", jsonedit.EncodeString(p.name))
		o.Set("path", jsonedit.EncodeString(b.folder(p.id)))
		o.Set("session_ids", jsonedit.EncodeStrings(p.ids))
		if len(p.old) > 0 { // what says that the folder is the one that is meant
			o.Set("directory_identity", []byte(`{"device": 1, "inode": 2}`))
		}
		all.Set(p.id, o.Bytes())
		for _, id := range p.ids {
			if slices.Contains(p.old, id) {
				continue // recorded nowhere
			}
			places.Set(id, jsonedit.EncodeString(filepath.Join(b.root, "projects", p.id, id)))
		}
	}
	return errors.Join(
		b.write(filepath.Join(filepath.Dir(b.root), "projects", "projects.json"), string(jsonedit.Indent(all.Bytes(), ""))),
		b.write(filepath.Join(b.root, "locations.json"), string(jsonedit.Indent(places.Bytes(), ""))))
}

func (b *builder) writeIndex() error {
	if !b.index {
		return nil
	}
	rows := jsonedit.NewObject()
	for _, s := range b.sessions {
		row := registry.RowFromMeta(s.id, s.meta, Epoch)
		rows.Set(s.id, row.Bytes())
	}
	text := jsonedit.Indent(rows.Bytes(), "")
	if b.cut {
		text = text[:len(text)/2]
	}
	return b.write(filepath.Join(b.root, "index.json"), string(text))
}
