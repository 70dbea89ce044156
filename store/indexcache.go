package store

import (
	"encoding/binary"
	"strings"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/nodefile"
)

// The cache of a session's index holds what reading history/ gave: for each
// file its stamp, and of its node all but the text. The next process has an
// lstat of each file to make and, while history/ is as it was, not even its
// names to read. A file that changed within the tick of its times is not in
// it, as in Git's index.

const indexMagic = "sessionfs index cache 1\n"

// cacheIndexFrom is the number of history files from which an index is kept:
// fewer are read in no time.
const cacheIndexFrom = 512

// cacheIndexAfter is the number of files that had to be read in spite of the
// cache from which it is written again.
const cacheIndexAfter = 64

// Flags of a file in the cache.
const (
	cachedBad = 1 << iota
	cachedNoSeq
	cachedOwnID // the node's id is the one in the file's name
)

// How an edge's target is given: not at all, as text, or by the number of an
// earlier node plus edgeNode.
const (
	edgeNone = iota
	edgeText
	edgeNode
)

func (s *Store) indexPath(dir string) string { return s.cachePath(cacheName(dir) + ".index") }

// cachedHistory is what an earlier process knew of a session's history.
func (s *Store) cachedHistory(sn *Snapshot) knownHistory {
	body := s.readCache(s.indexPath(sn.Dir), indexMagic)
	if body == nil {
		return knownHistory{}
	}
	r := indexReader{cacheReader: cacheReader{b: body}}
	k := r.history()
	if r.bad || len(r.b) > 0 {
		return knownHistory{}
	}
	return k
}

// indexReader reads the cache of an index.
type indexReader struct {
	cacheReader
	text  string   // what all names and other texts are cut from
	words []string // that nodes have in common
}

func (r *indexReader) history() knownHistory {
	r.text = string(r.bytes())
	k := knownHistory{dir: r.stamp(), maxSeq: r.int()}
	for range r.count(1) {
		r.words = append(r.words, r.string())
	}
	n := r.count(6)
	k.entries, k.nodes = make([]Entry, 0, n), make([]dag.Node, 0, n)
	last := ""
	for range n {
		name := r.file(&k)
		if !nodefile.Less(last, name) {
			r.fail()
		}
		last = name
	}
	if len(r.text) > 0 {
		r.fail()
	}
	return k
}

// string cuts the next text of a given length.
func (r *indexReader) string() string {
	n := r.int()
	if n < 0 || n > int64(len(r.text)) {
		r.fail()
		return ""
	}
	v := r.text[:n]
	r.text = r.text[n:]
	return v
}

func (r *indexReader) word() string {
	i := r.int()
	if i < 0 || i >= int64(len(r.words)) {
		r.fail()
		return ""
	}
	return r.words[i]
}

func (r *indexReader) edge(nodes []dag.Node) string {
	switch i := r.int(); {
	case i == edgeNone:
		return ""
	case i == edgeText:
		return r.string()
	case i >= edgeNode && i-edgeNode < int64(len(nodes)):
		return nodes[i-edgeNode].ID
	}
	r.fail()
	return ""
}

// file adds one file and returns its name.
func (r *indexReader) file(k *knownHistory) string {
	name, st, flags := r.string(), r.stamp(), r.int()
	e := Entry{File: name, Size: st.size, MTime: st.time(), stamp: st, settled: true, noSeq: flags&cachedNoSeq != 0}
	if flags&cachedBad != 0 {
		k.bad = append(k.bad, knownFile{entry: e, bad: true, why: r.string()})
		return name
	}
	e.TextLen = r.int()
	k.nodes = append(k.nodes, dag.Node{})
	n := &k.nodes[len(k.nodes)-1]
	if flags&cachedOwnID != 0 {
		_, _, n.ID, _ = nodefile.ParseName(name)
	} else {
		n.ID = r.string()
	}
	if n.ID == "" {
		r.fail()
	}
	n.Seq, n.Role, n.Name, n.Status = r.int(), r.word(), r.word(), r.word()
	n.Caller, n.Predecessor = r.edge(k.nodes), r.edge(k.nodes)
	n.CreatedAt, n.Flags = r.float(), dag.Flags(r.int())
	k.entries = append(k.entries, e)
	return name
}

