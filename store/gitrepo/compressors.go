package gitrepo

import (
	"bytes"
	"compress/zlib"
	"io"
)

// compressLevel is zlib's fastest: node files are small, and trees, which are
// most of the bytes, are hashes that do not compress.
const compressLevel = zlib.BestSpeed

// keptCompressors is how many compressors stay for the next commit.
const keptCompressors = 2

// keptBuffer is the largest buffer that stays: the tree of 10,000 files needs
// half of it.
const keptBuffer = 1 << 20

// Compressors are what objects are compressed with. Making one costs 1 MB and
// up to 2 ms, more than all else of a small commit, so repositories share a
// few; a sync.Pool would lose them to every other garbage collection. It is
// safe for concurrent use.
type Compressors struct {
	free chan *compressor
}

// compressor is a compressor with the buffers of whoever uses it.
type compressor struct {
	*zlib.Writer
	out  bytes.Buffer // an object
	part bytes.Buffer // a piece of one
}

// NewCompressors returns an empty set: compressors are made when they are
// needed.
func NewCompressors() *Compressors {
	return &Compressors{free: make(chan *compressor, keptCompressors)}
}

func (c *Compressors) get() (*compressor, error) {
	select {
	case w := <-c.free:
		return w, nil
	default:
		zw, err := zlib.NewWriterLevel(io.Discard, compressLevel)
		return &compressor{Writer: zw}, err
	}
}

func (c *Compressors) put(w *compressor) {
	w.Reset(io.Discard)
	if w.out.Cap() > keptBuffer {
		w.out = bytes.Buffer{}
	}
	select {
	case c.free <- w:
	default:
	}
}
