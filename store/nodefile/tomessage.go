package nodefile

import (
	"fmt"

	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// ToMessage turns a history file into a message dict (reference 2.11): one JSON
// object on one line, its keys in the peer's order, metadata laid over it. A
// file without an id is the node nodeID. The error is Parse's.
func ToMessage(raw []byte, sessionID, nodeID string) ([]byte, error) {
	var f fields
	if err := jsonedit.WalkBytes(raw, f.take); err != nil {
		return nil, fmt.Errorf("history file: %w", err)
	}
	if err := f.checkIDs(); err != nil {
		return nil, fmt.Errorf("history file: %w", err)
	}
	meta := jsonedit.NewObject()
	if jsonedit.IsObject(f.metadata) {
		var err error
		if meta, err = jsonedit.ParseObject(f.metadata); err != nil {
			return nil, fmt.Errorf("history file: metadata: %w", err)
		}
	}
	if isNull(f.id) {
		f.id = jsonedit.EncodeString(nodeID)
	}
	nodeRole, _ := jsonedit.String(f.role)
	members := f.base(nodeRole, sessionID, meta)
	members = f.overlay(members, nodeRole, meta)
	o := jsonedit.NewObject()
	o.SetAll(members) // the first place and the last value of a key, like a dict
	if !o.Has("status") {
		o.Set("status", []byte(`"done"`))
	}
	return jsonedit.Compact(o.Bytes()), nil
}

// base returns the members that come from the node's own fields.
func (f *fields) base(nodeRole, sessionID string, meta *jsonedit.Object) []jsonedit.Member {
	role, content := "user", textOrEmpty(f.output)
	switch nodeRole {
	case roleUser:
	case roleCode:
		role = "tool"
		if !jsonedit.IsString(f.output) {
			content = jsonedit.EncodeString(string(jsonedit.Canonical(orNull(f.output))))
		}
	default:
		role = firstOf(meta.Str("role"), "assistant")
	}
	created := f.createdAt
	if isNull(created) {
		created = jsonedit.EncodeFloat(0)
	}
	members := []jsonedit.Member{
		{Key: "id", Raw: textOrEmpty(f.id)},
		{Key: "session_id", Raw: jsonedit.EncodeString(sessionID)},
		{Key: "role", Raw: jsonedit.EncodeString(role)},
		{Key: "content", Raw: content},
		{Key: "predecessor", Raw: edge(f.predecessor)},
		{Key: "caller", Raw: edge(f.caller)},
		{Key: "timestamp", Raw: created},
	}
	switch nodeRole {
	case roleUser:
		return members
	case roleCode:
		return append(members, jsonedit.Member{Key: "function", Raw: textOrEmpty(f.name)},
			jsonedit.Member{Key: "extra", Raw: f.toolExtra(meta)})
	}
	return append(members, jsonedit.Member{Key: "token_model", Raw: textOrEmpty(f.name)})
}

// overlay appends metadata. What a tool's extra holds already does not appear
// twice, and the caller of a reply is the node's.
func (f *fields) overlay(members []jsonedit.Member, nodeRole string, meta *jsonedit.Object) []jsonedit.Member {
	for key, raw := range meta.All() {
		switch {
		case nodeRole == roleCode && (key == "extra" || key == "tool_call_id"):
			continue
		case key == "caller" && nodeRole != roleUser && nodeRole != roleCode:
			continue
		}
		members = append(members, jsonedit.Member{Key: key, Raw: raw})
	}
	return members
}

// toolExtra returns the JSON string that carries a tool call.
func (f *fields) toolExtra(meta *jsonedit.Object) []byte {
	args := f.input
	if isNull(args) {
		args = []byte("{}")
	}
	use := jsonedit.NewObject()
	use.SetAll([]jsonedit.Member{
		{Key: "name", Raw: textOrEmpty(f.name)},
		{Key: "arguments", Raw: args},
		{Key: "caller", Raw: edge(f.caller)},
	})
	if raw, _ := meta.Get("tool_call_id"); jsonedit.Truthy(raw) {
		use.Set("tool_call_id", raw)
	}
	members := []jsonedit.Member{{Key: "tool_use", Raw: use.Bytes()}}
	if raw, _ := meta.Get("extra"); jsonedit.IsObject(raw) {
		if more, err := jsonedit.ParseObject(raw); err == nil {
			for key, raw := range more.All() {
				if key != "tool_use" {
					members = append(members, jsonedit.Member{Key: key, Raw: raw})
				}
			}
		}
	}
	extra := jsonedit.NewObject()
	extra.SetAll(members)
	return jsonedit.EncodeString(string(jsonedit.Canonical(extra.Bytes())))
}

func textOrEmpty(raw []byte) []byte {
	if isNull(raw) {
		return []byte(`""`)
	}
	return raw
}

func orNull(raw []byte) []byte {
	if len(raw) == 0 {
		return []byte("null")
	}
	return raw
}

// edge is an id, "" for what is false in Python.
func edge(raw []byte) []byte {
	if !jsonedit.Truthy(raw) {
		return []byte(`""`)
	}
	return raw
}
