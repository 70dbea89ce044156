package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// memoryMax is the size up to which a Buf stays in memory, in bytes: only an
// empty one does. What a user has written is on disk when write(2) returns, so
// that a full disk is told to whoever writes, and a killed daemon loses none.
const memoryMax = 0

// Buf collects one file. It is safe for concurrent use. Every method but Size
// and Hint answers ErrClosed once the Buf was discarded, failed, or its Spool
// closed.
type Buf struct {
	s    *Spool
	hint string
	seq  uint64

	mu   sync.Mutex
	size int64
	mem  []byte   // the content while path is ""; len(mem) == size
	path string   // the content's file in the live directory, once there is one
	file *os.File // path, opened; nil when nobody needs it
	done bool
}

// Hint returns the text that Create was given.
func (b *Buf) Hint() string { return b.hint }

// Size returns the size in bytes.
func (b *Buf) Size() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size
}

// ReadAt reads as io.ReaderAt says: io.EOF comes with the last bytes.
func (b *Buf) ReadAt(p []byte, off int64) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		return 0, ErrClosed
	}
	if off < 0 {
		return 0, ErrInvalid
	}
	if off >= b.size {
		return 0, io.EOF
	}
	short := int64(len(p)) > b.size-off
	if short {
		p = p[:b.size-off]
	}
	n, err := b.readLocked(p, off)
	if err == nil && short {
		err = io.EOF
	}
	return n, err
}

// readLocked fills p, which lies within the size. Requires b.mu.
func (b *Buf) readLocked(p []byte, off int64) (int, error) {
	if b.path == "" {
		return copy(p, b.mem[off:]), nil
	}
	if err := b.openLocked(); err != nil {
		return 0, err
	}
	n, err := b.file.ReadAt(p, off)
	if n == len(p) {
		return n, nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF // the file is ours alone: it must be whole
	}
	return n, fmt.Errorf("spool %s: %w", b.hint, err)
}

// Bytes returns a copy of the whole content.
func (b *Buf) Bytes() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		return nil, ErrClosed
	}
	data := make([]byte, b.size)
	if _, err := b.readLocked(data, 0); err != nil {
		return nil, err
	}
	return data, nil
}

// WriteAt writes all of p at off; a gap before it reads as zeros. It fails
// with ErrTooLarge past Limits.File and ErrNoSpace past Limits.Total or on a
// full disk; then n bytes were written, none when a limit refused it.
func (b *Buf) WriteAt(p []byte, off int64) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		return 0, ErrClosed
	}
	if off < 0 {
		return 0, ErrInvalid
	}
	if len(p) == 0 {
		return 0, nil
	}
	end := off + int64(len(p))
	if end < off || end > b.s.lim.File {
		return 0, fmt.Errorf("spool %s: %w", b.hint, ErrTooLarge)
	}
	if err := b.reserveLocked(end); err != nil {
		return 0, err
	}
	n, err = b.storeLocked(p, off)
	reached := b.size
	if n > 0 {
		reached = max(b.size, off+int64(n))
	}
	b.settleLocked(end, reached)
	return n, err
}

// reserveLocked accounts for a size of end, should that be more than now.
// Requires b.mu.
func (b *Buf) reserveLocked(end int64) error {
	if end <= b.size {
		return nil
	}
	if err := b.s.grow(end - b.size); err != nil {
		return fmt.Errorf("spool %s: %w", b.hint, err)
	}
	return nil
}

// settleLocked sets the size to what was reached, and gives back what was
// reserved beyond it. Requires b.mu.
func (b *Buf) settleLocked(reserved, reached int64) {
	if reserved > reached && reserved > b.size {
		b.s.grow(reached - reserved) // shrinking never fails
	}
	b.size = reached
}

// storeLocked puts p at off, in memory or on disk. Requires b.mu.
func (b *Buf) storeLocked(p []byte, off int64) (int, error) {
	end := off + int64(len(p))
	if b.path == "" && end <= memoryMax {
		b.memoryLocked(max(end, b.size))
		return copy(b.mem[off:], p), nil
	}
	if err := b.spillLocked(); err != nil {
		return 0, err
	}
	n, err := b.file.WriteAt(p, off)
	if err != nil {
		return n, fmt.Errorf("spool %s: %w", b.hint, noSpace(err))
	}
	return n, nil
}

// memoryLocked makes the content in memory size bytes long, zeros added.
// Requires b.mu.
func (b *Buf) memoryLocked(size int64) {
	old := int64(len(b.mem))
	if size <= int64(cap(b.mem)) {
		b.mem = b.mem[:size]
		if size > old {
			clear(b.mem[old:])
		}
		return
	}
	b.mem = append(b.mem, make([]byte, size-old)...)
}

