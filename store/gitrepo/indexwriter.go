package gitrepo

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"hash"
	"io"
)

// indexBuffer is how much of an index is encoded before it is written.
const indexBuffer = 64 << 10

// indexWriter writes an index while it is encoded: all of a large one in memory
// would be as much again as its entries are.
type indexWriter struct {
	dst  io.Writer
	sum  hash.Hash
	buf  []byte
	size int64 // written so far
	err  error
}

func newIndexWriter(dst io.Writer) *indexWriter {
	return &indexWriter{dst: dst, sum: sha1.New()}
}

// entries writes the index as version 2, or 3 when an entry needs it, up to its
// extensions.
func (w *indexWriter) entries(idx *gitIndex) {
	version := uint32(2)
	for i := range idx.entries {
		if idx.entries[i].ext != 0 {
			version = 3
		}
	}
	w.buf = make([]byte, 0, min(indexBuffer+8<<10, 256*(len(idx.entries)+1)))
	w.buf = append(w.buf, "DIRC"...)
	w.buf = binary.BigEndian.AppendUint32(w.buf, version)
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(len(idx.entries)))
	for i := range idx.entries {
		w.buf = idx.entries[i].encode(w.buf)
		if len(w.buf) >= indexBuffer {
			w.flush()
		}
	}
}

// finish ends the index with the TREE extension for the given tree, nil for
// none, and the checksum, which it returns.
func (w *indexWriter) finish(tree *treeNode) ([checksumSize]byte, error) {
	if tree != nil {
		ext := tree.encodeCached(nil, "")
		w.buf = append(w.buf, "TREE"...)
		w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(len(ext)))
		w.buf = append(w.buf, ext...)
	}
	w.sum.Write(w.buf)
	sum := [checksumSize]byte(w.sum.Sum(nil))
	w.buf = append(w.buf, sum[:]...)
	w.write()
	return sum, w.err
}

func (w *indexWriter) flush() {
	w.sum.Write(w.buf)
	w.write()
}

func (w *indexWriter) write() {
	if w.err == nil {
		_, w.err = w.dst.Write(w.buf)
	}
	w.size += int64(len(w.buf))
	w.buf = w.buf[:0]
}

// encode is the whole index in memory.
func (idx *gitIndex) encode(tree *treeNode) []byte {
	var b bytes.Buffer
	w := newIndexWriter(&b)
	w.entries(idx)
	_, _ = w.finish(tree) // memory does not fail
	return b.Bytes()
}
