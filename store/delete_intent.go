package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
	"github.com/sessionfs/sessionfs/store/layout"
)

// Deleting nodes is several removals, so a durable intent comes before the
// first (docs/store-format.md): from then on every reader of ours shows the
// session without the nodes, and whoever changes the session next, this process
// or another, carries the rest out first. It lies in .git, where no commit
// takes it in and the peer does not look; the peer's own intents are other
// files (reference 2.10).
const (
	deleteIntentName    = "sessionfs-delete.json"
	deleteIntentVersion = 1
)

// deleteIntent is what is to be deleted.
type deleteIntent struct {
	// commit has all of the files, to put back what somebody goes on from.
	commit string
	files  []doomedFile
	// left are nodes that hang on the deleted ones and stay: who else does came
	// later.
	left map[string]bool
}

// doomedFile is a history file to remove: this name with this content, so that
// what somebody wrote since, under the same name even, is not taken for it.
type doomedFile struct {
	name, id, sum       string
	predecessor, caller string
}

// pendingDelete is an intent that was found beside a session.
type pendingDelete struct {
	err     error // it is not understood, or cannot be read: the rest is empty
	intent  *deleteIntent
	meta    []byte // meta.json as it is on disk; the snapshot has it as it will be
	unlink  []string
	restore []doomedFile
}

var errUnknownDelete = errors.New("an unfinished deletion that this version does not understand")

// deleteIntentFile finds where the intent of the session at dir is, or would be:
// in its Git directory, to which .git may also be a file that points. The error
// wraps fs.ErrNotExist when there is no intent.
func (s *Store) deleteIntentFile(dir string) (path string, err error) {
	path = filepath.Join(dir, ".git", deleteIntentName)
	if _, err = s.fs.Lstat(path); !errors.Is(err, syscall.ENOTDIR) {
		return path, err
	}
	git, err := gitrepo.GitDir(s.fs, dir)
	if err != nil {
		return path, fmt.Errorf("%w: %w", fs.ErrNotExist, err) // no repository, and so no intent
	}
	path = filepath.Join(git, deleteIntentName)
	_, err = s.fs.Lstat(path)
	return path, err
}

// bytes is the intent's text.
func (in *deleteIntent) bytes(now float64) []byte {
	str := jsonedit.EncodeString
	files := make([][]byte, len(in.files))
	for i, f := range in.files {
		o := jsonedit.NewObject()
		o.SetAll([]jsonedit.Member{
			{Key: "file", Raw: str(f.name)}, {Key: "id", Raw: str(f.id)}, {Key: "sha256", Raw: str(f.sum)},
			{Key: "predecessor", Raw: str(f.predecessor)}, {Key: "caller", Raw: str(f.caller)},
		})
		files[i] = o.Bytes()
	}
	var left []string
	for id := range in.left {
		left = append(left, id)
	}
	o := jsonedit.NewObject()
	o.SetAll([]jsonedit.Member{
		{Key: "version", Raw: jsonedit.EncodeInt(deleteIntentVersion)},
		{Key: "created_at", Raw: jsonedit.EncodeFloat(now)},
		{Key: "commit", Raw: str(in.commit)},
		{Key: "nodes", Raw: jsonedit.EncodeArray(files)},
		{Key: "left", Raw: jsonedit.EncodeStrings(left)},
	})
	return o.Bytes()
}

// parseDeleteIntent reads an intent. It comes from the disk and names files to
// remove, so a name that is not plainly one of history/ makes it invalid.
func parseDeleteIntent(raw []byte) (*deleteIntent, error) {
	o, err := jsonedit.ParseObject(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnknownDelete, err)
	}
	if v, ok := o.Int("version"); !ok || v != deleteIntentVersion {
		return nil, errUnknownDelete
	}
	in := &deleteIntent{commit: o.Str("commit"), left: map[string]bool{}}
	nodes, _ := o.Get("nodes")
	files, ok := jsonedit.Array(nodes)
	if !ok {
		return nil, errUnknownDelete
	}
	for _, raw := range files {
		f, err := jsonedit.ParseObject(raw)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errUnknownDelete, err)
		}
		d := doomedFile{name: f.Str("file"), id: f.Str("id"), sum: f.Str("sha256"), predecessor: f.Str("predecessor"), caller: f.Str("caller")}
		if d.id == "" || !strings.HasSuffix(d.name, ".json") || strings.Contains(d.name, "/") {
			return nil, errUnknownDelete
		}
		in.files = append(in.files, d)
	}
	rawLeft, _ := o.Get("left")
	left, _ := jsonedit.Array(rawLeft)
	for _, raw := range left {
		if id, ok := jsonedit.String(raw); ok {
			in.left[id] = true
		}
	}
	return in, nil
}

