package store

import (
	"context"
	"sort"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// open loads a session for the reads of the peer's interface, which answer
// with nothing for a session that is unknown or cannot be opened (reference
// 1.4 and 6.1): nil then.
func (s *Store) open(ctx context.Context, id string) (*Snapshot, error) {
	sn, err := s.Load(ctx, id)
	if err != nil {
		return nil, ignoreUnknown(err)
	}
	if !sn.Openable {
		return nil, nil
	}
	return sn, nil
}

// sessionKeys are the keys of get_session's answer that meta.json's other
// keys never replace (reference 6.3).
var sessionKeys = map[string]bool{
	"id": true, "agent_id": true, "title": true, "created_at": true, "updated_at": true, "source": true,
	"head_id": true, "model": true, "context_tree": true, "extra_meta": true, "last_prompt_tokens": true,
}

// plainKeys are the meta.json keys that are not among extra_meta:
// last_prompt_tokens has a place of its own in the answer and is among them
// all the same, as in the peer's.
var plainKeys = map[string]bool{
	"id": true, "agent_id": true, "title": true, "created_at": true, "updated_at": true, "source": true,
	"head_id": true, "model": true, "last_node_id": true,
}

// GetSession returns a session as the peer's get_session does (reference
// 6.3), as one JSON object. NotFound.
func (s *Store) GetSession(ctx context.Context, id string) ([]byte, error) {
	sn, err := s.open(ctx, id)
	if err != nil {
		return nil, err
	}
	if sn == nil {
		return nil, &Error{Code: NotFound, Op: "get session", Session: id, Err: errUnknownSession}
	}
	m := sn.meta.obj
	or := func(key, absent string, falsy bool) []byte {
		raw, ok := m.Get(key)
		if !ok || falsy && !jsonedit.Truthy(raw) {
			return []byte(absent)
		}
		return raw
	}
	extra := jsonedit.NewObject()
	for _, k := range m.Keys() {
		if !plainKeys[k] {
			raw, _ := m.Get(k)
			extra.Set(k, raw)
		}
	}
	out := jsonedit.NewObject()
	out.Set("id", or("id", string(jsonedit.EncodeString(id)), true))
	out.Set("agent_id", or("agent_id", `""`, false))
	out.Set("title", or("title", `""`, false))
	out.Set("created_at", or("created_at", "0", true))
	out.Set("updated_at", or("updated_at", "0", true))
	out.Set("source", or("source", "null", true))
	out.Set("head_id", headJSON(sn.meta.rawHead()))
	out.Set("model", or("model", "null", true))
	out.Set("context_tree", []byte("null"))
	extraRaw := []byte("null")
	if len(extra.Keys()) > 0 {
		extraRaw = extra.Bytes()
	}
	out.Set("extra_meta", extraRaw)
	out.Set("last_prompt_tokens", or("last_prompt_tokens", "0", true))
	for _, k := range extra.Keys() {
		if !sessionKeys[k] {
			raw, _ := extra.Get(k)
			out.Set(k, raw)
		}
	}
	return out.Bytes(), nil
}

func headJSON(id string) []byte {
	if id == "" {
		return []byte("null")
	}
	return jsonedit.AppendString(nil, id)
}

// GetMessages returns message dicts of all branches in stored order
// (reference 5.5); limit > 0 keeps the last ones. Unknown session: none.
func (s *Store) GetMessages(ctx context.Context, id string, limit int) ([][]byte, error) {
	sn, err := s.open(ctx, id)
	if sn == nil || err != nil {
		return nil, err
	}
	var out [][]byte
	files := sn.messageFiles()
	if limit > 0 {
		files = files[max(0, len(files)-limit):]
	}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		msg, err := sn.messageOfFile(f)
		if err != nil {
			return nil, err
		}
		out = append(out, msg)
	}
	return out, nil
}

// messageFiles lists the files of the nodes that are messages, in stored
// order; of two nodes with one id both count.
func (sn *Snapshot) messageFiles() []string {
	var out []string
	for i, e := range sn.entries {
		if sn.Index.At(i).IsMessage() {
			out = append(out, e.File)
		}
	}
	return out
}

// GetBranch returns the branch that ends in head, oldest first (reference
// 5.4); "" is the session's own head. Unknown session or head: none. Corrupt
// (wrapping *dag.BrokenChainError) when the chain is broken.
func (s *Store) GetBranch(ctx context.Context, id, head string) ([]dag.Node, error) {
	sn, err := s.open(ctx, id)
	if sn == nil || err != nil {
		return nil, err
	}
	if head == "" {
		head = sn.meta.rawHead()
	}
	return sn.BranchOf(head)
}

// ListBranches returns the tips (reference 5.7), newest first, archived ones
// included, merged ones not. Unknown session: none.
func (s *Store) ListBranches(ctx context.Context, id string) ([]Branch, error) {
	sn, err := s.open(ctx, id)
	if sn == nil || err != nil {
		return nil, err
	}
	return sn.Tips(), nil
}

// ListArchivedBranches returns the archived branch entries whose node exists,
// merged ones included (reference 5.7). Unknown session: none.
func (s *Store) ListArchivedBranches(ctx context.Context, id string) ([]Branch, error) {
	sn, err := s.open(ctx, id)
	if sn == nil || err != nil {
		return nil, err
	}
	return sn.archivedBranches(), nil
}

// MergedHeads returns the consumed tips (reference 5.8), sorted. Unknown
// session: none.
func (s *Store) MergedHeads(ctx context.Context, id string) ([]string, error) {
	sn, err := s.open(ctx, id)
	if sn == nil || err != nil {
		return nil, err
	}
	merged := sn.mergedHeads()
	out := make([]string, 0, len(merged))
	for id := range merged {
		out = append(out, id)
	}
	sort.Strings(out)
	return out, nil
}

// LatestUserText returns the last user node's output verbatim (reference
// 5.10); ok is false when there is no such node or no session.
func (s *Store) LatestUserText(ctx context.Context, id string) (text string, ok bool, err error) {
	sn, err := s.open(ctx, id)
	if sn == nil || err != nil {
		return "", false, err
	}
	// By its place: another file may have the same id (reference 2.5).
	for i := sn.Index.Len() - 1; i >= 0; i-- {
		n := sn.Index.At(i)
		if n.Role != "user" {
			continue
		}
		raw, err := sn.Raw(sn.entries[i].File)
		if err != nil {
			return "", false, err
		}
		node, err := jsonedit.ParseObject(raw)
		if err != nil {
			return "", false, &Error{Code: Corrupt, Op: "read node", Session: id, Ref: n.ID, Err: err}
		}
		return node.Str("output"), true, nil
	}
	return "", false, nil
}
