package conformance

import (
	"cmp"
	"maps"
	"slices"
)

// session is get_session (reference 6.3).
func (m *model) session() map[string]any {
	or := func(key string, absent any) any {
		if v := m.meta[key]; truthy(v) {
			return v
		}
		return absent
	}
	out := map[string]any{
		"id": or("id", m.s.id), "agent_id": or("agent_id", ""), "title": or("title", ""),
		"created_at": or("created_at", number{Int: "0"}), "updated_at": or("updated_at", number{Int: "0"}),
		"source": or("source", nil), "head_id": nil, "model": or("model", nil), "context_tree": nil, "extra_meta": nil,
		"last_prompt_tokens": or("last_prompt_tokens", number{Int: "0"}),
	}
	if head := m.head(); head != "" {
		out["head_id"] = head
	}
	extra := maps.Clone(m.meta)
	for _, key := range []string{"id", "agent_id", "title", "created_at", "updated_at", "source", "head_id", "model", "last_node_id"} {
		delete(extra, key)
	}
	if len(extra) > 0 {
		out["extra_meta"] = extra
	}
	for key, v := range extra {
		if _, taken := out[key]; !taken {
			out[key] = v
		}
	}
	return out
}

// rows is get_nodes.
func (m *model) rows() []nodeAnswer {
	out := []nodeAnswer{}
	for _, n := range m.nodes {
		a := nodeAnswer{Seq: n.Seq, ID: n.ID, Role: n.Role, Name: n.Name, Caller: n.Caller}
		if pred := n.Pred; pred != "" {
			a.Predecessor = &pred
		}
		out = append(out, a)
	}
	return out
}

// shown are the nodes of get_messages (reference 5.5).
func (m *model) shown() []node {
	return slices.DeleteFunc(slices.Clone(m.nodes), func(n node) bool {
		return n.display("root") || n.flag("rewound") || n.flag("structural") || n.context() && n.Name != "context/summary"
	})
}

// messages is get_messages, with what is JSON in a text of it decoded: see
// decoded.
func (m *model) messages() []map[string]any {
	out := []map[string]any{}
	for _, n := range m.shown() {
		out = append(out, m.message(n))
	}
	return out
}

// message is a node as a message dict (reference 2.11). A time and a name are
// passed on as they are, also where they make no sense.
func (m *model) message(n node) map[string]any {
	file := pyObject([]byte(n.Text))
	created, name := cmp.Or(file["created_at"], any(number{})), cmp.Or(file["name"], any(""))
	msg := map[string]any{
		"id": n.ID, "session_id": m.s.id, "role": "user", "content": n.Output, "predecessor": n.Pred, "caller": n.Caller,
		"timestamp": created, "status": "done",
	}
	overlay := maps.Clone(n.Meta)
	switch n.Role {
	case "user":
	case "code":
		msg["role"], msg["function"], msg["extra"] = "tool", name, toolExtra(n, name)
		delete(overlay, "extra")
		delete(overlay, "tool_call_id")
	default:
		msg["role"], msg["token_model"] = "assistant", name
		if role, ok := n.Meta["role"].(string); ok && role != "" {
			msg["role"] = role
		}
		delete(overlay, "caller")
	}
	if n.Output == nil && n.Role != "code" {
		msg["content"] = ""
	}
	maps.Copy(msg, overlay)
	return msg
}

// toolExtra is what the extra of a tool's message holds as JSON.
func toolExtra(n node, name any) map[string]any {
	use := map[string]any{"name": name, "arguments": n.Input, "caller": n.Caller}
	if n.Input == nil {
		use["arguments"] = map[string]any{}
	}
	if id := n.Meta["tool_call_id"]; truthy(id) {
		use["tool_call_id"] = id
	}
	extra := map[string]any{}
	if more, ok := n.Meta["extra"].(map[string]any); ok {
		extra = maps.Clone(more)
	}
	extra["tool_use"] = use
	return extra
}

// decoded turns an answered message into the form of messages: the text of a
// tool's extra, and its content where the node's output is no text, are JSON,
// and what counts is what they say.
func decoded(n node, msg map[string]any) map[string]any {
	if n.Role != "code" {
		return msg
	}
	out := maps.Clone(msg)
	decode := func(key string) {
		if text, ok := msg[key].(string); ok {
			if v, err := pyDecode([]byte(text)); err == nil {
				out[key] = v
			}
		}
	}
	decode("extra")
	if _, isText := n.Output.(string); !isText {
		decode("content")
	}
	return out
}
