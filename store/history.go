package store

import (
	"errors"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/layout"
	"github.com/sessionfs/sessionfs/store/nodefile"
)

// knownFile is a history file as it was known before: by the snapshot before,
// or by an earlier process.
type knownFile struct {
	entry Entry
	node  dag.Node
	bad   bool
	why   string // of a bad one
}

// knownHistory is what was known of history/ before.
type knownHistory struct {
	// entries and nodes are the files that hold nodes, and bad those that hold
	// none, each in load order.
	entries []Entry
	nodes   []dag.Node
	bad     []knownFile
	maxSeq  int64 // in a name or a node, -1 when none; of a cache only
	// dir is the stamp of history/ when it held just these files; zero when
	// that is not known for sure.
	dir stamp
}

// files are all files in load order.
func (k *knownHistory) files() []knownFile {
	out := make([]knownFile, 0, len(k.entries)+len(k.bad))
	bad := k.bad
	for i, e := range k.entries {
		for len(bad) > 0 && nodefile.Less(bad[0].entry.File, e.File) {
			out, bad = append(out, bad[0]), bad[1:]
		}
		out = append(out, knownFile{entry: e, node: k.nodes[i]})
	}
	return append(out, bad...)
}

// readHistory fills the index and the file tables from history/. A file that is
// as it was known before is not read.
func (s *Store) readHistory(sn *Snapshot, old *Snapshot) {
	d, err := s.fs.OpenDir(filepath.Join(sn.Dir, historyDir))
	if err != nil {
		sn.Index = dag.NewIndex(nil)
		sn.historyLost(err)
		return
	}
	defer d.Close()
	h := history{s: s, sn: sn, d: d, began: time.Now()}
	known := knownFiles(old)
	if old == nil {
		known = s.cachedHistory(sn)
		if h.unchanged(&known) {
			return
		}
	}
	h.known = known.files()
	if err := h.list(known.dir); err != nil {
		sn.historyLost(err)
	}
	h.look()
	h.read()
	h.assemble()
	h.index(old)
	if old == nil {
		h.save(known.dir)
	}
}

// unchanged takes over what a cache holds of all files, if none has changed
// since. The index is made while others look at the files.
func (h *history) unchanged(k *knownHistory) bool {
	if len(k.entries) == 0 || len(k.bad) > 0 || k.dir == (stamp{}) || k.dir != h.sn.fp.history {
		return false
	}
	var changed atomic.Bool
	var index *dag.Index
	layout.SideBySideWith(len(k.entries), func(first bool) (struct{}, func(), bool) {
		if first {
			index = dag.OwnIndex(k.nodes)
		}
		return struct{}{}, func() {}, true
	}, func(_ struct{}, i int) {
		e := &k.entries[i]
		if changed.Load() {
			return
		}
		if st, err := h.d.Lstat(e.File); err != nil || stampOfStat(st) != e.stamp {
			changed.Store(true)
		}
	})
	if changed.Load() || index == nil {
		return false
	}
	h.sn.Index, h.sn.entries, h.sn.maxSeq, h.sn.listed = index, k.entries, k.maxSeq, true
	return true
}

// history is one reading of a history/.
type history struct {
	s     *Store
	sn    *Snapshot
	d     disk.Dir
	began time.Time
	known []knownFile

	names []string
	files []histFile // parallel to names
	fresh int        // files that had to be read
	nodes []dag.Node
}

// histFile is what became of one name.
type histFile struct {
	known *knownFile // nil: not known, or not any more
	stat  disk.Stat
	err   error     // of lstat, or of reading
	text  *histText // of a file that was read
}

// histText is what reading a file gave.
type histText struct {
	nodefile.Parsed
	size int64
	sum  uint32
}

