package store

import (
	"context"
	"path/filepath"
	"time"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/layout"
)

// asideDir is where Repair puts what it takes away, below the root: nothing is
// deleted that anybody might have written.
const asideDir = ".repaired"

// asideName is the directory, relative to the root, of what is set aside at a
// time.
func asideName(now time.Time) string {
	return filepath.Join(asideDir, now.UTC().Format("20060102T150405.000000000Z"))
}

// Repaired is what Repair found and did.
type Repaired struct {
	Mended []Finding // gone now
	Left   []Finding // still there: somebody has to decide
	// Aside is the directory that holds what was taken away, "" when nothing
	// was.
	Aside string
}

// Repair opens a root, mends what can be mended without losing a byte, and
// returns what it mended and what it left. Mended are the registry's rows,
// histories, messages and meta.json files that Git still has, deletions and
// creations that were cut off, runs of dead processes, and leftovers of writes.
// A damaged file is moved to .repaired/ below the root before another takes its
// place, and of one that is only changed a copy goes there. What was changed of a
// session is committed. Sessions limits the work to these ids; none means all. Progress, if
// not nil, is told of each session, three times over: of the check, the repair,
// and the check afterwards. Errors are Open's and Check's.
func Repair(ctx context.Context, opt Options, progress func(done, total int), sessions ...string) (Repaired, error) {
	now := opt.Clock
	if now == nil {
		now = time.Now
	}
	r := &repairer{aside: asideName(now())}
	var err error
	if r.before, err = checkOnly(ctx, opt, progress, sessions, r.look); err != nil {
		return Repaired{}, err
	}
	if err := r.keepAll(); err != nil {
		return Repaired{}, err
	}
	opt.ReadOnly, opt.Reconcile, opt.Watch = false, ReconcileAuto, false
	opt.aside = r.aside
	s, err := Open(ctx, opt)
	if err != nil {
		return Repaired{}, err
	}
	r.s = s
	r.run(ctx, progress)
	r.renewRows(ctx)
	r.commit(ctx)
	if err := s.Close(); err != nil {
		return Repaired{}, err
	}
	r.dropCopies()
	after, err := checkOnly(ctx, opt, progress, sessions, func(*Store, []Finding) {})
	if err != nil {
		return Repaired{}, err
	}
	out := Repaired{Left: after, Mended: difference(r.before, after)}
	if r.moved || s.keptRestored {
		out.Aside = r.aside
	}
	return out, nil
}

// checkOnly checks a root that it opens for reading, and shows look the store
// with what was found.
func checkOnly(ctx context.Context, opt Options, progress func(done, total int), sessions []string, look func(*Store, []Finding)) ([]Finding, error) {
	opt.ReadOnly, opt.Create, opt.Watch = true, false, false
	s, err := Open(ctx, opt)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var out []Finding
	err = s.CheckProgress(ctx, func(f Finding) { out = append(out, f) }, progress, sessions...)
	look(s, out)
	return out, err
}

// difference returns the findings of before that after has not, by kind, place
// and text. One whose text alone is another by then is still there.
func difference(before, after []Finding) []Finding {
	left := map[Finding]int{}
	for _, f := range after {
		left[f]++
	}
	out := subtract(before, left, func(f Finding) Finding { return f })
	reworded := func(f Finding) Finding { f.Severity, f.Text = "", ""; return f }
	others := map[Finding]int{}
	for f, n := range left {
		others[reworded(f)] += n
	}
	return subtract(out, others, reworded)
}

// subtract returns the findings that are not left, and counts those that are
// down.
func subtract(all []Finding, left map[Finding]int, key func(Finding) Finding) (out []Finding) {
	for _, f := range all {
		if k := key(f); left[k] > 0 {
			left[k]--
			continue
		}
		out = append(out, f)
	}
	return out
}

// repairer mends the findings of one root.
type repairer struct {
	s      *Store
	before []Finding
	aside  string // relative to the root
	moved  bool

	fs     disk.FS
	root   string
	copies []keptCopy
	marks  map[string]fingerprint // what sessions with findings were before

	restored map[Finding]bool // kinds that were mended at once for a session
}

// run mends each finding that has a cure. What fails is logged, and found
// again by the check that follows.
func (r *repairer) run(ctx context.Context, progress func(done, total int)) {
	for i, f := range gitFirst(r.before) {
		if ctx.Err() != nil {
			return
		}
		if err := r.mend(ctx, f); err != nil {
			r.s.log.Warn("repair", "kind", f.Kind, "session", f.Session, "err", err)
		}
		if progress != nil {
			progress(i+1, len(r.before))
		}
	}
}

// renewRows makes the rows of what was mended anew: Open, which rebuilds the
// registry, came before the sessions were mended.
func (r *repairer) renewRows(ctx context.Context) {
	done := map[string]bool{"": true}
	for _, f := range r.before {
		if done[f.Session] {
			continue
		}
		done[f.Session] = true
		if err := r.renewRow(f.Session); err != nil {
			r.s.log.Warn("renew row", "session", f.Session, "err", err)
		}
	}
	if err := r.s.list.flush(ctx); err != nil {
		r.s.log.Warn("write registry", "err", err)
	}
}

// renewRow makes a session's row anew, unless its meta.json still says nothing.
func (r *repairer) renewRow(id string) error {
	p, err := r.s.place("repair", id)
	if err != nil {
		return ignoreUnknown(err)
	}
	r.s.list.mu.Lock()
	row, ok := r.s.list.reg.Row(id)
	r.s.list.mu.Unlock()
	if ok && r.s.list.meta(p).trusted {
		r.s.list.renew(listed{place: p, row: row})
	}
	return nil
}

// mend mends one finding. Most of what concerns the root, histories that Git
// still has, holds of dead migrations and dead runs was mended by Open.
func (r *repairer) mend(ctx context.Context, f Finding) error {
	path := filepath.Join(r.s.root, filepath.FromSlash(f.Path))
	if filepath.IsAbs(f.Path) {
		path = f.Path
	}
	switch f.Kind {
	case "row_without_directory":
		return r.dropRow(ctx, f.Session)
	case "temp_file":
		return r.locked(ctx, f.Session, func(layout.Place) error { return r.setAside(path) })
	case "git_lock":
		return r.locked(ctx, f.Session, func(p layout.Place) error { return r.dropGitLock(p, path) })
	case "dead_lease", "running_without_run":
		return r.s.reconcileOne(ctx, f.Session)
	case "half_delete_nodes":
		return r.s.finishDeleteNodes(ctx, f.Session, 0)
	case "node_without_run":
		_, err := r.s.SweepNodes(ctx, f.Session)
		return err
	case "git_index_damaged":
		if err := r.locked(ctx, f.Session, func(layout.Place) error { return r.setAside(path) }); err != nil {
			return err
		}
		return r.recommit(ctx, f.Session)
	case "history_only_in_git":
		return r.replaceHistory(ctx, f.Session)
	case "git_object_missing":
		return r.restoreObjects(ctx, f.Session)
	case "git_config_damaged":
		return r.mendConfig(ctx, f.Session)
	case "lost_node":
		return r.restoreLost(ctx, f.Session)
	case "empty_ref", "missing_ref", "damaged_ref", "head_astray":
		return r.mendRef(ctx, f.Session)
	case "dangling_head", "dangling_predecessor":
		return r.locked(ctx, f.Session, func(p layout.Place) error { return r.restoreMissing(ctx, p) })
	case "meta_missing", "meta_invalid", "unreadable_node":
		return r.locked(ctx, f.Session, func(p layout.Place) error { return r.fromGit(ctx, p, path) })
	}
	return nil
}
