package gitrepo

import (
	"compress/zlib"
	"io"
)

// compressLevel is zlib's fastest: node files are small, and trees, which are
// most of the bytes, are hashes that do not compress.
const compressLevel = zlib.BestSpeed

// keptCompressors is how many compressors stay for the next commit.
const keptCompressors = 2

// Compressors are what objects are compressed with. Making one costs 1 MB and
// up to 2 ms, more than all else of a small commit, so repositories share a
// few; a sync.Pool would lose them to every other garbage collection. It is
// safe for concurrent use.
type Compressors struct {
	free chan *zlib.Writer
}

// NewCompressors returns an empty set: compressors are made when they are
// needed.
func NewCompressors() *Compressors {
	return &Compressors{free: make(chan *zlib.Writer, keptCompressors)}
}

func (c *Compressors) get() (*zlib.Writer, error) {
	select {
	case w := <-c.free:
		return w, nil
	default:
		return zlib.NewWriterLevel(io.Discard, compressLevel)
	}
}

func (c *Compressors) put(w *zlib.Writer) {
	w.Reset(io.Discard)
	select {
	case c.free <- w:
	default:
	}
}