// save writes the cache when it would serve better than the one that was read,
// which knew history/ by the stamp dir.
func (h *history) save(dir stamp) {
	path := h.s.indexPath(h.sn.Dir)
	if path == "" || len(h.names) < cacheIndexFrom || h.sn.unread != nil || h.sn.Legacy {
		return
	}
	known := knownFiles(h.sn)
	unsettled := known.dropUnsettled()
	whole := h.sn.listed && unsettled == 0 && len(known.entries)+len(known.bad) == len(h.names)
	if h.fresh-unsettled < cacheIndexAfter && (!whole || dir == h.sn.fp.history) {
		return
	}
	if !whole {
		known.dir = stamp{}
	}
	h.s.later(func() {
		h.s.writeCache(path, indexMagic, encodeHistory(known))
		h.s.pruneCache(h.s.cachePath(""), cacheFileAge)
	})
}

// dropUnsettled takes out what must be read again, and returns how much it was.
func (k *knownHistory) dropUnsettled() (dropped int) {
	entries, nodes, bad := k.entries, k.nodes, k.bad
	k.entries, k.nodes, k.bad = make([]Entry, 0, len(entries)), make([]dag.Node, 0, len(nodes)), nil
	for i, e := range entries {
		if e.settled {
			k.entries, k.nodes = append(k.entries, e), append(k.nodes, nodes[i])
		}
	}
	for _, b := range bad {
		if b.entry.settled {
			k.bad = append(k.bad, b)
		}
	}
	return len(entries) + len(bad) - len(k.entries) - len(k.bad)
}

// later runs something that Close waits for.
func (s *Store) later(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.background.Add(1)
	go func() {
		defer s.background.Done()
		fn()
	}()
}

// indexWriter writes what indexReader reads.
type indexWriter struct {
	b     []byte
	text  strings.Builder
	words map[string]int64
	order []string
	ids   map[string]int64 // of the nodes so far, to their numbers
	nodes int64
}

func encodeHistory(k knownHistory) []byte {
	known := k.files()
	w := indexWriter{words: map[string]int64{}, ids: make(map[string]int64, len(known))}
	w.b = make([]byte, 0, 80*len(known))
	w.int(int64(len(known)))
	for i := range known {
		w.file(&known[i])
	}
	files, names := w.b, w.text.String()
	w.b, w.text = nil, strings.Builder{}
	w.int(k.maxSeq)
	w.int(int64(len(w.order)))
	for _, word := range w.order {
		w.string(word)
	}
	out := appendBytes(make([]byte, 0, len(files)+len(names)+1024), w.text.String()+names)
	return append(append(appendStamp(out, k.dir), w.b...), files...)
}

func (w *indexWriter) int(v int64) { w.b = binary.AppendVarint(w.b, v) }

func (w *indexWriter) string(v string) {
	w.int(int64(len(v)))
	w.text.WriteString(v)
}

func (w *indexWriter) word(v string) {
	i, ok := w.words[v]
	if !ok {
		i = int64(len(w.order))
		w.words[v] = i
		w.order = append(w.order, v)
	}
	w.int(i)
}

func (w *indexWriter) edge(v string) {
	i, ok := w.ids[v]
	switch {
	case v == "":
		w.int(edgeNone)
	case ok:
		w.int(edgeNode + i)
	default:
		w.int(edgeText)
		w.string(v)
	}
}

func (w *indexWriter) file(k *knownFile) {
	e, n := &k.entry, &k.node
	_, _, id, ok := nodefile.ParseName(e.File)
	own := ok && id == n.ID
	w.string(e.File)
	w.b = appendStamp(w.b, e.stamp)
	var flags int64
	for flag, set := range map[int64]bool{cachedBad: k.bad, cachedNoSeq: e.noSeq, cachedOwnID: own && !k.bad} {
		if set {
			flags |= flag
		}
	}
	w.int(flags)
	if k.bad {
		w.string(k.why)
		return
	}
	w.int(e.TextLen)
	if !own {
		w.string(n.ID)
	}
	w.int(n.Seq)
	w.word(n.Role)
	w.word(n.Name)
	w.word(n.Status)
	w.edge(n.Caller)
	w.edge(n.Predecessor)
	w.b = appendFloat(w.b, n.CreatedAt)
	w.int(int64(n.Flags))
	w.ids[n.ID] = w.nodes
	w.nodes++
}
