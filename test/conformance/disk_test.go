package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/test/harness"
)

// diskSession is what the suite itself sees of a session on disk.
type diskSession struct {
	id, dir string
	// symlink is set where the session's directory is a link.
	symlink bool
	// meta is meta.json, nil when it is missing or not an object.
	meta map[string]any
	// created is meta.json's modification time in seconds, 0 when it is missing
	// or reached through a link.
	created float64
}

// diskStore is a root as the suite reads it, before the product opens it.
type diskStore struct {
	root      string
	index     []byte                    // index.json, nil when missing
	registry  []string                  // ids in the order of index.json
	rows      map[string]map[string]any // nil when index.json must be rebuilt
	locations map[string]any
	order     []string // ids of the sessions on disk in discovery order
	sessions  map[string]*diskSession
}

// reservedNames are never sessions (reference 1.2); names that start with a
// dot are skipped besides.
var reservedNames = []string{"projects", "index.json", "locations.json"}

// readDisk reads a root: reference 1.4 for what counts as a session.
func readDisk(t *testing.T, root string) *diskStore {
	t.Helper()
	d := &diskStore{root: root, sessions: map[string]*diskSession{}}
	if b, err := os.ReadFile(filepath.Join(root, "index.json")); err == nil {
		d.index = b
		d.readRegistry(b)
	}
	if b, err := os.ReadFile(filepath.Join(root, "locations.json")); err == nil {
		d.locations = pyObject(b)
	}
	d.discover(root)
	projects, _ := os.ReadDir(filepath.Join(root, "projects"))
	for _, p := range projects {
		if !strings.HasPrefix(p.Name(), ".") {
			d.discover(filepath.Join(root, "projects", p.Name()))
		}
	}
	for id, at := range d.locations {
		if dir, ok := at.(string); ok {
			d.add(id, dir)
		}
	}
	return d
}

func (d *diskStore) readRegistry(b []byte) {
	m := pyObject(b)
	if m == nil {
		return
	}
	d.rows = map[string]map[string]any{}
	// What is no object is no row, and has its place all the same.
	d.registry, _ = members(string(b))
	for id, row := range m {
		if r, ok := row.(map[string]any); ok {
			d.rows[id] = r
		}
	}
}

func (d *diskStore) discover(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || parent == d.root && slices.Contains(reservedNames, e.Name()) {
			continue
		}
		d.add(e.Name(), filepath.Join(parent, e.Name()))
	}
}

// add records a directory that looks like a session: history/ is a directory
// or meta.json a regular file. The first place of an id wins, and a deleted id
// is nowhere.
func (d *diskStore) add(id, dir string) {
	if d.sessions[id] != nil || d.tombstone(id) {
		return
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return
	}
	history, hErr := os.Stat(filepath.Join(dir, "history"))
	meta, mErr := os.Stat(filepath.Join(dir, "meta.json"))
	if (hErr != nil || !history.IsDir()) && (mErr != nil || !meta.Mode().IsRegular()) {
		return
	}
	s := &diskSession{id: id, dir: dir}
	if st, err := os.Lstat(dir); err == nil {
		s.symlink = st.Mode()&os.ModeSymlink != 0
	}
	if b, err := os.ReadFile(filepath.Join(dir, "meta.json")); err == nil {
		s.meta = pyObject(b)
		if !s.symlink {
			s.created = float64(meta.ModTime().UnixMicro()) / 1e6
		}
	}
	d.sessions[id] = s
	d.order = append(d.order, id)
}

func (d *diskStore) tombstone(id string) bool {
	st, err := os.Stat(filepath.Join(d.root, ".deleted", id))
	return err == nil && st.Mode().IsRegular()
}

// trusted reports whether meta.json speaks for its directory: it is there,
// readable, not reached through a link, and does not name another session.
func (s *diskSession) trusted() bool {
	if s.symlink || s.meta == nil {
		return false
	}
	id, ok := s.meta["id"].(string)
	return !ok || id == "" || id == s.id
}

// preview is the registry's preview of a text (reference 6.13).
func preview(text string) string {
	text = strings.ReplaceAll(strings.TrimSpace(withoutHalves(text)), "\n", " ")
	if utf8.RuneCountInString(text) <= 80 {
		return text
	}
	return string([]rune(text)[:77]) + "…"
}

// git runs git in a session's directory; ok is false when it fails.
func git(t *testing.T, dir string, args ...string) (string, bool) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "core.quotepath=false"}, args...)...)
	cmd.Env = append(harness.Environ(t.TempDir()), "GIT_OPTIONAL_LOCKS=0", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	out, err := cmd.Output()
	return string(out), err == nil
}

// isShell reports whether opening removes a session (reference 8.5, narrowed
// to what loses nothing): older than an hour, not archived, without history/
// (an empty one keeps a session: reference 15, row 9), with nothing in Git
// and nothing in workdir/.
func (d *diskStore) isShell(t *testing.T, s *diskSession, now float64) bool {
	t.Helper()
	_, err := os.Lstat(filepath.Join(s.dir, "history"))
	if s.symlink || err == nil || !s.trusted() || truthy(d.row(s.id)["archived"]) {
		return false
	}
	if now-seconds(d.row(s.id)["created_at"]) <= 3600 {
		return false
	}
	work, _ := os.ReadDir(filepath.Join(s.dir, "workdir"))
	for _, e := range work {
		if e.Name() != ".gitkeep" {
			return false
		}
	}
	tree, ok := git(t, s.dir, "ls-tree", "-r", "--name-only", "HEAD")
	return ok && tree == ""
}

// manifest maps every path below root to what identifies its content: mode
// and hash of a file, the target of a link.
func manifest(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case e.IsDir():
			out[rel+"/"] = "directory"
		case e.Type()&os.ModeSymlink != 0:
			out[rel], err = os.Readlink(path)
		default:
			var b []byte
			b, err = os.ReadFile(path)
			out[rel] = sum(b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// quoted is a JSON string with non-ASCII characters as they are.
func quoted(s string) []byte {
	out := []byte{'"'}
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			out = append(out, '\\', byte(r))
		default:
			out = utf8.AppendRune(out, r)
		}
	}
	return append(out, '"')
}
