package store

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sessionfs/sessionfs/store/gitrepo"
)

// maxSubject is how many characters of a user's text make the subject of a
// turn's commit (reference 4).
const maxSubject = 60

// TurnMessage is the message of a turn's commit: "turn: " and the first line
// of the user's text, 60 characters at most, or "turn" when it is empty; a
// failed turn's begins with "turn (error): " (reference 4).
func TurnMessage(userText string, failed bool) string {
	line, _, _ := strings.Cut(strings.TrimSpace(userText), "\n")
	if utf8.RuneCountInString(line) > maxSubject {
		line = string([]rune(line)[:maxSubject])
	}
	if line == "" {
		line = "turn"
	}
	if failed {
		return "turn (error): " + line
	}
	return "turn: " + line
}

// CommitTurn commits everything in the session's repository that changed, as
// `git add -A; git commit` would (reference 4); ok is false when nothing did.
// An empty message is made from the last user message.
func (s *Store) CommitTurn(ctx context.Context, id, message string) (c Commit, ok bool, err error) {
	err = s.change(ctx, "commit", id, 0, func(t *tx) error {
		if message == "" {
			message = t.defaultMessage()
		}
		var err error
		c, ok, err = t.commit(ctx, message)
		return err
	})
	return c, ok, err
}

// commit commits what changed in the session's repository.
func (t *tx) commit(ctx context.Context, message string) (Commit, bool, error) {
	return t.commitBy(ctx, message, (*gitrepo.Repo).CommitAll)
}

// commitBeforeDelete makes the commit that keeps nodes which are about to be
// deleted on purpose, and says which they are. It is made also when nothing
// changed: without it the commit before would look like one of nodes that were
// lost since (reference 6.12 is the peer's form of the subject).
func (t *tx) commitBeforeDelete(ctx context.Context, node string, ids []string) (Commit, error) {
	text := beforeDelete + t.sn.branchLabel(node) + "\n\n" + deletedList(ids)
	c, _, err := t.commitBy(ctx, text, func(r *gitrepo.Repo, ctx context.Context, text string) (gitrepo.Commit, bool, error) {
		c, err := r.CommitAlways(ctx, text)
		return c, true, err
	})
	return c, err
}

func (t *tx) commitBy(ctx context.Context, message string, how func(*gitrepo.Repo, context.Context, string) (gitrepo.Commit, bool, error)) (Commit, bool, error) {
	t.s.clean(t.se.id)
	r, err := t.repo()
	if err != nil {
		return Commit{}, false, err
	}
	began := time.Now()
	c, changed, err := how(r, ctx, message)
	t.s.timed(CommitTime, began)
	if err != nil {
		t.s.Dirty(t.se.id)
		return Commit{}, false, t.diskFail("git", err)
	}
	if changed {
		t.s.maintain(t.place.Dir)
		t.changes = append(t.changes, &Change{ID: t.se.id, Old: t.sn, New: t.sn, Commit: true})
	}
	return Commit{Hash: c.Hash, Short: c.Short, Message: c.Message, Time: c.Time}, changed, nil
}

// maintain packs a repository in the background when enough loose objects have
// gathered (reference 4 leaves that to `git gc --auto`, which plain object
// writes never start). It takes no lock of the session.
func (s *Store) maintain(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.maintaining[dir] {
		return
	}
	s.maintaining[dir] = true
	s.background.Add(1)
	go func() {
		defer s.background.Done()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.maintaining, dir)
		}()
		r, err := gitrepo.Open(dir, s.git)
		if err != nil {
			return // gone meanwhile
		}
		defer r.Close()
		if _, err := r.CompactIfNeeded(s.life); err != nil && s.life.Err() == nil {
			s.log.Warn("pack repository", "dir", dir, "err", err)
		}
	}()
}

// commitTurn commits a turn that has ended. What the turn said is durable
// without it, so a commit that fails is only logged, and made up for later.
func (t *tx) commitTurn(ctx context.Context) {
	if _, _, err := t.commit(ctx, t.defaultMessage()); err != nil {
		t.s.log.Warn("commit turn", "session", t.se.id, "err", err)
	}
}

