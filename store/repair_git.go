package store

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionfs/sessionfs/store/gitrepo"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/safefile"
	"github.com/sessionfs/sessionfs/store/layout"
	"github.com/sessionfs/sessionfs/store/nodefile"
)

// mendRef gives HEAD's branch the commit that its log names last, and a HEAD
// that strayed its branch. What the file held is set aside.
func (r *repairer) mendRef(ctx context.Context, id string) error {
	lost := false
	err := r.locked(ctx, id, func(p layout.Place) error {
		if gitAtWork(p.Dir) || gitrepo.SymlinkedPart(r.s.fs, filepath.Join(p.Dir, ".git")) != "" {
			return nil
		}
		repo, err := gitrepo.Open(p.Dir, r.s.git)
		if err != nil {
			return nil
		}
		defer repo.Close()
		f, err := repo.RefFault()
		if err != nil || f.Kind == gitrepo.RefSound || f.Commit == "" {
			return err
		}
		if through, err := repo.ThroughLink(f.Path); through || err != nil {
			return err
		}
		if err := r.keepCopy(f.Path); err != nil {
			return err
		}
		content := f.Commit
		switch f.Kind {
		case gitrepo.RefLost:
			lost = true
			if f.Empty == "" {
				return nil
			}
			return ignoreMissing(r.s.fs.Remove(f.Empty)) // no byte is lost, and git packs nothing beside it
		case gitrepo.HeadAstray:
			content = "ref: refs/heads/main"
		}
		if err := disk.MkdirOwned(r.s.fs, filepath.Dir(f.Path), 0o755); err != nil {
			return err
		}
		return disk.WriteAtomic(r.s.fs, f.Path, []byte(content+"\n"), disk.WriteOptions{NoReplace: f.Kind == gitrepo.RefMissing})
	})
	if err != nil || !lost {
		return err
	}
	// A commit of ours reads every file again where the last one is lost: what
	// Git's index names may be lost with it.
	return r.recommit(ctx, id)
}

// keepCopy copies a file that is about to be replaced below .repaired/, under
// the path that it has. There is nothing to keep of one that is not there, or
// empty.
func (r *repairer) keepCopy(path string) error {
	rel, err := filepath.Rel(r.s.root, path)
	if err != nil {
		return err
	}
	if strings.HasPrefix(rel, "..") {
		rel = filepath.Join("outside", path) // of a session in its working folder
	}
	raw, err := safefile.ReadRegular(r.s.fs, path)
	if err != nil || len(raw) == 0 {
		return ignoreMissing(err)
	}
	to := filepath.Join(r.s.root, r.aside, rel)
	if err := disk.MkdirOwned(r.s.fs, filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if err := disk.WriteAtomic(r.s.fs, to, raw, disk.WriteOptions{NoReplace: true}); err != nil {
		return err
	}
	r.moved = true
	return nil
}

// restoreLost puts back the messages of a session that the check found to be
// lost: the first of them does it for all.
func (r *repairer) restoreLost(ctx context.Context, id string) error {
	if !r.first("lost_node", id) {
		return nil
	}
	return r.locked(ctx, id, func(p layout.Place) error {
		repo, err := gitrepo.Open(p.Dir, r.s.git)
		if err != nil {
			return nil // found by the check, too
		}
		defer repo.Close()
		log, err := repo.Log(ctx, 1)
		if err != nil || len(log) == 0 {
			return err
		}
		after := deletionAfter(repo, log[0])
		for _, f := range r.before {
			if f.Session != id || f.Kind != "lost_node" {
				continue
			}
			name := filepath.Base(f.Path)
			if _, _, node, ok := nodefile.ParseName(name); !ok || after.took(node) {
				continue // deleted since
			}
			if err := r.restoreFile(ctx, repo, p, name); err != nil {
				return err
			}
		}
		return r.s.Reload(ctx, id)
	})
}

// restoreFile writes the newest sound content of a history file, unless
// something is in its place.
func (r *repairer) restoreFile(ctx context.Context, repo *gitrepo.Repo, p layout.Place, name string) error {
	path := filepath.Join(p.Dir, historyDir, name)
	if _, err := r.s.fs.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	content, err := lastSound(ctx, repo, historyDir+"/"+name)
	if err != nil || content == nil {
		return err
	}
	return disk.WriteAtomic(r.s.fs, path, content, disk.WriteOptions{NoReplace: true})
}

// gitFirst puts the findings first whose repair others need: what is restored
// comes out of Git, and goes into history/.
func gitFirst(found []Finding) []Finding {
	rank := func(f Finding) int {
		switch f.Kind {
		case "empty_ref", "missing_ref", "damaged_ref", "head_astray":
			return 0
		case "git_config_damaged":
			return 1
		case "git_object_missing":
			return 2
		case "history_only_in_git":
			return 3
		}
		return 4
	}
	out := slices.Clone(found)
	slices.SortStableFunc(out, func(a, b Finding) int { return rank(a) - rank(b) })
	return out
}

// replaceHistory sets a file aside that stands in the place of history/, and
// restores that from Git. A history/ that is not there was restored by Open.
func (r *repairer) replaceHistory(ctx context.Context, id string) error {
	var place layout.Place
	err := r.locked(ctx, id, func(p layout.Place) error {
		path := filepath.Join(p.Dir, historyDir)
		if fi, err := r.s.fs.Lstat(path); err != nil || !fi.Mode().IsRegular() {
			return ignoreMissing(err)
		}
		place = p
		return r.setAside(path)
	})
	if err != nil || place.ID == "" {
		return err
	}
	if err := r.s.restoreHistory(ctx, place); err != nil {
		return err
	}
	return r.s.Reload(ctx, id)
}

// mendConfig gives a repository the configuration of a new one when its own was
// cut off. What the file held is set aside.
func (r *repairer) mendConfig(ctx context.Context, id string) error {
	return r.locked(ctx, id, func(p layout.Place) error {
		repo, err := gitrepo.Open(p.Dir, r.s.git)
		if err != nil {
			return nil // found by the check, too
		}
		defer repo.Close()
		_, err = repo.RenewConfig(ctx, func() error { return r.keepCopy(repo.ConfigPath()) })
		return err
	})
}

// first reports whether a kind of finding of a session is mended for the first
// time: that mends all of them.
func (r *repairer) first(kind, id string) bool {
	f := Finding{Kind: kind, Session: id}
	if r.restored[f] {
		return false
	}
	if r.restored == nil {
		r.restored = map[Finding]bool{}
	}
	r.restored[f] = true
	return true
}

// restoreObjects writes the objects again that the newest commit lacks and
// whose bytes are still there. What was left of them is set aside.
func (r *repairer) restoreObjects(ctx context.Context, id string) error {
	if !r.first("git_object_missing", id) {
		return nil
	}
	return r.locked(ctx, id, func(p layout.Place) error {
		repo, err := gitrepo.Open(p.Dir, r.s.git)
		if err != nil {
			return nil // found by the check, too
		}
		defer repo.Close()
		_, err = repo.RestoreObjects(ctx, func(path string) error {
			if err := r.keepCopy(path); err != nil {
				return err
			}
			return ignoreMissing(r.s.fs.Remove(path))
		})
		return err
	})
}
