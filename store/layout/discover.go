package layout

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Discover returns the place of every session on disk that is not deleted, in
// the order of reference 1.4: the directories under the root, those under
// projects/, then the recorded places and those in projects' working folders. Each id comes once, with the place that
// Resolve gives it; a session whose place cannot be known is left out and
// logged. The error is that of a root, or delete intents, that cannot be read.
func (l *Layout) Discover() ([]Place, error) {
	dead, err := l.deadIDs()
	if err != nil {
		return nil, err
	}
	entries, err := l.fs.ReadDir(l.root)
	if err != nil {
		return nil, fmt.Errorf("discover sessions: %w", err)
	}
	ids := make([]string, 0, len(entries))
	for _, e := range entries {
		if !hidden(e.Name()) && mayBeDir(e) && !dead[e.Name()] {
			ids = append(ids, e.Name())
		}
	}
	d := discovery{l: l, view: l.view(), dead: dead, places: make([]Place, 0, len(ids))}
	d.addRoot(ids)
	for _, pid := range l.projectDirs() {
		d.addProject(pid)
	}
	for _, id := range d.view.locations.order {
		if ValidID(id) == nil {
			d.add(id, l.scan)
		}
	}
	// Last, what still lies in the working folder of its project, recorded
	// nowhere: a migration source, which is served and must be listed.
	for _, id := range slices.Sorted(maps.Keys(d.view.projects.bound)) {
		if ValidID(id) == nil {
			d.add(id, func(string) (string, bool) { return "", false })
		}
	}
	l.looks.prune(d.places)
	return d.places, nil
}

func (l *Layout) deadIDs() (map[string]bool, error) {
	ids, err := l.Tombstones()
	if err != nil {
		return nil, err
	}
	dead := make(map[string]bool, len(ids))
	for _, id := range ids {
		dead[id] = true
	}
	return dead, nil
}

type discovery struct {
	l      *Layout
	view   view
	dead   map[string]bool // ids deleted
	found  map[string]bool // ids of places, made when it is asked
	places []Place
}

// addRoot takes in what lies right below the root, each name once and none of a
// deleted session. Of most sessions no small file says anything: where they were
// found is where they are.
func (d *discovery) addRoot(ids []string) {
	looked := d.l.inspectAll(ids)
	for i, id := range ids {
		d.view.looked = Place{}
		if looked != nil {
			d.view.looked = looked[i]
		}
		if d.view.looked.Present && d.view.plain(id) {
			d.places = append(d.places, d.view.looked)
			continue
		}
		d.find(id, func(string) (string, bool) { return "", false })
	}
	d.view.looked = Place{}
}

// seen reports whether a session was found before, or is deleted.
func (d *discovery) seen(id string) bool {
	if d.found == nil {
		d.found = make(map[string]bool, len(d.places))
	}
	for _, p := range d.places[len(d.found):] {
		d.found[p.ID] = true
	}
	return d.dead[id] || d.found[id]
}

// add takes a session in, if it is one and was not found before.
func (d *discovery) add(id string, scan scanner) {
	if !d.seen(id) {
		d.find(id, scan)
	}
}

// find takes a session in, if it is one.
func (d *discovery) find(id string, scan scanner) {
	p, err := d.l.find(d.view, id, scan)
	if err != nil {
		d.l.log.Warn("session not listed", "session", id, "err", err)
		return
	}
	if p.Present {
		d.places = append(d.places, p)
	}
}

func (d *discovery) addProject(pid string) {
	entries, err := d.l.fs.ReadDir(filepath.Join(d.l.root, projectsName, pid))
	if err != nil {
		d.l.log.Warn("project's sessions not listed", "project", pid, "err", err)
		return
	}
	here := func(string) (string, bool) { return pid, true }
	for _, e := range entries {
		if id := e.Name(); mayBeDir(e) && !strings.HasPrefix(id, ".") && ValidID(id) == nil {
			d.add(id, here)
		}
	}
}

// projectDirs returns the directories under projects/, sorted.
func (l *Layout) projectDirs() []string {
	entries, err := l.fs.ReadDir(filepath.Join(l.root, projectsName))
	if err != nil && !absent(err) {
		l.log.Warn("projects not listed", "err", err)
	}
	var pids []string
	for _, e := range entries {
		if mayBeDir(e) && nestable(e.Name()) {
			if fi, err := l.fs.Stat(filepath.Join(l.root, projectsName, e.Name())); err == nil && fi.IsDir() {
				pids = append(pids, e.Name())
			}
		}
	}
	return pids
}

// mayBeDir passes directories, and symlinks, which may lead to one. A file
// system that does not tell has type 0 of a regular file only after a stat,
// which package os makes for us.
func mayBeDir(e fs.DirEntry) bool {
	return e.IsDir() || e.Type()&fs.ModeSymlink != 0
}