// Truncate sets the size in bytes; what is added reads as zeros. Its errors
// are WriteAt's.
func (b *Buf) Truncate(size int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		return ErrClosed
	}
	if size < 0 {
		return ErrInvalid
	}
	if size > b.s.lim.File {
		return fmt.Errorf("spool %s: %w", b.hint, ErrTooLarge)
	}
	if err := b.reserveLocked(size); err != nil {
		return err
	}
	if err := b.resizeLocked(size); err != nil {
		b.settleLocked(size, b.size)
		return err
	}
	if size < b.size {
		b.s.grow(size - b.size)
	}
	b.size = size
	return nil
}

// resizeLocked makes the content size bytes long. Requires b.mu.
func (b *Buf) resizeLocked(size int64) error {
	if b.path == "" && size <= memoryMax {
		b.memoryLocked(size)
		return nil
	}
	if err := b.spillLocked(); err != nil {
		return err
	}
	if err := b.file.Truncate(size); err != nil {
		return fmt.Errorf("spool %s: %w", b.hint, noSpace(err))
	}
	return nil
}

// Sync makes the content durable in the live directory: a process that dies
// afterwards, or a machine, leaves it to be found by the next Open.
func (b *Buf) Sync() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		return ErrClosed
	}
	if err := b.spillLocked(); err != nil {
		return err
	}
	if err := errors.Join(b.file.Sync(), syncDir(b.s.live)); err != nil {
		return fmt.Errorf("spool %s: %w", b.hint, noSpace(err))
	}
	return nil
}

// Persist puts the content on disk without waiting for the disk, and gives up
// the file descriptor until the next use. A process that dies afterwards
// leaves the content to be found by the next Open. It is what the last close
// of a file that stays visible wants.
func (b *Buf) Persist() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		return ErrClosed
	}
	if b.size == 0 && b.path == "" {
		return nil
	}
	if err := b.spillLocked(); err != nil {
		return err
	}
	return b.closeLocked()
}

// spillLocked moves the content from memory to a file, or opens that file
// again. It changes nothing when it fails. Requires b.mu.
func (b *Buf) spillLocked() error {
	if b.path != "" {
		return b.openLocked()
	}
	path := filepath.Join(b.s.live, liveName(b.seq, b.hint))
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("spool %s: %w", b.hint, noSpace(err))
	}
	if _, err := f.Write(b.mem); err != nil {
		f.Close()
		os.Remove(path)
		return fmt.Errorf("spool %s: %w", b.hint, noSpace(err))
	}
	b.path, b.file, b.mem = path, f, nil
	return nil
}

// openLocked opens the content's file if it is not open. Requires b.mu.
func (b *Buf) openLocked() error {
	if b.file != nil {
		return nil
	}
	f, err := os.OpenFile(b.path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("spool %s: %w", b.hint, err)
	}
	b.file = f
	return nil
}

// closeLocked closes the content's file if it is open. Requires b.mu.
func (b *Buf) closeLocked() error {
	if b.file == nil {
		return nil
	}
	f := b.file
	b.file = nil
	if err := f.Close(); err != nil {
		return fmt.Errorf("spool %s: %w", b.hint, noSpace(err))
	}
	return nil
}

// Discard drops the content. It may be called at any time and repeatedly.
func (b *Buf) Discard() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		return
	}
	b.closeLocked()
	if b.path != "" {
		os.Remove(b.path) // what is left over is swept by the next Open
	}
	b.finishLocked()
}

// Fail moves the content to failed/, durably, under a name made from the time
// and name, and returns the path. When it fails without a path (a full disk)
// the Buf stays live with its content; the limit of failed/ never refuses it.
func (b *Buf) Fail(name string) (kept string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		return "", ErrClosed
	}
	return b.failLocked(name)
}

// failLocked is Fail. Requires b.mu.
func (b *Buf) failLocked(name string) (string, error) {
	if err := b.spillLocked(); err != nil {
		return "", err
	}
	if err := b.file.Sync(); err != nil {
		return "", fmt.Errorf("keep %s: %w", name, noSpace(err))
	}
	kept, err := b.s.failed.take(b.path, name, b.s.now())
	if kept != "" {
		b.closeLocked()
		b.finishLocked()
	}
	if err != nil {
		return kept, fmt.Errorf("keep %s: %w", name, noSpace(err))
	}
	return kept, nil
}

// retire is what Close does to a live Buf.
func (b *Buf) retire() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		return nil
	}
	if b.size > 0 {
		_, err := b.failLocked(b.hint)
		return err
	}
	b.closeLocked()
	if b.path != "" {
		os.Remove(b.path)
	}
	b.finishLocked()
	return nil
}

// finishLocked ends the Buf's life. Requires b.mu.
func (b *Buf) finishLocked() {
	b.done = true
	b.s.forget(b, b.size)
	b.mem = nil
}