// list finds the names: those known, when the directory is as it was then.
func (h *history) list(dir stamp) error {
	h.sn.listed = h.sn.fp.history.settled(h.began)
	if dir != (stamp{}) && dir == h.sn.fp.history {
		h.names = make([]string, len(h.known))
		h.files = make([]histFile, len(h.known))
		for i := range h.known {
			h.names[i], h.files[i].known = h.known[i].entry.File, &h.known[i]
		}
		return nil
	}
	var err error
	if h.names, err = historyNames(h.d); err != nil {
		h.sn.listed = false
	}
	h.files = make([]histFile, len(h.names))
	k := 0
	for i, name := range h.names { // both are in load order
		for k < len(h.known) && nodefile.Less(h.known[k].entry.File, name) {
			k++
		}
		if k < len(h.known) && h.known[k].entry.File == name {
			h.files[i].known = &h.known[k]
		}
	}
	return err
}

// look makes the lstat of each file.
func (h *history) look() {
	layout.SideBySide(len(h.names), func(i int) {
		f := &h.files[i]
		f.stat, f.err = h.d.Lstat(h.names[i])
		if f.known != nil && f.known.entry.stamp != stampOfStat(f.stat) {
			f.known = nil
		}
	})
}

// read reads what is not known, side by side.
func (h *history) read() {
	var todo []int
	for i := range h.files {
		f := &h.files[i]
		if f.err == nil && f.stat.Mode.IsRegular() && (f.known == nil || !f.known.entry.settled) {
			todo = append(todo, i)
		}
	}
	h.fresh = len(todo)
	texts := make([]histText, len(todo))
	for k, i := range todo {
		h.files[i].text = &texts[k]
	}
	layout.SideBySideWith(len(todo), h.reader, func(r *histReader, i int) { r.read(&h.files[todo[i]], h.names[todo[i]]) })
	for _, i := range todo {
		f := &h.files[i]
		if f.err != nil || f.known != nil && f.known.entry.sum != f.text.sum {
			f.known = nil
		}
	}
}

// histReader reads files of the directory, from one goroutine.
type histReader struct {
	d   disk.Dir
	buf []byte
}

// reader makes a reader; all but the first have a descriptor of their own.
func (h *history) reader(first bool) (r *histReader, done func(), ok bool) {
	if first {
		return &histReader{d: h.d}, func() {}, true
	}
	d, err := h.s.fs.OpenDir(filepath.Join(h.sn.Dir, historyDir))
	if err != nil {
		return nil, nil, false
	}
	return &histReader{d: d}, func() { _ = d.Close() }, true
}

func (r *histReader) read(f *histFile, name string) {
	raw, err := r.d.ReadInto(name, r.buf[:0])
	if err != nil {
		f.err = err
		return
	}
	r.buf = raw
	f.text.size, f.text.sum = int64(len(raw)), crcOf(raw)
	if f.known == nil || f.known.entry.sum != f.text.sum {
		f.text.Parsed, f.err = nodefile.Parse(raw)
	}
}

func crcOf(raw []byte) uint32 { return crc32.Checksum(raw, crc32.MakeTable(crc32.Castagnoli)) }

// assemble puts the files together in load order.
func (h *history) assemble() {
	sn := h.sn
	h.nodes = make([]dag.Node, 0, len(h.names))
	sn.entries = make([]Entry, 0, len(h.names))
	var next int64
	for i, name := range h.names {
		f := &h.files[i]
		if !h.take(name, f, next) {
			continue
		}
		next = max(next, h.nodes[len(h.nodes)-1].Seq+1)
	}
	for _, name := range h.names {
		if seq, _, _, ok := nodefile.ParseName(name); ok {
			sn.maxSeq = max(sn.maxSeq, seq)
		}
	}
	sn.maxSeq = max(sn.maxSeq, next-1)
}

