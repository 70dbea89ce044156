package store

import (
	"encoding/binary"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sessionfs/sessionfs/store/internal/disk"
	"github.com/sessionfs/sessionfs/store/registry"
)

// The cache of a listing holds what scan learned of each session: that its
// directory holds an openable one, and the fields of its meta.json. The next
// process has one lstat of either to make, and nothing to read.

const listMagic = "sessionfs list cache 1\n"

// cacheListFrom is the number of sessions from which a listing is kept, and
// cacheListAfter the number of changes after which it is written again.
const (
	cacheListFrom  = 256
	cacheListAfter = 64
)

// loadCache takes over what an earlier process learned.
func (l *listing) loadCache() {
	body := l.s.readCache(l.s.cachePath("list"), listMagic)
	if body == nil {
		return
	}
	r := cacheReader{b: body}
	root := r.stamp()
	if fi, err := l.s.fs.Lstat(l.s.root); err != nil || root != rootStamp(fi) {
		return // another directory at the same path
	}
	n := r.count(1)
	metas := make(map[string]metaRow, n)
	looks := make(map[string]disk.Stat, n)
	for range n {
		dir := string(r.bytes())
		if !filepath.IsAbs(dir) {
			dir = l.s.root + "/" + dir
		}
		if mode := r.int(); mode != 0 {
			st := r.stamp()
			looks[dir] = disk.Stat{Mode: fs.FileMode(mode), Ino: st.ino, Size: st.size, MTime: st.mtime, CTime: st.ctime}
		}
		if row, ok := readMetaRow(&r); ok {
			metas[dir] = row
		}
	}
	if r.bad || len(r.b) > 0 {
		return
	}
	l.s.layout.Seed(looks)
	l.metas, l.cached = metas, n
}

// rootStamp is what a root is known by: it is the same when sessions come and
// go.
func rootStamp(fi fs.FileInfo) stamp { return stamp{ino: disk.StatOf(fi).Ino} }

func readMetaRow(r *cacheReader) (metaRow, bool) {
	if r.int() == 0 {
		return metaRow{}, false
	}
	row := metaRow{stamp: r.stamp(), settled: true, trusted: r.int() != 0, mtime: r.float()}
	n := r.count(2)
	row.fields = make([]KV, 0, n)
	for range n {
		i := r.int()
		raw := r.bytes()
		if i < 0 || int(i) >= len(registry.Fields) {
			r.fail()
			return row, false
		}
		row.fields = append(row.fields, KV{registry.Fields[i], raw})
	}
	return row, true
}

// saveCache writes the cache when enough has changed since it was read.
func (l *listing) saveCache() {
	path := l.s.cachePath("list")
	l.mu.Lock()
	n := len(l.metas)
	due := path != "" && n >= cacheListFrom && (l.read.Load() >= cacheListAfter || l.cached < n-cacheListAfter)
	var metas map[string]metaRow
	if due {
		l.read.Store(0)
		l.cached = n
		metas = maps.Clone(l.metas)
	}
	l.mu.Unlock()
	fi, err := l.s.fs.Lstat(l.s.root)
	if !due || err != nil {
		return
	}
	l.s.writeCache(path, listMagic, l.encode(rootStamp(fi), metas))
}

func (l *listing) encode(root stamp, metas map[string]metaRow) []byte {
	b := appendStamp(make([]byte, 0, 256*len(metas)), root)
	b = binary.AppendVarint(b, int64(len(metas)))
	prefix := l.s.root + "/"
	for dir, row := range metas {
		b = appendBytes(b, strings.TrimPrefix(dir, prefix))
		st, ok := l.s.layout.Looked(dir)
		if b = binary.AppendVarint(b, int64(st.Mode)); ok {
			b = appendStamp(b, stampOfStat(st))
		}
		b = appendMetaRow(b, row)
	}
	return b
}

func appendMetaRow(b []byte, row metaRow) []byte {
	if !row.settled {
		return binary.AppendVarint(b, 0)
	}
	b = appendStamp(binary.AppendVarint(b, 1), row.stamp)
	b = appendFloat(binary.AppendVarint(b, int64(boolInt(row.trusted))), row.mtime)
	b = binary.AppendVarint(b, int64(len(row.fields)))
	for _, f := range row.fields {
		b = binary.AppendVarint(b, int64(slices.Index(registry.Fields, f.Key)))
		b = appendBytes(b, string(f.Raw))
	}
	return b
}

func boolInt(v bool) int {
	if v {
		return 1
	}
	return 0
}
