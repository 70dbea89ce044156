package storetest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"time"
)

// Loss says what a power cut takes with it of what was not synced. Everything
// that was synced stays in each of them.
type Loss struct {
	// Names, of the changes of names (made, renamed, removed): Keep, Drop or
	// Some of them.
	Names Choice
	// Data, of what was written into files: Keep, Drop or Some of it. What is
	// dropped is what was there at the last sync, nothing when there was none.
	Data Choice
	// Seed decides what Some means: names in any order that the disk could
	// have chosen, of a file's data a beginning, the right length of zeros,
	// all or nothing.
	Seed uint64
}

// Choice is how much of something stays.
type Choice int

// The choices.
const (
	Keep Choice = iota
	Drop
	Some
)

func (l Loss) String() string {
	word := [...]string{"keep", "drop", "some"}
	return fmt.Sprintf("names:%s data:%s seed:%d", word[l.Names], word[l.Data], l.Seed)
}

// Losses are n lawful outcomes of a power cut: the extremes first, nothing lost
// before all of them, then mixtures that depend on seed.
func Losses(n int, seed uint64) []Loss {
	all := []Loss{{}, {Names: Drop, Data: Drop}, {Names: Keep, Data: Drop}, {Names: Drop, Data: Keep}}
	for i := uint64(0); len(all) < n; i++ {
		all = append(all, Loss{Names: Some, Data: Some, Seed: seed + i})
	}
	return all[:n]
}

// Tree is the content of a directory, in memory.
type Tree struct {
	m    *image
	when time.Time // of everything in it; zero: the time of writing
}

// LoadTree reads a directory.
func LoadTree(root string) (*Tree, error) {
	m := &image{}
	_, err := m.load(root, true)
	return &Tree{m: m}, err
}

// After returns the remembered directory as the disk may hold it when the power
// goes after the given number of steps. All times lie before the start of this
// machine, as they would after a restart. The memory is not changed, so that it
// can be asked again.
func (d *Disk) After(steps int, loss Loss) *Tree {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.rec.begin.clone()
	for _, s := range d.rec.steps[:steps] {
		m.apply(s)
	}
	m.lose(loss)
	return &Tree{m: m, when: beforeBoot()}
}

// Key is the same for trees that are the same.
func (t *Tree) Key() string {
	h := sha256.New()
	fmt.Fprintln(h, t.when.IsZero())
	t.hash(h, 0, map[int]int{})
	return hex.EncodeToString(h.Sum(nil))
}

func (t *Tree) hash(h io.Writer, ino int, seen map[int]int) {
	n := t.m.nodes[ino]
	if first, ok := seen[ino]; ok {
		fmt.Fprintf(h, "again %d\n", first)
		return
	}
	seen[ino] = len(seen)
	fmt.Fprintf(h, "%v %q %d\n", n.mode, n.target, len(n.data))
	_, _ = h.Write(n.data)
	for _, name := range sortedNames(n.names) {
		fmt.Fprintf(h, "%q:", name)
		t.hash(h, n.names[name], seen)
	}
	fmt.Fprintln(h, "end")
}

// Write puts the tree at root, in place of what is there.
func (t *Tree) Write(root string) error {
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	w := writer{m: t.m, made: map[int]string{}, when: t.when}
	return w.dir(0, root)
}

func sortedNames(m map[string]int) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// lose makes the image what is left of it.
func (m *image) lose(loss Loss) {
	rng := rand.New(rand.NewPCG(loss.Seed, 0x5e55))
	lost := map[nameKey]bool{}
	for _, edits := range m.pending {
		drop := loss.Names == Drop || loss.Names == Some && rng.IntN(2) == 0
		for _, e := range edits {
			drop = drop || lost[nameKey{e.dir, e.name}]
		}
		for _, e := range edits {
			if drop {
				lost[nameKey{e.dir, e.name}] = true
				continue
			}
			setName(m.nodes[e.dir].kept, e)
		}
	}
	for _, n := range m.nodes {
		n.names = n.kept
		if n.clean || !n.mode.IsRegular() {
			continue
		}
		switch loss.Data {
		case Drop:
			n.data = n.durable
			if !n.synced {
				n.data = nil
			}
		case Some:
			n.data = n.remains(rng)
		}
	}
}

// remains chooses what is left of unsynced data.
func (n *inode) remains(rng *rand.Rand) []byte {
	old := n.durable
	if !n.synced {
		old = nil
	}
	switch rng.IntN(4) {
	case 0:
		return old
	case 1:
		return n.data[:rng.IntN(len(n.data)+1)]
	case 2:
		return make([]byte, len(n.data))
	}
	return n.data
}

// writer writes an image out.
type writer struct {
	m    *image
	made map[int]string // where a file is already: other names are links
	when time.Time
}

func (w writer) dir(ino int, path string) error {
	n := w.m.nodes[ino]
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	for _, name := range sortedNames(n.names) {
		if err := w.entry(n.names[name], filepath.Join(path, name)); err != nil {
			return err
		}
	}
	return errors.Join(os.Chmod(path, n.mode.Perm()), w.stamp(path))
}

func (w writer) entry(ino int, path string) error {
	n := w.m.nodes[ino]
	switch {
	case n.mode.IsDir():
		return w.dir(ino, path)
	case n.mode&fs.ModeSymlink != 0:
		return os.Symlink(n.target, path)
	}
	if first, ok := w.made[ino]; ok {
		return os.Link(first, path)
	}
	w.made[ino] = path
	if err := os.WriteFile(path, n.data, n.mode.Perm()); err != nil {
		return err
	}
	return w.stamp(path)
}

func (w writer) stamp(path string) error {
	if w.when.IsZero() {
		return nil
	}
	return os.Chtimes(path, w.when, w.when)
}
