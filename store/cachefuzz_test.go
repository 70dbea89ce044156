package store

import (
	"testing"

	"github.com/sessionfs/sessionfs/dag"
)

// FuzzIndexCache: whatever a cache holds whose checksum is right, reading it
// ends, and what it gives is whole.
func FuzzIndexCache(f *testing.F) {
	known := knownHistory{
		entries: []Entry{{File: "0001-u-a.json", TextLen: 5, stamp: stamp{1, 2, 3, 4}}, {File: "0002-l-b.json", noSeq: true}},
		nodes:   []dag.Node{{ID: "a", Seq: 1, Role: "user", Predecessor: "ROOT"}, {ID: "other", Role: "llm", Caller: "x", Predecessor: "a", CreatedAt: 1.5}},
		bad:     []knownFile{{entry: Entry{File: "0003-x-c.json"}, bad: true, why: "not readable"}},
		dir:     stamp{9, 8, 7, 0}, maxSeq: 2,
	}
	f.Add(encodeHistory(known))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		r := indexReader{cacheReader: cacheReader{b: body}}
		k := r.history()
		if r.bad {
			return
		}
		if len(k.entries) != len(k.nodes) {
			t.Fatalf("%d files, %d nodes", len(k.entries), len(k.nodes))
		}
		for _, n := range k.nodes {
			if n.ID == "" {
				t.Fatal("a node without an id")
			}
		}
		dag.OwnIndex(k.nodes)
	})
}

// FuzzListCacheRow is the same for a row of the list's cache.
func FuzzListCacheRow(f *testing.F) {
	f.Add(appendMetaRow(nil, metaRow{settled: true, trusted: true, stamp: stamp{1, 2, 3, 4}, fields: []KV{{"title", []byte(`"x"`)}}}))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := cacheReader{b: body}
		if row, ok := readMetaRow(&r); ok && !r.bad && !row.settled {
			t.Fatal("believed without a stamp")
		}
	})
}

// TestIndexCacheRoundTrip: what was written is read again, and nothing else.
func TestIndexCacheRoundTrip(t *testing.T) {
	known := knownHistory{maxSeq: 7, dir: stamp{1, 2, 3, 0}}
	for i, id := range []string{"a", "b", "a", "c"} { // an id twice
		name := []string{"0001-u-a.json", "0002-u-b.json", "0003-u-a.json", "0004-u-x.json"}[i]
		known.entries = append(known.entries, Entry{File: name, stamp: stamp{uint64(i), 5, 6, 7}, TextLen: int64(i)})
		known.nodes = append(known.nodes, dag.Node{ID: id, Seq: int64(i), Role: "user", Predecessor: []string{"ROOT", "a", "b", "a"}[i], Caller: []string{"", "zz", "b", ""}[i]})
	}
	body := encodeHistory(known)
	r := indexReader{cacheReader: cacheReader{b: body}}
	got := r.history()
	if r.bad || len(r.b) > 0 || got.maxSeq != 7 || got.dir != known.dir {
		t.Fatalf("%+v, bad %v, %d bytes left", got, r.bad, len(r.b))
	}
	for i := range known.nodes {
		if got.nodes[i] != known.nodes[i] || got.entries[i].File != known.entries[i].File || got.entries[i].stamp != known.entries[i].stamp || !got.entries[i].settled {
			t.Errorf("%d: %+v, %+v", i, got.nodes[i], got.entries[i])
		}
	}
	for n := range len(body) {
		r := indexReader{cacheReader: cacheReader{b: body[:n]}}
		if r.history(); !r.bad {
			t.Errorf("cut at %d of %d: not noticed", n, len(body))
		}
	}
}
