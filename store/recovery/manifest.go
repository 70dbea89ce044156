package recovery

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// Status is how far the change of a file has come.
type Status string

// The statuses of an entry.
const (
	Prepared  Status = "prepared"
	Committed Status = "committed"
	Aborted   Status = "aborted"
)

// Entry is what a turn's manifest says of one file.
type Entry struct {
	Key, Path   string
	PreExisting bool
	Status      Status
	Operation   string // "", create, modify, delete
	// Before and After are nil when they are not known.
	Before, After *State
	// DiffState is pending, available, binary or large. Added and Removed
	// are lines, -1 when they were not counted.
	DiffState      string
	Added, Removed int64
	// Recoverability is exact or unavailable, then with a Reason.
	Recoverability, Reason  string
	PreparedAt, CommittedAt float64 // seconds since the epoch, 0: never
	Sequence                int64   // of the workspace's changes
	Pending                 bool    // a later change in the turn is unfinished
	Error                   string
	// Locator is the project that the file was in, nil when unknown.
	Locator *Locator
}

// Locator tells which file of which project a path was, for when the project
// has moved.
type Locator struct {
	ProjectID string
	Root      string // the project's directory when it was recorded
	// Path is relative to Root. In Options it is not used.
	Path string
	// Identity and Revision are raw JSON of the project's record, kept as
	// they are; nil is null.
	Identity, Revision []byte
}

// manifest is a turn's undo data as read.
type manifest struct {
	dir     string
	legacy  bool // in the legacy place
	version int64
	doc     *jsonedit.Object
	files   *jsonedit.Object
	entries []Entry
}

// Manifest returns what is recorded of a turn, in the order of the file. A turn
// of which nothing is recorded has no entries. The error wraps ErrManifest.
func (t *Tree) Manifest(turn string) ([]Entry, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, err := t.load(turn)
	if err != nil {
		return nil, err
	}
	return m.entries, nil
}

// load reads a turn's manifest. Requires t.mu.
func (t *Tree) load(turn string) (*manifest, error) {
	dir, legacy, err := t.turnDir(turn)
	if err != nil {
		return nil, err
	}
	m := &manifest{dir: dir, legacy: legacy, version: 2}
	text, err := t.fs.ReadFile(filepath.Join(dir, manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, fmt.Errorf("undo data of %s: %w: %w", turn, ErrManifest, err)
	}
	if err := m.parse(text); err != nil {
		return nil, fmt.Errorf("undo data of %s: %w: %w", turn, ErrManifest, err)
	}
	return m, nil
}

func (m *manifest) parse(text []byte) (err error) {
	if m.doc, err = jsonedit.ParseObject(text); err != nil {
		return err
	}
	m.version = 1
	if raw, ok := m.doc.Get("version"); ok {
		if m.version, ok = jsonedit.Int(raw); !ok || m.version != 1 && m.version != 2 {
			return fmt.Errorf("unknown version %.40s", raw)
		}
	}
	raw, ok := m.doc.Get("files")
	if !ok && m.version == 1 {
		return nil
	}
	if m.files, err = jsonedit.ParseObject(raw); err != nil {
		return fmt.Errorf("files: %w", err)
	}
	for key, raw := range m.files.All() {
		e, err := decodeEntry(key, raw, m.version)
		if err != nil {
			return fmt.Errorf("file %q: %w", key, err)
		}
		m.entries = append(m.entries, e)
	}
	return nil
}

func decodeEntry(key string, raw []byte, version int64) (Entry, error) {
	o, err := jsonedit.ParseObject(raw)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Key: key, Path: o.Str("path"), PreExisting: o.Truthy("pre_existing"), Added: -1, Removed: -1}
	if !filepath.IsAbs(e.Path) || filepath.Clean(e.Path) != e.Path || !utf8.ValidString(e.Path) {
		return Entry{}, fmt.Errorf("path %q is not absolute", e.Path)
	}
	if version == 1 {
		return e.version1()
	}
	e.Status = Status(o.Str("status"))
	if e.Status != Prepared && e.Status != Committed && e.Status != Aborted {
		return Entry{}, fmt.Errorf("unknown status %q", e.Status)
	}
	get := func(key string) []byte { raw, _ := o.Get(key); return raw }
	var berr, aerr error
	e.Before, berr = decodeState(get("before"))
	e.After, aerr = decodeState(get("after"))
	if err := errors.Join(berr, aerr); err != nil {
		return Entry{}, err
	}
	e.Operation, e.DiffState, e.Error = o.Str("operation"), o.Str("diff_state"), o.Str("error")
	e.Recoverability, e.Reason = o.Str("recoverability"), o.Str("unavailable_reason")
	e.PreparedAt, _ = o.Float("prepared_at")
	e.CommittedAt, _ = o.Float("committed_at")
	e.Sequence, _ = o.Int("mutation_sequence")
	e.Pending = o.Truthy("pending")
	if stats, err := jsonedit.ParseObject(get("stats")); err == nil {
		if n, ok := stats.Int("added"); ok {
			e.Added = n
		}
		if n, ok := stats.Int("removed"); ok {
			e.Removed = n
		}
	}
	e.Locator = decodeLocator(get("project_locator"))
	return e, nil
}