// take adds one file to the tables, and reports whether it holds a node. A node
// without a seq gets the next one.
func (h *history) take(name string, f *histFile, next int64) bool {
	sn := h.sn
	st := stampOfStat(f.stat)
	settled := f.stat.Settled(h.began)
	switch k := f.known; {
	case f.err != nil:
		if !errors.Is(f.err, fs.ErrNotExist) || st != (stamp{}) {
			sn.addBad(name, st, settled, f.err)
		}
		return false
	case k != nil && k.bad:
		k.entry.settled = settled
		sn.bad = append(sn.bad, k.entry)
		sn.fileProblems = append(sn.fileProblems, Problem{Path: historyDir + "/" + name, Text: k.why})
		return false
	case k != nil:
		e, n := k.entry, k.node
		e.settled = settled
		if e.noSeq {
			n.Seq = next
		}
		h.nodes = append(h.nodes, n)
		sn.entries = append(sn.entries, e)
		return true
	case !f.stat.Mode.IsRegular():
		// Neither read nor shown: what a link leads to is not the session's.
		sn.fileProblems = append(sn.fileProblems, Problem{Path: historyDir + "/" + name, Text: unreadable(errNotRegular)})
		sn.listed = false
		return false
	}
	return h.takeNew(name, f, next, settled)
}

// takeNew is take for a file that was read.
func (h *history) takeNew(name string, f *histFile, next int64, settled bool) bool {
	p, st := f.text, stampOfStat(f.stat)
	if p.SeqMissing {
		p.Node.Seq = next
	}
	if _, _, id, ok := nodefile.ParseName(name); p.IDMissing {
		p.Node.ID = id
	} else if ok && id == p.Node.ID {
		p.Node.ID = id // its bytes are kept once
	}
	if p.Node.ID == "" {
		h.sn.addBad(name, st, settled, errNoID)
		return false
	}
	if p.TimeMissing {
		p.Node.CreatedAt = epoch(st.time())
	}
	st.size = p.size
	h.nodes = append(h.nodes, p.Node)
	h.sn.entries = append(h.sn.entries, Entry{
		File: name, TextLen: p.TextLen, Size: st.size, MTime: st.time(),
		stamp: st, sum: p.sum, settled: settled, noSeq: p.SeqMissing,
	})
	return true
}

// index makes the index, that of the snapshot before with more nodes where
// that is all that changed.
func (h *history) index(old *Snapshot) {
	sn := h.sn
	reused := 0
	for i := range h.files {
		if k := h.files[i].known; k != nil && !k.bad {
			reused++
		}
	}
	if old != nil && reused == len(old.entries) && reused <= len(h.nodes) && sameHead(old, h.nodes) {
		sn.Index = old.Index
		for _, n := range h.nodes[reused:] {
			sn.Index = sn.Index.Append(n)
		}
		return
	}
	sn.Index = dag.NewIndex(h.nodes)
}

// sameHead reports whether nodes begins with exactly the old snapshot's
// nodes, so that the rest can be appended to its index.
func sameHead(old *Snapshot, nodes []dag.Node) bool {
	for i := range old.entries {
		if old.Index.At(i) != nodes[i] {
			return false
		}
	}
	return true
}

// knownFiles is what a snapshot knows.
func knownFiles(old *Snapshot) knownHistory {
	if old == nil {
		return knownHistory{}
	}
	k := knownHistory{entries: old.entries, nodes: old.Index.Nodes(), maxSeq: old.maxSeq}
	if old.listed && old.pending == nil {
		k.dir = old.fp.history
	}
	why := map[string]string{}
	for _, p := range old.fileProblems {
		why[strings.TrimPrefix(p.Path, historyDir+"/")] = p.Text
	}
	for _, e := range old.bad {
		k.bad = append(k.bad, knownFile{entry: e, bad: true, why: why[e.File]})
	}
	return k
}

// historyNames lists the node files of history/ in load order: everything
// that ends in .json, dot-named ones too (reference 2.5).
func historyNames(d interface{ Names() ([]string, error) }) ([]string, error) {
	all, err := d.Names()
	names := all[:0]
	for _, n := range all {
		if strings.HasSuffix(n, nodefile.Ext) {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		switch {
		case a == b:
			return 0
		case nodefile.Less(a, b):
			return -1
		}
		return 1
	})
	return names, err
}
