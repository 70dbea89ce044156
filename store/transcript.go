package store

import (
	"time"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/dag/render"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// Transcript renders the active branch as one Markdown document: every
// message with its role, model and time, and under each reply the calls that
// it made. It is rendered anew each time: a snapshot stays for as long as
// anybody has a look at the session. Corrupt when the branch's chain is broken;
// a node whose file cannot be read is shown as such, and the rest is there.
func (sn *Snapshot) Transcript() ([]byte, error) {
	branch, err := sn.Branch()
	if err != nil {
		return nil, err
	}
	msgs := make([]render.Message, 0, len(branch))
	for _, n := range branch {
		m := sn.renderMessage(n)
		for _, call := range sn.Index.Callees(n.ID) {
			if call.Role == "code" {
				m.Calls = append(m.Calls, sn.renderCall(call))
			}
		}
		msgs = append(msgs, m)
	}
	return render.Transcript(sn.Title(), sn.ID, msgs), nil
}

func (sn *Snapshot) renderMessage(n dag.Node) render.Message {
	m := render.Message{Node: n, Role: n.Speaker(), Model: modelName(n), Status: n.Status, Time: nodeTime(n)}
	text, err := sn.Text(n.ID)
	if err != nil {
		m.Text = "(" + err.Error() + ")"
		return m
	}
	m.Text = string(text)
	return m
}

func modelName(n dag.Node) string {
	if n.Role == "llm" {
		return n.Name
	}
	return ""
}

func nodeTime(n dag.Node) time.Time {
	t, _ := seconds(n.CreatedAt)
	return t
}

// renderCall shows a tool call: its name, its arguments as JSON and its
// result as text.
func (sn *Snapshot) renderCall(n dag.Node) render.Call {
	c := render.Call{Name: n.Name, OK: n.Status != "error" && n.Status != "failed"}
	e, ok := sn.Entry(n.ID)
	if !ok {
		return c
	}
	raw, err := sn.Raw(e.File)
	if err != nil {
		c.Result, c.OK = err.Error(), false
		return c
	}
	node, err := jsonedit.ParseObject(raw)
	if err != nil {
		c.Result, c.OK = err.Error(), false
		return c
	}
	if in, ok := node.Get("input"); ok && !jsonedit.IsNull(in) {
		c.Args = string(jsonedit.Compact(in))
	}
	if out, ok := node.Get("output"); ok && !jsonedit.IsNull(out) {
		c.Result = valueText(out)
	}
	if md, ok := node.Get("metadata"); ok {
		if o, err := jsonedit.ParseObject(md); err == nil && o.Truthy("is_error") {
			c.OK = false
		}
	}
	return c
}