// newDeleteIntent describes the deletion of nodes.
func (t *tx) newDeleteIntent(doomed map[string]bool, commit string) (*deleteIntent, error) {
	in := &deleteIntent{commit: commit, left: map[string]bool{}}
	for i, e := range t.sn.entries {
		n := t.sn.Index.At(i)
		if !doomed[n.ID] {
			if doomed[n.Predecessor] || doomed[n.Caller] {
				in.left[n.ID] = true
			}
			continue
		}
		raw, err := t.sn.Raw(e.File)
		if err != nil {
			return nil, t.asOp(err)
		}
		in.files = append(in.files, doomedFile{e.File, n.ID, sumOf(raw), n.Predecessor, n.Caller})
	}
	return in, nil
}

func sumOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// writeDeleteIntent makes the deletion a thing that will happen.
func (t *tx) writeDeleteIntent(in *deleteIntent) error {
	path, _ := t.s.deleteIntentFile(t.place.Dir)
	text := in.bytes(t.timestamp())
	// A name that JSON does not give back as it was cannot be removed later.
	again, err := parseDeleteIntent(text)
	if err != nil || len(again.files) != len(in.files) {
		return t.fail(Corrupt, historyDir, errors.Join(errors.New("a node has a name that cannot be recorded"), err))
	}
	for i, f := range in.files {
		if again.files[i] != f {
			return t.fail(Corrupt, f.name, errors.New("the node has a name that cannot be recorded"))
		}
	}
	t.sweepIntentTemps(filepath.Dir(path))
	if err := disk.WriteAtomic(t.s.fs, path, text, disk.WriteOptions{}); err != nil {
		// It may be there all the same, and would be carried out.
		t.dropDeleteIntent()
		t.reread()
		return t.diskFail("delete intent", err)
	}
	return nil
}

// sweepIntentTemps removes what a write of an intent that was cut off left:
// the session's lock is held, so it is nobody's.
func (t *tx) sweepIntentTemps(dir string) {
	entries, err := t.s.fs.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), deleteIntentName+".") && disk.IsTemp(e.Name()) {
			_ = t.s.fs.Remove(filepath.Join(dir, e.Name())) // the next one tries again
		}
	}
}

// dropDeleteIntent removes the intent. One that stays is carried out again,
// which changes nothing when it was.
func (t *tx) dropDeleteIntent() {
	file, _ := t.s.deleteIntentFile(t.place.Dir)
	err := ignoreMissing(t.s.fs.Remove(file))
	if err := errors.Join(err, t.s.fs.SyncDir(filepath.Dir(file))); err != nil {
		t.s.log.Warn("remove delete intent", "session", t.se.id, "err", err)
	}
}

