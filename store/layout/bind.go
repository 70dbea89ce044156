package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// Bind enters a session into its project's session_ids in the project
// registry, durably; all else in the file keeps its bytes. An unknown project
// is an error, a session that is entered already is none. The registry belongs
// to the peer, which takes no lock for it either: the caller holds the lock
// "projects" against others like itself.
func (l *Layout) Bind(pid, id string) error {
	return l.editBinding(pid, func(ids [][]byte) ([][]byte, bool) {
		if indexOf(ids, id) >= 0 {
			return ids, false
		}
		return append(slices.Clone(ids), jsonedit.EncodeString(id)), true
	})
}

// Unbind removes a session from its project's session_ids, as Bind enters it.
// A session that is bound to none is no error.
func (l *Layout) Unbind(id string) error {
	p, ok := l.BoundProject(id)
	if !ok {
		return nil
	}
	return l.editBinding(p.ID, func(ids [][]byte) ([][]byte, bool) {
		i := indexOf(ids, id)
		if i < 0 {
			return ids, false
		}
		return slices.Delete(slices.Clone(ids), i, i+1), true
	})
}

func indexOf(ids [][]byte, id string) int {
	return slices.IndexFunc(ids, func(raw []byte) bool {
		s, ok := jsonedit.String(raw)
		return ok && s == id
	})
}

// editBinding rewrites one project's session_ids.
func (l *Layout) editBinding(pid string, edit func(ids [][]byte) ([][]byte, bool)) error {
	if l.projects.path == "" {
		return nil
	}
	data, err := l.fs.ReadFile(l.projects.path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("project %s: there is no project registry", pid)
	}
	if err != nil {
		return err
	}
	records, err := jsonedit.ParseObject(data)
	if err != nil {
		return fmt.Errorf("project registry: %w", err)
	}
	raw, _ := records.Get(pid)
	rec, err := jsonedit.ParseObject(raw)
	if err != nil {
		return fmt.Errorf("project %s: no such project", pid)
	}
	list, _ := rec.Get("session_ids")
	ids, _ := jsonedit.Array(list)
	ids, changed := edit(ids)
	if !changed {
		return nil
	}
	// The list stands two levels deep in a file laid out with an indent of 2.
	rec.Set("session_ids", jsonedit.Indent(jsonedit.EncodeArray(ids), "    "))
	records.Set(pid, rec.Bytes())
	return disk.WriteAtomic(l.fs, l.projects.path, records.Bytes(), disk.WriteOptions{})
}