// defaultMessage is a turn's message for the newest user message on the
// active branch.
func (t *tx) defaultMessage() string {
	branch, _ := t.sn.Branch()
	failed := t.sn.meta.status() == statusFailed
	for i := len(branch) - 1; i >= 0; i-- {
		if branch[i].Role != "user" {
			continue
		}
		text, err := t.sn.Text(branch[i].ID)
		if err != nil {
			break
		}
		return TurnMessage(string(text), failed)
	}
	return TurnMessage("", failed)
}

// SessionCommits lists the repository's commits, newest first; limit <= 0
// lists all. Unknown session: none.
func (s *Store) SessionCommits(ctx context.Context, id string, limit int) ([]Commit, error) {
	place, err := s.place("list commits", id)
	if err != nil || !place.Openable {
		return nil, ignoreUnknown(err)
	}
	se := s.pin(id)
	defer s.unpin(se)
	if err := se.acquire(ctx, s.lockTimeout); err != nil {
		return nil, s.lockError("list commits", id, err)
	}
	defer se.release()
	t := &tx{s: s, se: se, op: "list commits", place: place}
	r, err := t.repo()
	if err != nil {
		return nil, err
	}
	log, err := r.Log(ctx, limit)
	if err != nil {
		return nil, t.fail(Corrupt, "git", err)
	}
	out := make([]Commit, len(log))
	for i, c := range log {
		out[i] = Commit{Hash: c.Hash, Short: c.Short, Message: c.Message, Time: c.Time}
	}
	return out, nil
}

// ignoreUnknown is how the peer's reads answer for an unknown session: with
// nothing (reference 6.1).
func ignoreUnknown(err error) error {
	if errors.Is(err, NotFound) {
		return nil
	}
	return err
}

// Dirty tells the store that something in the session's repository changed
// outside a turn (an attachment, a field), so that it is committed after the
// quiet time of Options.CommitAfter and at Close. Without CommitAfter it does
// nothing.
func (s *Store) Dirty(id string) {
	if s.opt.CommitAfter <= 0 || s.opt.ReadOnly {
		return
	}
	se := s.pin(id)
	defer s.unpin(se)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if !se.dirty {
		se.dirty = true
		se.pins++ // a session with something to commit stays until it is done
	}
	if se.timer != nil {
		se.timer.Stop()
	}
	se.timer = time.AfterFunc(s.opt.CommitAfter, func() { s.quietCommit(se) })
}

// clean notes that a session's changes are being committed.
func (s *Store) clean(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	se, ok := s.pinned[id]
	if !ok || !se.dirty {
		return
	}
	se.dirty = false
	se.pins-- // the change that is going on holds another
	if se.timer != nil {
		se.timer.Stop()
		se.timer = nil
	}
}

// quietMessage is the message of a commit that no turn made.
const quietMessage = "sessionfs: changes outside a turn"

// quietCommit commits a session that has been quiet for long enough. While a
// run is active the turn's own end will commit.
func (s *Store) quietCommit(se *session) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.background.Add(1)
	s.mu.Unlock()
	defer s.background.Done()
	ctx := context.Background()
	if active, err := s.RunIsActive(ctx, se.id); err == nil && active {
		s.Dirty(se.id)
		return
	}
	if _, _, err := s.CommitTurn(ctx, se.id, quietMessage); err != nil {
		s.log.Warn("commit after quiet time", "session", se.id, "err", err)
	}
}

// commitDirty commits, at Close, what still waits.
func (s *Store) commitDirty(ctx context.Context) error {
	s.mu.Lock()
	var ids []string
	for id, se := range s.pinned {
		if se.dirty {
			ids = append(ids, id)
		}
	}
	s.mu.Unlock()
	var errs []error
	for _, id := range ids {
		if _, _, err := s.CommitTurn(ctx, id, quietMessage); err != nil && !errors.Is(err, NotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
