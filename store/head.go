package store

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/filelock"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// assignHead is the one place that assigns the active DAG head in meta.json.
// SetHead is this function behind the guard; an append calls it within its own
// write. An empty node id writes null.
func assignHead(m *jsonedit.Object, node string) {
	raw := []byte("null")
	if node != "" {
		raw = jsonedit.AppendString(nil, node)
	}
	m.Set("head_id", raw)
}

// SetHead moves the active DAG head to the node that ref names: the one door.
// It takes the session's locks, re-reads what changed on disk, resolves ref,
// refuses (RunActive, NotFound, Ambiguous, SummaryHead, Conflict, Corrupt,
// Locked, ReadOnly), writes meta.json durably, re-reads the branch and
// publishes the change, in that order. Nothing else in meta.json changes
// (reference 6.10: neither updated_at nor head_version). Git is left alone; the
// next commit takes the move along (Dirty). A head that is where it is asked to be is not written.
func (s *Store) SetHead(ctx context.Context, id string, ref Ref, mv HeadMove) (node string, err error) {
	err = s.change(ctx, "set head", id, mv.LockTimeout, func(t *tx) error {
		n, err := t.sn.Resolve(ref)
		if err != nil {
			return t.asOp(err)
		}
		node = n
		if err := t.refuseRoot(n); err != nil {
			return err
		}
		return t.moveHead(n, mv.Expect)
	})
	if err == nil {
		s.Dirty(id)
	}
	return node, err
}

// refuseRoot refuses the session's root as a place to stand at: a head there
// reads as none (reference 15, row 20), so the move would look like a loss.
func (t *tx) refuseRoot(node string) error {
	n, _ := t.sn.Index.Get(node)
	if node != dag.RootID && !n.Flags.Has(dag.DisplayRoot) {
		return nil
	}
	return &Error{Code: Invalid, Op: t.op, Session: t.se.id, Ref: node,
		Err:  errors.New("the root of the session cannot be the head"),
		Hint: "to begin anew, rewind to before the first message, or edit it"}
}

// moveHead is the guarded move: every operation that moves the head ends here.
func (t *tx) moveHead(node string, expect *string) error {
	return t.moveHeadWith(node, expect, nil)
}

// moveHeadWith is moveHead with another edit of meta.json in the same write.
func (t *tx) moveHeadWith(node string, expect *string, edit func(m *jsonedit.Object)) error {
	m := t.editMeta()
	if err := t.placeHead(m, node, expect); err != nil {
		return err
	}
	if edit != nil {
		edit(m)
	}
	return t.writeMeta(m)
}

// placeHead is moveHead without the write: the guard, and the new head in m. A
// head that is where it is asked to be changes nothing.
func (t *tx) placeHead(m *jsonedit.Object, node string, expect *string) error {
	if err := t.refuseActiveRun(); err != nil {
		return err
	}
	if expect != nil && *expect != t.sn.Head {
		return t.fail(Conflict, node, fmt.Errorf("the head is %s meanwhile", orNone(t.sn.Head)))
	}
	if n, ok := t.sn.Index.Get(node); ok && n.Flags&dag.CoversSome != 0 {
		return t.fail(SummaryHead, node, errors.New("a compaction summary cannot be the head"))
	}
	if node == t.sn.Head {
		return nil
	}
	assignHead(m, node)
	if expect != nil { // a compare-and-set counts its moves (reference 6.10)
		v, _ := m.Int("head_version")
		m.Set("head_version", jsonedit.EncodeInt(v+1))
	}
	return nil
}

func orNone(id string) string {
	if id == "" {
		return "none"
	}
	return id
}

// asOp gives an error of a snapshot's method the name of the operation that
// asked.
func (t *tx) asOp(err error) error {
	var e *Error
	if errors.As(err, &e) {
		c := *e
		c.Op = t.op
		return &c
	}
	return err
}

// errRunActive is the text of the refusal, the peer's (reference 7.2).
var errRunActive = errors.New("a run is active")

// refuseActiveRun is the guard: it reads the persisted status, under the
// session's locks, together with what is about to change.
//
// A lease that is held means a run whatever the status says: another program
// may have written the status from what it remembered (reference 3.5), and the
// lease is the kernel's own word.
func (t *tx) refuseActiveRun() error {
	if !t.runActive() {
		return nil
	}
	return &Error{Code: RunActive, Op: t.op, Session: t.se.id, Err: errRunActive,
		Hint: "wait for the run to finish, or stop it, then try again"}
}

// runActive reports whether somebody is at work in the session.
func (t *tx) runActive() bool {
	if activeStatus(t.sn.meta.status()) {
		return !t.deadRun()
	}
	held, err := filelock.Held(t.s.layout.RunLockPath(t.se.id))
	return err != nil || held
}

// deadRun reports whether the run that the status speaks of was one of ours
// whose process has died: its lease names it and nobody holds the lease. A
// run of another program takes no lease; if one of its workers lives, the
// run is alive whatever an old lease says.
func (t *tx) deadRun() bool {
	path := t.s.layout.RunLockPath(t.se.id)
	if !leaseTaken(t.s.fs, path) {
		return false
	}
	held, err := filelock.Held(path)
	if err != nil || held {
		return false
	}
	return !t.sn.workerAlive()
}

