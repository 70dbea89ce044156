package conformance

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/store/attachment"
)

type markersAnswer struct {
	Message string `json:"message"`
	Markers []struct {
		Text string `json:"text"`
		Name string `json:"name"`
		Path string `json:"path"`
	} `json:"markers"`
	Stripped string `json:"stripped"`
}

func (c *check) checkAttachments(id string, want *expectedSession) {
	if want.AttachmentMarkers != nil {
		c.checkMarkers(id, want.AttachmentMarkers)
	}
	if want.Attachments == nil {
		return
	}
	var files map[string]struct {
		SHA256 string `json:"sha256"`
		Size   int    `json:"size"`
	}
	c.decode("attachments", want.Attachments, &files)
	for name, want := range files {
		b, err := os.ReadFile(filepath.Join(c.disk.sessions[id].dir, "workdir", "attachments", name))
		c.y.checkThat(err == nil, "attachment %s of %s: %v", name, id, err)
		c.y.check("attachment "+name+" of "+id, []any{sum(b), len(b)}, []any{want.SHA256, want.Size})
	}
}

// checkMarkers finds the markers in each message's text, and the text
// without them.
func (c *check) checkMarkers(id string, raw json.RawMessage) {
	var want []markersAnswer
	c.decode("attachment_markers of "+id, raw, &want)
	texts := map[string]string{}
	messages, err := c.s.GetMessages(c.ctx, id, 0)
	c.y.checkThat(err == nil, "get_messages of %s: %v", id, err)
	for _, m := range messages {
		msg := pyObject(m)
		name, _ := msg["id"].(string)
		texts[name], _ = msg["content"].(string)
	}
	for _, w := range want {
		what := "attachment markers of " + id + ", message " + w.Message
		got, markers := [][3]string{}, [][3]string{}
		for _, m := range attachment.Find(texts[w.Message]) {
			got = append(got, [3]string{m.Text, m.Name, m.Path})
		}
		for _, m := range w.Markers {
			markers = append(markers, [3]string{m.Text, m.Name, m.Path})
		}
		c.y.check(what, got, markers)
		c.y.check(what+": the text without them", attachment.Strip(texts[w.Message]), w.Stripped)
	}
}

// checkAttachmentPath: where a marker's path leads now; null is nowhere.
func (c *check) checkAttachmentPath(e expectation) {
	what := "attachment_path " + e.MarkerPath
	got, err := c.s.ResolveAttachment(e.Session, e.MarkerPath)
	if want := c.value(e.RebasedTo); want != nil {
		c.y.checkThat(err == nil, "%s: %v", what, err)
		c.y.check(what, any(got), want)
		return
	}
	code := store.CodeOf(err)
	c.y.checkThat(code == store.NotFound || code == store.Invalid, "%s = %q, %v; want none", what, got, err)
}

type sweepAnswer struct {
	Fixed int `json:"fixed"`
	Nodes []struct {
		Session string          `json:"session"`
		Node    string          `json:"node"`
		Before  string          `json:"status_before"`
		After   string          `json:"status_after"`
		Output  json.RawMessage `json:"output_after"`
		Error   *string         `json:"error_after"`
		At      *float64        `json:"interrupted_at"`
	} `json:"nodes"`
	Rows json.RawMessage `json:"rows_after"`
}

// checkNodeSweep makes the worker's own start-up pass on another copy: each
// node that a dead worker left running, and no other.
func (c *check) checkNodeSweep() {
	if len(c.want.StartupSweep) == 0 {
		return
	}
	var want sweepAnswer
	c.decode("startup_sweep", c.want.StartupSweep, &want)
	c.y.skip("startup_sweep: rows_after, where meta.json wins over the row", 1)
	other := extract(c.t, c.tarball).open()
	fixed := 0
	for _, id := range other.disk.order {
		n, err := other.s.SweepNodes(c.ctx, id)
		c.y.checkThat(err == nil, "sweep nodes of %s: %v", id, err)
		fixed += n
	}
	c.y.check("startup_sweep: nodes changed", fixed, len(want.Nodes))
	for _, n := range want.Nodes {
		what := "startup_sweep of " + n.Session + ", node " + n.Node
		sn, err := other.s.Load(c.ctx, n.Session)
		if err != nil {
			c.y.checkThat(false, "%s: %v", what, err)
			continue
		}
		entry, ok := sn.Entry(n.Node)
		raw, err := sn.Raw(entry.File)
		c.y.checkThat(ok && err == nil, "%s: %v", what, err)
		node := pyObject(raw)
		meta, _ := node["metadata"].(map[string]any)
		c.y.check(what+": status", meta["status"], any(n.After))
		c.y.check(what+": output", node["output"], c.value(n.Output))
		if n.Error != nil {
			c.y.check(what+": error", meta["error"], any(*n.Error))
		}
		if n.At != nil {
			// The clock that the suite gives has whole nanoseconds.
			c.y.checkThat(seconds(meta["interrupted_at"])-*n.At < 1e-5 && *n.At-seconds(meta["interrupted_at"]) < 1e-5, "%s: interrupted_at is %v", what, meta["interrupted_at"])
		}
	}
}
