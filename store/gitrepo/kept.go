package gitrepo

import (
	"io/fs"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// keptIndex is the index as a commit of this process wrote it, decoded: the
// next commit need not decode it again, if it is still there.
type keptIndex struct {
	index *gitIndex
	size  int64
	sum   [checksumSize]byte // at the end of the file
}

// keepIndex keeps what was written as the index.
func (r *Repo) keepIndex(idx *gitIndex, tree *treeNode, size int64, sum [checksumSize]byte) {
	k := &keptIndex{index: idx, size: size, sum: sum}
	idx.trees = map[string]cachedTree{}
	tree.cached(idx.trees, "")
	r.kept.Store(k)
}

// is reports whether a file holds this index. Times and inode numbers may come
// again; the checksum says what the content is. Git may leave it out: then it
// is zero and never equal.
func (k *keptIndex) is(f disk.File, fi fs.FileInfo) bool {
	if k == nil || fi.Size() != k.size {
		return false
	}
	var sum [checksumSize]byte
	n, _ := f.ReadAt(sum[:], k.size-checksumSize) // io.EOF may come with the last byte
	return n == len(sum) && sum == k.sum
}
