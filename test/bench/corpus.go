package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/store/gitrepo"
)

// spec says what a session that is written for the run looks like.
type spec struct {
	id    string
	nodes int
	text  int // mean length of a message, in bytes
	repo  repoKind
}

// repoKind is how much of a Git repository a session has.
type repoKind int

const (
	// repoNone is an empty .git: enough to be listed and looked into.
	repoNone repoKind = iota
	// repoEmpty is a repository without a commit.
	repoEmpty
	// repoFull is what a session that is worked with has, all committed.
	repoFull
)

// written is when everything was written, as the files say: long enough ago
// that no file is suspected of having changed since it was looked at.
func (s *suite) written() time.Time { return s.began.Add(-time.Hour) }

// nodeID is the id of a session's n-th message.
func nodeID(session string, n int) string {
	h := uint32(2166136261)
	for _, c := range []byte(session) {
		h = (h ^ uint32(c)) * 16777619
	}
	return fmt.Sprintf("%08x%06x", h^uint32(n)*2654435761, n)
}

// nodeFile is the name of its history file without the extension.
func nodeFile(session string, n int) string {
	return fmt.Sprintf("%04d-%c-%s", n, "ul"[n%2], nodeID(session, n))
}

var words = strings.Fields("the session store keeps every message as one small file so that a plain tool can read it and an agent may list search and compare what was said before")

// text is n bytes of words, or some more.
func text(r *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[r.IntN(len(words))])
		b.WriteByte(" \n"[min(1, r.IntN(12)/11)])
	}
	return b.String()
}

// message is a history file's text in the format of docs/store-format.md.
func message(id string, seq int, predecessor, output string) []byte {
	role, model := "user", ""
	if seq%2 == 1 {
		role, model = "llm", "sample-model-1"
	}
	pred := "null"
	if predecessor != "" {
		pred = `"` + predecessor + `"`
	}
	quoted, _ := json.Marshal(output) // words and newlines
	return fmt.Appendf(nil, `{"id": "%s", "created_at": %d.0, "seq": %d, "role": "%s", "name": "%s", "input": null, "output": %s, "caller": "", "predecessor": %s, "reads": [], "metadata": {"input_tokens": %d}}`,
		id, 1700000000+seq, seq, role, model, quoted, pred, 100+seq)
}

// metaText is meta.json of a session with a head.
func metaText(id, title, head string, updated float64) []byte {
	return fmt.Appendf(nil, `{"id": "%s", "agent_id": "main", "title": "%s", "source": "bench", "created_at": 1700000000.0, "updated_at": %.1f, "head_id": "%s", "branches": {}}`, id, title, updated, head)
}

// writeSession writes a session below root.
func (s *suite) writeSession(root string, sp spec) error {
	dir := filepath.Join(root, sp.id)
	if err := os.MkdirAll(filepath.Join(dir, "history"), 0o755); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(uint64(sp.nodes), uint64(len(sp.id))))
	pred := ""
	for n := range sp.nodes {
		size := sp.text / 2
		if n%2 == 1 {
			size = sp.text
		}
		id := nodeID(sp.id, n)
		raw := message(id, n, pred, text(r, size/2+r.IntN(size+1)))
		if err := s.writeOld(filepath.Join(dir, "history", nodeFile(sp.id, n)+".json"), raw); err != nil {
			return err
		}
		pred = id
	}
	meta := metaText(sp.id, "Session "+sp.id, pred, 1700000000+float64(sp.nodes))
	if err := s.writeOld(filepath.Join(dir, "meta.json"), meta); err != nil {
		return err
	}
	if err := s.writeRepo(dir, sp.repo); err != nil {
		return err
	}
	return s.age(filepath.Join(dir, "history"))
}

