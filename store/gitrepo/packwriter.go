package gitrepo

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"github.com/sessionfs/sessionfs/store/internal/disk"
)

// packWriter writes one pack and its index (gitformat-pack, version 2 of both)
// under temporary names that git prune knows.
type packWriter struct {
	r       *Repo
	dir     string
	temp    string // of the pack, "" when it has its name
	idxTemp string
	file    disk.File
	out     *bufio.Writer
	zw      *zlib.Writer
	buf     bytes.Buffer
	offset  int64
	entries []packEntry
	at      map[plumbing.Hash]int // index into entries
}

type packEntry struct {
	hash   plumbing.Hash
	offset int64
	crc    uint32
	depth  int // deltas to go through
}

// maxDeltaDepth and maxDeltaSize bound what reading one object can cost.
const (
	maxDeltaDepth = 50
	maxDeltaSize  = 16 << 20
)

const packHeaderSize = 12

func (r *Repo) newPackWriter(dir string) (*packWriter, error) {
	temp := filepath.Join(dir, "tmp_pack_"+randomName())
	file, err := r.create(temp, 0o644) // read again for the checksum, then 0444
	if err != nil {
		return nil, err
	}
	zw, err := zlib.NewWriterLevel(io.Discard, zlib.DefaultCompression)
	if err != nil {
		return nil, errors.Join(err, file.Close(), r.fs.Remove(temp))
	}
	p := &packWriter{r: r, dir: dir, temp: temp, file: file, zw: zw, at: map[plumbing.Hash]int{}}
	p.out = bufio.NewWriterSize(file, 1<<16)
	// The number of objects is known at the end only, see finish.
	p.out.Write(make([]byte, packHeaderSize))
	p.offset = packHeaderSize
	return p, nil
}

// canBase reports whether a delta may be made against an object.
func (p *packWriter) canBase(h plumbing.Hash) bool {
	i, ok := p.at[h]
	return ok && p.entries[i].depth < maxDeltaDepth
}

// add writes an object whole.
func (p *packWriter) add(h plumbing.Hash, typ plumbing.ObjectType, content []byte) error {
	p.buf.Reset()
	p.buf.Write(packObjectHeader(typ, len(content)))
	return p.write(h, content, 0)
}

// addDelta writes an object as a delta against one that the pack holds, or
// whole when that is not clearly smaller.
func (p *packWriter) addDelta(h plumbing.Hash, typ plumbing.ObjectType, content []byte, base plumbing.Hash, baseContent []byte) error {
	if len(content) == 0 || len(baseContent) == 0 || len(content) > maxDeltaSize || len(baseContent) > maxDeltaSize {
		return p.add(h, typ, content)
	}
	delta := packfile.DiffDelta(baseContent, content)
	back, err := packfile.PatchDelta(baseContent, delta)
	if err != nil || !bytes.Equal(back, content) || len(delta) > len(content)/2 {
		return p.add(h, typ, content)
	}
	b := p.entries[p.at[base]]
	p.buf.Reset()
	p.buf.Write(packObjectHeader(plumbing.OFSDeltaObject, len(delta)))
	p.buf.Write(offsetBytes(p.offset - b.offset))
	return p.write(h, delta, b.depth+1)
}

// write compresses the data behind the header that p.buf holds.
func (p *packWriter) write(h plumbing.Hash, data []byte, depth int) error {
	p.zw.Reset(&p.buf)
	if err := writeAll(p.zw, data); err != nil {
		return err
	}
	if _, err := p.out.Write(p.buf.Bytes()); err != nil {
		return fmt.Errorf("write pack: %w", err)
	}
	p.at[h] = len(p.entries)
	p.entries = append(p.entries, packEntry{h, p.offset, crc32.ChecksumIEEE(p.buf.Bytes()), depth})
	p.offset += int64(p.buf.Len())
	return nil
}

// packObjectHeader is the type and the size, four bits and then seven each.
func packObjectHeader(typ plumbing.ObjectType, size int) []byte {
	c := byte(typ)<<4 | byte(size&0x0f)
	var b []byte
	for size >>= 4; size > 0; size >>= 7 {
		b = append(b, c|0x80)
		c = byte(size & 0x7f)
	}
	return append(b, c)
}

// offsetBytes is the distance to a delta's base, most significant bits first.
func offsetBytes(n int64) []byte {
	b := []byte{byte(n & 0x7f)}
	for n >>= 7; n > 0; n >>= 7 {
		n--
		b = append(b, byte(n&0x7f)|0x80)
	}
	slices.Reverse(b)
	return b
}

