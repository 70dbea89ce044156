package vnode

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Without handles nothing is known of who reads a file, or how far he has
// come: the kernel asks for a page once, and everybody has it until the kernel
// is notified. A text of many pages that changes meanwhile may come in part
// from before and in part from after, as on a disk that it is written to in
// place.

// glimpse answers one read of a file that nobody opened.
type glimpse struct{ f *File }

// Read answers with a piece of the text of now.
func (g *glimpse) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	b, err := g.f.env().last.text(ctx, g.f, len(dest))
	if err != nil {
		return nil, g.f.env().Hush(err)
	}
	return piece(b, dest, off), 0
}

// lastText keeps the one text that was read last, where it is larger than a
// read and tells when it is another one: it is read in several pieces.
type lastText struct {
	mu      sync.Mutex // leaf
	f       *File
	version any
	b       []byte
}

func (l *lastText) text(ctx context.Context, f *File, piece int) ([]byte, error) {
	v, ok := f.version()
	if !ok {
		return f.read(ctx)
	}
	l.mu.Lock()
	b, same := l.b, l.f == f && l.version == v
	l.mu.Unlock()
	if same {
		return b, nil
	}
	b, err := f.read(ctx)
	if err == nil && len(b) > piece {
		l.mu.Lock()
		l.f, l.version, l.b = f, v, b
		l.mu.Unlock()
	}
	return b, err
}

// lookText keeps, for a Snap that nobody opens, the text whose size was told
// last.
type lookText struct {
	mu sync.Mutex // leaf
	b  []byte
	at time.Time
}

// take takes the text of now, under a time that differs from that of the one
// before: for the kernel its pages are void then.
func (l *lookText) take(text []byte) (size int, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = text
	if now := time.Now(); now.After(l.at) {
		l.at = now
	} else {
		l.at = l.at.Add(1)
	}
	return len(text), l.at
}

// Read answers with a piece of what was taken last.
func (l *lookText) Read(_ context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return piece(l.b, dest, off), 0
}

var (
	_ fs.FileReader = (*glimpse)(nil)
	_ fs.FileReader = (*lookText)(nil)
)
