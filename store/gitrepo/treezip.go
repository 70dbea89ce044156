package gitrepo

import (
	"crypto/sha256"

	"github.com/go-git/go-git/v5/plumbing"
)

// The tree of a large directory is written anew at each commit, and compressing
// it costs more than all else that a commit computes. It is therefore compressed
// piece by piece: a piece ends where a hash in it says so, so that a new entry
// changes one piece, and what the others were compressed to is kept. Pieces of
// a deflate stream that refer to nothing before them can be put together as
// they are (RFC 1951 3.2.4: each ends in an empty stored block). The last piece,
// to which history/ grows, is compressed when it is no longer the last.

const (
	pieceMin  = 2 << 10 // bytes of a piece; shorter ones compress badly
	pieceMask = 0x3f    // one entry in 64 can end a piece
	tailMax   = 8 << 10 // bytes of a last piece that is not compressed
)

// zlibStart begins a zlib stream of the fastest level.
const zlibStart = "\x78\x01"

// pieceKey names a piece by its content.
type pieceKey [sha256.Size]byte

// treePieces are compressed pieces of trees.
type treePieces map[pieceKey][]byte

// endsPiece reports whether a piece may end with an entry.
func endsPiece(h plumbing.Hash, length int) bool {
	return length >= pieceMin && h[len(h)-1]&pieceMask == 0
}

// putTree writes a tree. ends are the places where its pieces end.
func (w *objectWriter) putTree(content []byte, ends []int) (plumbing.Hash, error) {
	if len(content) <= storedMax {
		return w.put(plumbing.TreeObject, content)
	}
	return w.putWith(plumbing.TreeObject, content, func(header []byte) error {
		w.zw.out.WriteString(zlibStart)
		w.storedBlock(0, header)
		if last := len(content); len(ends) == 0 || last-ends[len(ends)-1] > tailMax {
			ends = append(ends, last)
		}
		from := 0
		for _, to := range ends {
			if err := w.keptPiece(content[from:to]); err != nil {
				return err
			}
			from = to
		}
		w.storedBlock(1, content[from:])
		w.sumOf(header, content)
		return nil
	})
}

// keptPiece adds a piece, as it was compressed before if it is kept.
func (w *objectWriter) keptPiece(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	key := pieceKey(sha256.Sum256(b))
	if old, ok := w.known[key]; ok {
		w.pieces[key] = old
		w.zw.out.Write(old)
		return nil
	}
	from := w.zw.out.Len()
	if err := w.piece(b); err != nil {
		return err
	}
	w.pieces[key] = append([]byte(nil), w.zw.out.Bytes()[from:]...)
	return nil
}

// piece compresses b on its own and adds it.
func (w *objectWriter) piece(b []byte) error {
	w.zw.part.Reset()
	w.zw.Reset(&w.zw.part)
	if _, err := w.zw.Write(b); err != nil {
		return err
	}
	if err := w.zw.Flush(); err != nil {
		return err
	}
	w.zw.out.Write(w.zw.part.Bytes()[len(zlibStart):])
	return nil
}