// publish makes pack and index durable and gives them their names: the index
// last, since git looks for it.
func (p *packWriter) publish() error {
	sum, err := p.finish()
	if err != nil {
		return fmt.Errorf("write pack: %w", err)
	}
	p.idxTemp = filepath.Join(p.dir, "tmp_idx_"+randomName())
	idx, err := p.r.create(p.idxTemp, 0o444)
	if err != nil {
		return fmt.Errorf("write pack index: %w", err)
	}
	_, err = idx.Write(p.index(sum))
	if err := errors.Join(err, idx.Sync(), idx.Close()); err != nil {
		return fmt.Errorf("write pack index: %w", err)
	}
	name := filepath.Join(p.dir, "pack-"+sum.String())
	if err := p.r.fs.Rename(p.temp, name+".pack"); err != nil {
		return err
	}
	p.temp = ""
	if err := p.r.fs.Rename(p.idxTemp, name+".idx"); err != nil {
		return errors.Join(err, p.r.fs.Remove(name+".pack"))
	}
	p.idxTemp = ""
	return p.r.fs.SyncDir(p.dir)
}

// finish puts the number of objects into the header and the checksum at the
// end, and syncs. It returns the checksum, which is also the pack's name.
func (p *packWriter) finish() (plumbing.Hash, error) {
	if err := p.out.Flush(); err != nil {
		return plumbing.ZeroHash, err
	}
	header := append([]byte("PACK"), 0, 0, 0, 2)
	header = binary.BigEndian.AppendUint32(header, uint32(len(p.entries)))
	sum, err := p.checksum(header)
	if err != nil {
		return sum, err
	}
	if _, err := p.file.Write(sum[:]); err != nil {
		return sum, err
	}
	if err := errors.Join(p.file.Chmod(0o444&p.r.perm), p.file.Sync()); err != nil {
		return sum, err
	}
	err = p.file.Close()
	p.file = nil
	return sum, err
}

// checksum writes the header and reads the whole file for its checksum.
func (p *packWriter) checksum(header []byte) (plumbing.Hash, error) {
	f, err := p.r.fs.OpenFile(p.temp, os.O_RDWR, 0)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	defer f.Close()
	if _, err := f.Write(header); err != nil {
		return plumbing.ZeroHash, err
	}
	sum := sha1.New()
	sum.Write(header)
	return sumFrom(sum, f, p.offset-packHeaderSize)
}

func sumFrom(sum hash.Hash, src io.Reader, want int64) (plumbing.Hash, error) {
	n, err := io.Copy(sum, src)
	if err == nil && n != want {
		err = io.ErrUnexpectedEOF
	}
	return plumbing.Hash(sum.Sum(nil)), err
}

// index is the pack's index: names, checksums and offsets of its objects in
// the order of the names.
func (p *packWriter) index(pack plumbing.Hash) []byte {
	sorted := slices.Clone(p.entries)
	slices.SortFunc(sorted, func(a, b packEntry) int { return bytes.Compare(a.hash[:], b.hash[:]) })
	b := []byte("\xfftOc\x00\x00\x00\x02")
	i := 0
	for first := range 256 {
		for i < len(sorted) && int(sorted[i].hash[0]) == first {
			i++
		}
		b = binary.BigEndian.AppendUint32(b, uint32(i))
	}
	for _, e := range sorted {
		b = append(b, e.hash[:]...)
	}
	for _, e := range sorted {
		b = binary.BigEndian.AppendUint32(b, e.crc)
	}
	var large []byte
	for _, e := range sorted {
		off := uint32(e.offset)
		if e.offset >= 1<<31 {
			off = 1<<31 | uint32(len(large)/8)
			large = binary.BigEndian.AppendUint64(large, uint64(e.offset))
		}
		b = binary.BigEndian.AppendUint32(b, off)
	}
	b = append(append(b, large...), pack[:]...)
	sum := sha1.Sum(b)
	return append(b, sum[:]...)
}

// close removes what was not published.
func (p *packWriter) close() error {
	var errs []error
	if p.file != nil {
		errs = append(errs, p.file.Close())
	}
	for _, temp := range []string{p.temp, p.idxTemp} {
		if temp != "" {
			errs = append(errs, p.r.fs.Remove(temp))
		}
	}
	return errors.Join(errs...)
}
