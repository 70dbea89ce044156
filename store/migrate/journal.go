package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// The stages of a row (reference 12.1). The peer has others, which are
// unfinished.
const (
	StageInventory = "inventory"
	StageCopy      = "copy"
	StageVerify    = "verify"
	StagePublish   = "publish"
	StageCleanup   = "cleanup"
	StageDone      = "done"
	StagePending   = "pending"
	StageDeferred  = "deferred"
	StageFailed    = "failed"
	StageDeleted   = "deleted"
)

// registryTimeout bounds the wait for a registry lock (reference 3.1).
const registryTimeout = 15 * time.Second

// conversionsName is the journal of conversions, beside the peer's.
const conversionsName = "conversions.json"

// Row is a session's row in the journal.
type Row struct {
	SessionID, ProjectID string
	Source, Destination  string
	SourceUnavailable    bool
	Stage, Error         string
	// Conversion: the row is one of the journal of conversions.
	Conversion bool
	// Kept are paths that were set aside and not removed.
	Kept []string
	// CleaningUp: the session is done, but old data is still to be removed.
	CleaningUp bool

	inventory, recovery   []entry
	published, publishedR string // digests of what was, or may have been, published
	recoverySource        string
	cleanup               []leftover
}

// leftover is old data on its way out. It is part of a row from before it is
// renamed until it is gone.
type leftover struct {
	of    string // "session" or "recovery"
	path  string
	aside string
	// verified: everything in it is known to be in the destination.
	verified bool
}

func (row Row) unfinished() bool {
	return row.Stage != StageDone && row.Stage != StageDeleted || row.CleaningUp
}

func (row Row) result() Result {
	return Result{
		SessionID: row.SessionID, Stage: row.Stage, Source: row.Source, Destination: row.Destination,
		Converted: row.Conversion, Kept: row.Kept,
	}
}

// Pending returns the rows of both journals that are not done, by session id:
// migrations that were begun or tried. New work on their projects has to wait
// (reference 12.4). A row that is done but for the removal of old data is left
// out; RunAll finishes it.
func Pending(cfg Config) (map[string]Row, error) {
	r, err := newRunner(cfg)
	if err != nil {
		return nil, err
	}
	out := map[string]Row{}
	for _, conversions := range []bool{false, true} {
		rows, err := r.rows(conversions)
		if err != nil {
			return nil, err
		}
		for sid, row := range rows {
			if row.Stage != StageDone && row.Stage != StageDeleted {
				out[sid] = row
			}
		}
	}
	return out, nil
}

// Stage returns the stage that a session's migration is in: that of a row that
// is not done, else "done" where there is one, else "".
func Stage(cfg Config, sid string) (string, error) {
	r, err := newRunner(cfg)
	if err != nil {
		return "", err
	}
	stage := ""
	for _, conversions := range []bool{false, true} {
		row, ok, err := r.row(sid, conversions)
		if err != nil {
			return "", err
		}
		if ok && (stage == "" || stage == StageDone) {
			stage = row.Stage
		}
	}
	return stage, nil
}

func (r *runner) journalPath(conversions bool) string {
	path := r.Layout.JournalPath()
	if conversions {
		path = filepath.Join(filepath.Dir(path), conversionsName)
	}
	return path
}

// rows reads a journal. It takes no lock: the file is replaced whole.
func (r *runner) rows(conversions bool) (map[string]Row, error) {
	_, sessions, _, err := r.readJournal(r.journalPath(conversions))
	if err != nil {
		return nil, err
	}
	rows := map[string]Row{}
	for sid, raw := range sessions.All() {
		o, err := jsonedit.ParseObject(raw)
		if err != nil {
			continue
		}
		row := parseRow(sid, o)
		row.Conversion = conversions
		rows[sid] = row
	}
	return rows, nil
}

func (r *runner) row(sid string, conversions bool) (Row, bool, error) {
	_, sessions, _, err := r.readJournal(r.journalPath(conversions))
	if err != nil {
		return Row{}, false, err
	}
	raw, _ := sessions.Get(sid)
	o, err := jsonedit.ParseObject(raw)
	if err != nil {
		return Row{}, false, nil // no row, or none that says anything
	}
	row := parseRow(sid, o)
	row.Conversion = conversions
	return row, true, nil
}