// RunIsActive reports whether a run is active in the session. NotFound.
func (s *Store) RunIsActive(ctx context.Context, id string) (bool, error) {
	sn, err := s.Load(ctx, id)
	if err != nil {
		return false, err
	}
	t := &tx{s: s, se: &session{id: id}, sn: sn}
	return t.runActive(), nil
}

// minPrefix is the shortest prefix of a node id that counts as a reference.
const minPrefix = 4

// Resolve finds the node that ref names: an exact node id, else a branch
// name, else the name under which a directory shows a branch, else a unique
// prefix of an id (four characters or more), "@" for the head; each may be
// followed by ~ or ~n for the n-th predecessor. What reads as such an
// expression is one, where it names a node: a branch whose name another
// program made to look like it is found by its node id. NotFound, Ambiguous
// (its text lists the candidates), Invalid for an empty reference.
func (sn *Snapshot) Resolve(ref Ref) (string, error) {
	if ref == "" {
		return "", sn.refError(Invalid, ref, errors.New("an empty reference names no node"))
	}
	base, n, ok := splitAncestor(ref)
	if _, exact := sn.Index.Get(ref); exact || !ok {
		return sn.resolveBase(ref)
	}
	up, err := sn.resolveAncestor(ref, base, n)
	if err == nil {
		return up, nil
	}
	if id, other := sn.resolveBase(ref); other == nil || CodeOf(other) == Ambiguous {
		return id, other
	}
	return "", err
}

// resolveAncestor resolves a reference with ~n.
func (sn *Snapshot) resolveAncestor(ref, base string, n int) (string, error) {
	id, err := sn.resolveBase(base)
	if err != nil {
		return "", err
	}
	up, ok := sn.Index.Ancestor(id, n)
	if !ok {
		return "", sn.refError(NotFound, ref, fmt.Errorf("%s has no %d predecessors", id, n))
	}
	return up, nil
}

var errNoNode = errors.New("no such node or branch")

func (sn *Snapshot) refError(code Code, ref string, err error) error {
	return &Error{Code: code, Op: "find node", Session: sn.ID, Ref: ref, Err: err}
}

// splitAncestor takes "ref~n" apart; a bare ~ is ~1.
func splitAncestor(ref string) (base string, n int, ok bool) {
	i := strings.LastIndexByte(ref, '~')
	if i <= 0 {
		return "", 0, false
	}
	if i == len(ref)-1 {
		return ref[:i], 1, true
	}
	n, err := strconv.Atoi(ref[i+1:])
	if err != nil || n < 0 || ref[i+1] == '+' {
		return "", 0, false
	}
	return ref[:i], n, true
}

// resolveBase resolves a reference without ~n.
func (sn *Snapshot) resolveBase(ref string) (string, error) {
	if ref == "@" {
		if sn.Head == "" {
			return "", sn.refError(NotFound, ref, errors.New("the session has no head"))
		}
		return sn.Head, nil
	}
	if _, ok := sn.Index.Get(ref); ok {
		return ref, nil
	}
	if named := sn.nodesNamed(ref); len(named) == 1 {
		return named[0], nil
	} else if len(named) > 1 {
		return "", sn.refError(Ambiguous, ref, candidates("branches of this name end in", named))
	}
	if node, ok := sn.shownAs(ref); ok {
		return node, nil
	}
	if len(ref) < minPrefix {
		return "", sn.refError(NotFound, ref, errNoNode)
	}
	found := sn.withPrefix(ref)
	switch len(found) {
	case 0:
		return "", sn.refError(NotFound, ref, errNoNode)
	case 1:
		return found[0], nil
	}
	return "", sn.refError(Ambiguous, ref, candidates("the prefix fits", found))
}

// candidates words an ambiguity, with at most ten of the nodes.
func candidates(what string, ids []string) error {
	sort.Strings(ids)
	more := ""
	if len(ids) > 10 {
		more = fmt.Sprintf(" and %d more", len(ids)-10)
		ids = ids[:10]
	}
	return fmt.Errorf("%s %s%s", what, strings.Join(ids, ", "), more)
}

// withPrefix lists the node ids that begin with prefix, each once.
func (sn *Snapshot) withPrefix(prefix string) []string {
	var out []string
	for n := range sn.Index.All() {
		if strings.HasPrefix(n.ID, prefix) && !contains(out, n.ID) {
			out = append(out, n.ID)
		}
	}
	return out
}

func contains(list []string, x string) bool {
	for _, y := range list {
		if x == y {
			return true
		}
	}
	return false
}

// IsRef reports whether text is exactly a node id or a branch name of the
// session, as it is or as branch/ shows it: a reference that needs no guessing.
func (sn *Snapshot) IsRef(text string) bool {
	if _, ok := sn.Index.Get(text); ok {
		return true
	}
	if len(sn.nodesNamed(text)) > 0 {
		return true
	}
	_, shown := sn.shownAs(text)
	return shown
}