func (s *suite) writeRepo(dir string, kind repoKind) error {
	switch kind {
	case repoNone:
		return os.Mkdir(filepath.Join(dir, ".git"), 0o755)
	case repoEmpty:
		for _, sub := range []string{"objects", "refs/heads"} {
			if err := os.MkdirAll(filepath.Join(dir, ".git", sub), 0o755); err != nil {
				return err
			}
		}
		return os.WriteFile(filepath.Join(dir, ".git/HEAD"), []byte("ref: refs/heads/main\n"), 0o644)
	}
	opt := gitrepo.Options{Sync: gitrepo.SyncOff}
	if err := gitrepo.Init(s.ctx, dir, opt); err != nil {
		return err
	}
	r, err := gitrepo.Open(dir, opt)
	if err != nil {
		return err
	}
	defer r.Close()
	_, _, err = r.CommitAll(s.ctx, "turn: made for a measurement")
	return err
}

// writeOld writes a file that is as old as the others.
func (s *suite) writeOld(path string, data []byte) error {
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	return s.age(path)
}

func (s *suite) age(path string) error { return os.Chtimes(path, s.written(), s.written()) }

// corpus makes a store once a run and returns its root: the given sessions,
// their rows in index.json, and nothing of it left to be written to the disk.
func (s *suite) corpus(name string, count int, at func(n int) spec) (string, error) {
	if root, ok := s.corpora[name]; ok {
		return root, nil
	}
	began := time.Now()
	root := s.path("store-" + name)
	if err := os.MkdirAll(root, 0o700); err != nil {
		return "", err
	}
	err := parallel(s.ctx, count, func(n int) error { return s.writeSession(root, at(n)) })
	if err != nil {
		return "", err
	}
	if err := s.sessionfs(root, "reindex"); err != nil {
		return "", err
	}
	s.calm()
	s.corpora[name] = root
	s.progress("made the store %s in %.1f s", name, time.Since(began).Seconds())
	return root, nil
}

// drop removes a store that is not needed any more.
func (s *suite) drop(name string) error {
	root, ok := s.corpora[name]
	if !ok {
		return nil
	}
	delete(s.corpora, name)
	return removeAll(root, 1)
}

// removeAll removes a directory. Its entries down to a depth are removed in
// parallel: a large registry takes its time.
func removeAll(dir string, depth int) error {
	if depth > 0 {
		entries, _ := os.ReadDir(dir) // what cannot be read is told below
		_ = parallel(context.Background(), len(entries), func(n int) error {
			if !entries[n].IsDir() {
				return nil
			}
			return removeAll(filepath.Join(dir, entries[n].Name()), depth-1)
		})
	}
	return os.RemoveAll(dir)
}

// calm waits until the disk has what was written, so that writing it does not
// fall into somebody's time.
func (s *suite) calm() {
	if fd, err := unix.Open(s.base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Syncfs(fd)
		_ = unix.Close(fd)
	}
}

// parallel calls f for 0 to n-1 on two goroutines and returns the first error.
func parallel(ctx context.Context, n int, f func(int) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	next := 0
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, next <= n && first == nil && ctx.Err() == nil
	}
	for range 2 {
		wg.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				if err := f(i); err != nil {
					mu.Lock()
					first = err
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if first == nil {
		first = ctx.Err()
	}
	return first
}

// bigID is the session of many messages in the store that is mounted.
const bigID = "big"

// chats is the store that is mounted: many small sessions and a big one.
func (s *suite) chats() (string, error) {
	return s.corpus("chats", s.sessions+1, func(n int) spec {
		if n == 0 { // first, as it takes longest
			return spec{bigID, s.big, 900, repoFull}
		}
		return spec{smallID(n - 1), s.messages, 900, repoFull}
	})
}

// smallID is the id of the n-th small session of a store.
func smallID(n int) string { return fmt.Sprintf("s%06d", n) }

// lookedInto is how many sessions of a large registry anybody looks into.
const lookedInto = 3000

// workID is a session in a large registry that is worked with.
const workID = "work"

// manySessions is a registry of that many sessions that hardly hold anything,
// and one that does.
func (s *suite) manySessions(count int) (string, error) {
	return s.corpus(fmt.Sprint("many-", count), count+1, func(n int) spec {
		if n == count {
			return spec{workID, 20, 400, repoFull}
		}
		if n < lookedInto {
			return spec{smallID(n), 2, 200, repoEmpty}
		}
		return spec{smallID(n), 1, 200, repoNone}
	})
}

// lstat is the bare system call.
func lstat(path string) error {
	var st syscall.Stat_t
	return syscall.Lstat(path, &st)
}