// readJournal returns the document and its rows. A missing or invalid one is
// empty (reference 12.1); damaged is the text of an invalid one.
func (r *runner) readJournal(path string) (doc, sessions *jsonedit.Object, damaged []byte, err error) {
	data, err := r.FS.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil, fmt.Errorf("migration journal: %w", err)
	}
	if err == nil {
		if doc, err := jsonedit.ParseObject(data); err == nil {
			raw, _ := doc.Get("sessions")
			if sessions, err := jsonedit.ParseObject(raw); err == nil {
				return doc, sessions, nil, nil
			}
		}
		r.Log.Warn("migration journal cannot be understood", "path", path)
	}
	doc = jsonedit.NewObject()
	doc.Set("version", jsonedit.EncodeInt(1))
	return doc, jsonedit.NewObject(), data, nil
}

// update changes one row, durably; other rows and unknown keys stay.
func (r *runner) update(sid string, conversions bool, edit func(*jsonedit.Object)) error {
	path := r.journalPath(conversions)
	// Not the caller's context: what happened has to be written down.
	lock, err := filelock.Acquire(context.Background(), r.Layout.RegistryLockPath("migration-journal"), registryTimeout)
	if err != nil {
		return fmt.Errorf("migration journal: %w", err)
	}
	err = r.updateLocked(path, sid, edit)
	return errors.Join(err, lock.Unlock())
}

// updateLocked requires the registry lock migration-journal.
func (r *runner) updateLocked(path, sid string, edit func(*jsonedit.Object)) error {
	if err := disk.MkdirOwned(r.FS, filepath.Dir(path), 0o755); err != nil {
		return err
	}
	doc, sessions, damaged, err := r.readJournal(path)
	if err != nil {
		return err
	}
	if len(damaged) > 0 {
		aside := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".damaged")
		if err := disk.WriteAtomic(r.FS, aside, damaged, disk.WriteOptions{}); err != nil {
			return err
		}
	}
	row := jsonedit.NewObject()
	if raw, ok := sessions.Get(sid); ok {
		if o, err := jsonedit.ParseObject(raw); err == nil {
			row = o
		}
	}
	before := bytes.Clone(row.Bytes())
	row.Set("session_id", jsonedit.EncodeString(sid))
	edit(row)
	if bytes.Equal(before, row.Bytes()) {
		return nil
	}
	sessions.Set(sid, row.Bytes())
	doc.Set("sessions", sessions.Bytes())
	return disk.WriteAtomic(r.FS, path, jsonedit.Indent(doc.Bytes(), ""), disk.WriteOptions{})
}

func parseRow(sid string, o *jsonedit.Object) Row {
	row := Row{
		SessionID: sid, ProjectID: o.Str("project_id"), Source: o.Str("source"), Destination: o.Str("destination"),
		SourceUnavailable: o.Truthy("source_unavailable"), Stage: o.Str("stage"), Error: o.Str("error"),
		published: o.Str("published"), publishedR: o.Str("recovery_published"), recoverySource: o.Str("recovery_source"),
	}
	raw, _ := o.Get("inventory")
	row.inventory = parseInventory(raw)
	raw, _ = o.Get("recovery_inventory")
	row.recovery = parseInventory(raw)
	raw, _ = o.Get("kept")
	kept, _ := jsonedit.Array(raw)
	for _, k := range kept {
		if s, ok := jsonedit.String(k); ok {
			row.Kept = append(row.Kept, s)
		}
	}
	raw, _ = o.Get("cleanup")
	items, _ := jsonedit.Array(raw)
	for _, it := range items {
		if l, err := jsonedit.ParseObject(it); err == nil {
			row.cleanup = append(row.cleanup, leftover{l.Str("of"), l.Str("path"), l.Str("aside"), l.Truthy("verified")})
		}
	}
	row.CleaningUp = len(row.cleanup) > 0
	return row
}

func encodeLeftovers(list []leftover) []byte {
	var elems [][]byte
	for _, l := range list {
		o := jsonedit.NewObject()
		o.SetAll([]jsonedit.Member{
			{Key: "of", Raw: jsonedit.EncodeString(l.of)},
			{Key: "path", Raw: jsonedit.EncodeString(l.path)},
			{Key: "aside", Raw: jsonedit.EncodeString(l.aside)},
			{Key: "verified", Raw: jsonedit.EncodeBool(l.verified)},
		})
		elems = append(elems, o.Bytes())
	}
	return jsonedit.EncodeArray(elems)
}