// hideDoomed takes out of a snapshot that was just read what an unfinished
// deletion is about to remove, its names, and the head if it is among it: half
// a deletion is shown as a whole one.
func (s *Store) hideDoomed(sn *Snapshot, place layout.Place) {
	if !place.Openable || place.Legacy {
		return
	}
	file, err := s.deleteIntentFile(sn.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	raw, err := s.readOwn(file)
	if errors.Is(err, fs.ErrNotExist) {
		return // gone meanwhile
	}
	// No fingerprint tells when the intent goes, so the state is never fresh.
	sn.fp.openable = !sn.fp.openable
	sn.pending = &pendingDelete{meta: sn.meta.raw}
	var in *deleteIntent
	if err == nil {
		in, err = parseDeleteIntent(raw)
	}
	if err != nil {
		if failedRead(err) {
			sn.unread = err
		}
		sn.pending.err = err
		sn.fileProblems = append(sn.fileProblems, Problem{Path: path.Join(".git", deleteIntentName), Text: err.Error()})
		return
	}
	sn.pending.intent = in
	sn.hide(sn.pending)
}

// hide applies an intent to a snapshot, and notes what is left to do.
func (sn *Snapshot) hide(p *pendingDelete) {
	kept := sn.goneOnFrom(p.intent)
	hidden, names := map[string]bool{}, map[string]bool{}
	for _, e := range sn.entries {
		names[e.File] = true
	}
	for _, f := range p.intent.files {
		switch {
		case !kept[f.id]:
			hidden[f.id] = true
		case !names[f.name]:
			p.restore = append(p.restore, f)
		}
	}
	if sn.meta.err == nil && !sn.meta.missing {
		m := sn.meta.obj.Clone()
		dropBranchEntries(m, hidden)
		if hidden[sn.Head] {
			assignHead(m, sn.survivor(sn.Head, hidden))
		}
		sn.meta.obj, sn.meta.raw = m, m.Bytes()
		sn.Head = sn.meta.head()
	}
	entries := make([]Entry, 0, len(sn.entries))
	for i, e := range sn.entries {
		if hidden[sn.Index.At(i).ID] {
			p.unlink = append(p.unlink, e.File)
			continue
		}
		entries = append(entries, e)
	}
	sn.Index, sn.entries = sn.Index.Without(hidden), entries
}

// goneOnFrom lists the nodes of an intent that must stay because somebody wrote
// to them, or went on from them, after it was made: another program that does
// not know it. They stay with everything that they follow and that they called,
// as they do when another branch reaches them.
func (sn *Snapshot) goneOnFrom(in *deleteIntent) map[string]bool {
	edges, byName := map[string][]string{}, map[string]doomedFile{}
	for _, f := range in.files {
		byName[f.name] = f
		edges[f.id] = append(edges[f.id], f.predecessor, f.caller)
	}
	kept := map[string]bool{}
	var keep func(id string)
	keep = func(id string) {
		up, doomed := edges[id]
		if !doomed || kept[id] {
			return
		}
		kept[id] = true
		for _, id := range up {
			keep(id)
		}
		for _, f := range in.files {
			if f.caller == id {
				keep(f.id)
			}
		}
	}
	for i, e := range sn.entries {
		n := sn.Index.At(i)
		if _, doomed := edges[n.ID]; !doomed && in.left[n.ID] || doomed && sn.unchanged(e, byName) {
			continue
		}
		keep(n.ID)
		keep(n.Predecessor)
		keep(n.Caller)
	}
	return kept
}

// unchanged reports whether a history file is exactly one that is to be
// removed.
func (sn *Snapshot) unchanged(e Entry, doomed map[string]doomedFile) bool {
	f, ok := doomed[e.File]
	if !ok {
		return false
	}
	raw, err := sn.Raw(e.File)
	return err == nil && sumOf(raw) == f.sum
}

// finishDelete carries out a deletion that was cut off, before anything else
// happens to the session. While a run is active nothing can be: it may be
// about to go on from what is to be deleted.
//
// Requires the session's locks.
func (t *tx) finishDelete(ctx context.Context) error {
	_, err := t.s.deleteIntentFile(t.place.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return t.diskFail("delete intent", err)
	}
	t.reread()
	if err := t.writable(); err != nil {
		return err
	}
	p := t.sn.pending
	switch {
	case p == nil:
		return nil
	case p.err != nil:
		return t.fail(ReadOnly, "", p.err)
	}
	if err := t.refuseActiveRun(); err != nil {
		return err
	}
	if err := t.carryOut(ctx, p); err != nil {
		t.reread()
		return err
	}
	t.dropDeleteIntent()
	t.reread()
	t.s.log.Info("finished a deletion that was cut off", "session", t.se.id, "nodes", len(p.unlink), "kept", len(p.restore))
	return nil
}

// finishDeleteNodes carries out what a crash left of a deletion in a session;
// timeout 0 is the usual wait for its lock.
func (s *Store) finishDeleteNodes(ctx context.Context, id string, timeout time.Duration) error {
	return s.change(ctx, "finish deletion", id, timeout, func(*tx) error { return nil })
}

// carryOut does what is left of a deletion, in the order of deleteNodes.
func (t *tx) carryOut(ctx context.Context, p *pendingDelete) error {
	if err := t.putBack(ctx, p); err != nil {
		return err
	}
	if text := t.sn.meta.raw; !bytes.Equal(text, p.meta) {
		if err := disk.WriteAtomic(t.s.fs, filepath.Join(t.place.Dir, metaFile), text, disk.WriteOptions{}); err != nil {
			return t.diskFail(metaFile, err)
		}
	}
	return t.unlink(p.unlink)
}

// putBack restores the files of nodes that somebody has gone on from.
func (t *tx) putBack(ctx context.Context, p *pendingDelete) error {
	if len(p.restore) == 0 {
		return nil
	}
	r, err := t.repo()
	if err != nil {
		return err
	}
	for _, f := range p.restore {
		e, err := r.Stat(ctx, p.intent.commit, path.Join(historyDir, f.name))
		var content []byte
		if err == nil {
			content, err = r.Blob(ctx, e.Hash)
		}
		if err != nil || !sound(f.name, content) {
			// Check finds the gap, and nothing else is lost by going on.
			t.s.log.Error("a message is gone that another one follows", "session", t.se.id, "file", f.name, "err", err)
			continue
		}
		err = disk.WriteAtomic(t.s.fs, filepath.Join(t.place.Dir, historyDir, f.name), content, disk.WriteOptions{NoReplace: true})
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return t.diskFail(f.name, err)
		}
	}
	return nil
}

// unlink removes history files, each by its exact name, the newest first:
// followers before what they follow.
func (t *tx) unlink(names []string) error {
	dir := filepath.Join(t.place.Dir, historyDir)
	for i := len(names) - 1; i >= 0; i-- {
		if err := ignoreMissing(t.s.fs.Remove(filepath.Join(dir, names[i]))); err != nil {
			return t.diskFail(names[i], fmt.Errorf("remove node: %w", err))
		}
	}
	if err := t.s.fs.SyncDir(dir); err != nil {
		return t.diskFail(historyDir, err)
	}
	return nil
}
