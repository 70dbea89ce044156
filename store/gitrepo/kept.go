package gitrepo

import (
	"crypto/sha1"
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

// keepIndex keeps what was written as the index. The file ends in the checksum
// of all that is before it.
func (r *Repo) keepIndex(idx *gitIndex, file []byte, tree *treeNode) {
	k := &keptIndex{index: idx, size: int64(len(file))}
	copy(k.sum[:], file[len(file)-checksumSize:])
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
	var sum [sha1.Size]byte
	n, err := f.ReadAt(sum[:], k.size-checksumSize)
	return n == len(sum) && (err == nil || n == checksumSize) && sum == k.sum
}
