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
	Fixed int         `json:"fixed"`
	Nodes []sweptNode `json:"nodes"`
	Rows  map[string]struct {
		Row  *string `json:"row"`
		Meta *string `json:"meta"`
	} `json:"rows_after"`
}

type sweptNode struct {
	Session string          `json:"session"`
	Node    string          `json:"node"`
	Before  string          `json:"status_before"`
	After   string          `json:"status_after"`
	Output  json.RawMessage `json:"output_after"`
	Error   *string         `json:"error_after"`
	At      *float64        `json:"interrupted_at"`
}

// checkNodeSweep makes the worker's own start-up pass on another copy: each
// node that a dead worker left running, and no other. What it does to the
// status of sessions is part of opening here.
func (c *check) checkNodeSweep() {
	if len(c.want.StartupSweep) == 0 {
		return
	}
	var want sweepAnswer
	c.decode("startup_sweep", c.want.StartupSweep, &want)
	other := extract(c.t, c.tarball).open()
	c.y.check("startup_sweep: nodes changed", other.sweepNodes(), len(want.Nodes))
	for _, n := range want.Nodes {
		c.y.check("startup_sweep of "+n.Node+": the status before", c.dead[n.Session][n.Node].Meta["status"], any(n.Before))
		c.checkSwept(other, n)
	}
	c.checkSweptRows(other, &want)
}

// sweepNodes ends the nodes of every session that a dead worker left, and
// returns how many.
func (c *check) sweepNodes() int {
	fixed := 0
	for _, id := range c.disk.order {
		if !c.disk.sessions[id].changeable() {
			continue
		}
		n, err := c.s.SweepNodes(c.ctx, id)
		c.y.checkThat(err == nil, "sweep nodes of %s: %v", id, err)
		fixed += n
	}
	return fixed
}

func (c *check) checkSwept(other *check, n sweptNode) {
	what := "startup_sweep of " + n.Session + ", node " + n.Node
	sn, err := other.s.Load(c.ctx, n.Session)
	if err != nil {
		c.y.checkThat(false, "%s: %v", what, err)
		return
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
		c.y.check(what+": interrupted_at", seconds(meta["interrupted_at"]), *n.At)
	}
}

// checkSweptRows compares the status of every session after the sweep, in
// meta.json and in the registry's file. The peer's are right but where a run
// is dead, and where its row is not what meta.json says.
func (c *check) checkSweptRows(other *check, want *sweepAnswer) {
	if err := other.s.Close(); err != nil {
		c.y.checkThat(false, "close: %v", err)
	}
	b, err := os.ReadFile(filepath.Join(other.root, "index.json"))
	c.y.checkThat(err == nil, "read index.json: %v", err)
	rows, peers := pyObject(b), 0
	for _, id := range sortedIDs(want.Rows) {
		w := want.Rows[id]
		s := other.disk.sessions[id]
		if before := other.disk.rows[id]["status"]; w.Row != nil && !equal(any(*w.Row), before) && *w.Row != "idle" {
			peers++ // the peer's pass changed it and counts it
		}
		if s == nil {
			got, _ := rows[id].(map[string]any)
			c.differs(goneRows, func() { c.y.check("startup_sweep: the row of "+id, got, other.fileRow(id)) })
			continue
		}
		row, meta := nullable(w.Row), nullable(w.Meta)
		why := difference("")
		if before := other.disk.rows[id]["status"]; meta != nil && !equal(meta, before) {
			row, why = meta, registryRows
		}
		if status, dead := other.disk.statusAfter(id); dead {
			row, why = status, deadRuns
			if s.openable() {
				meta = status
			}
		}
		b, err := os.ReadFile(filepath.Join(s.dir, "meta.json"))
		got, _ := rows[id].(map[string]any)
		compare := func() {
			c.y.check("startup_sweep: status in the row of "+id, got["status"], row)
			c.y.check("startup_sweep: status in meta.json of "+id, pyObject(b)["status"], meta)
			c.y.checkThat(err == nil || s.meta == nil, "read meta.json of %s: %v", id, err)
		}
		if why == "" {
			compare()
			continue
		}
		c.differs(why, compare)
	}
	c.y.check("startup_sweep: what the peer counts", len(want.Nodes)+peers, want.Fixed)
}

// nullable is a recorded text or null.
func nullable(s *string) any {
	if s == nil {
		return nil
	}
	return *s
}