// version1 completes an entry of the first version: a copy of the file, named
// by its key, of which nothing is known but that it may be put back.
func (e Entry) version1() (Entry, error) {
	if !plainName(e.Key) {
		return Entry{}, errors.New("the key is no file name")
	}
	e.Status = Committed
	e.Recoverability = "exact"
	e.Before = &State{Kind: Absent}
	if e.PreExisting {
		e.Before = &State{Kind: Regular, Blob: e.Key}
	}
	return e, nil
}

func decodeLocator(raw []byte) *Locator {
	o, err := jsonedit.ParseObject(raw)
	if err != nil {
		return nil
	}
	l := &Locator{ProjectID: o.Str("project_id"), Root: o.Str("recorded_root"), Path: o.Str("path")}
	l.Identity, _ = o.Get("directory_identity")
	l.Revision, _ = o.Get("location_revision")
	return l
}

func (l *Locator) encode() []byte {
	o := jsonedit.NewObject()
	o.SetAll([]jsonedit.Member{
		{Key: "project_id", Raw: jsonedit.EncodeString(l.ProjectID)},
		{Key: "path", Raw: jsonedit.EncodeString(l.Path)},
		{Key: "recorded_root", Raw: jsonedit.EncodeString(l.Root)},
		{Key: "directory_identity", Raw: l.Identity},
		{Key: "location_revision", Raw: l.Revision},
	})
	return o.Bytes()
}

func (m *manifest) entry(key string) (Entry, bool) {
	for _, e := range m.entries {
		if e.Key == key {
			return e, true
		}
	}
	return Entry{}, false
}

// Where the parts of a manifest stand, which has an indent of 2.
const (
	filesIndent  = "  "
	entryIndent  = "    "
	memberIndent = "      "
)

// set changes members of one file's entry, which is made when there is none.
// All other bytes of the manifest stay. Now is for a manifest that is begun.
func (m *manifest) set(key string, members []jsonedit.Member, now float64) {
	if m.doc == nil {
		m.doc = emptyManifest(now)
	}
	if m.files == nil {
		raw, _ := m.doc.Get("files")
		m.files, _ = jsonedit.ParseObject(raw)
	}
	if m.files == nil {
		m.files = jsonedit.NewObject()
	}
	for i, mb := range members {
		members[i].Raw = jsonedit.Indent(mb.Raw, memberIndent)
	}
	entry := jsonedit.NewObject()
	raw, known := m.files.Get(key)
	if known {
		if old, err := jsonedit.ParseObject(raw); err == nil {
			entry = old
		}
	}
	entry.SetAll(members)
	text := entry.Bytes()
	if !known {
		text = jsonedit.Indent(text, entryIndent)
	}
	if m.files.Len() > 0 {
		m.files.Set(key, text)
		m.doc.Set("files", m.files.Bytes())
		return
	}
	m.files.Set(key, text)
	m.doc.Set("files", jsonedit.Indent(m.files.Bytes(), filesIndent))
}

func emptyManifest(now float64) *jsonedit.Object {
	o := jsonedit.NewObject()
	o.SetAll([]jsonedit.Member{
		{Key: "version", Raw: jsonedit.EncodeInt(2)},
		{Key: "backed_at", Raw: jsonedit.EncodeFloat(now)},
		{Key: "files", Raw: []byte("{}")},
	})
	o, _ = jsonedit.ParseObject(jsonedit.Indent(o.Bytes(), ""))
	return o
}

// save writes a manifest, durably.
func (t *Tree) save(m *manifest) error {
	return disk.WriteAtomic(t.fs, filepath.Join(m.dir, manifestName), m.doc.Bytes(), disk.WriteOptions{})
}
