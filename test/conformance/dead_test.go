package conformance

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// changeable reports whether anything can be written to a session: it opens, and
// its meta.json can be read or is not there.
func (s *diskSession) changeable() bool {
	_, err := os.Lstat(filepath.Join(s.dir, "meta.json"))
	return s.openable() && (s.meta != nil || err != nil)
}

// deadNodes are the nodes of a session that are in the middle of their turn. Of
// two files with one id the last is the node (reference 2.5).
func deadNodes(s *diskSession) map[string]node {
	out := map[string]node{}
	if !s.changeable() {
		return out
	}
	for _, n := range modelOf(s, nil).last {
		if _, dead := ended(n.Meta["status"]); dead {
			out[n.ID] = n
		}
	}
	return out
}

// swept is what the sweep makes of a node (reference 8.4): its status, its
// output where that is empty, and what went wrong, at the recorded time.
func (c *check) swept(n node) node {
	status, dead := ended(n.Meta["status"])
	if !dead {
		return n
	}
	now := number{Float: float64(c.clock().UnixMicro()) / 1e6}
	n.Meta = maps.Clone(n.Meta)
	n.Meta["status"] = status
	if status == "cancelled" {
		if !truthy(n.Meta["finished_at"]) {
			n.Meta["finished_at"] = now
		}
		return n
	}
	if !truthy(n.Meta["error"]) {
		n.Meta["error"] = "Worker restarted before this turn finished"
	}
	n.Meta["interrupted_at"] = now
	if n.Output == nil || n.Output == any("") {
		n.Output = "[interrupted] worker restarted mid-turn"
	}
	return n
}

// isSwept reports whether a text is that of the dead node was, swept: no other
// key is changed, and none is moved.
func (c *check) isSwept(was node, text []byte) bool {
	want, now := pyObject([]byte(was.Text)), c.swept(was)
	want["metadata"], want["output"] = now.Meta, now.Output
	before, _ := members(was.Text)
	after, _ := members(string(text))
	return equal(pyObject(text), want) && slices.Equal(before, after)
}

// sweptFile is isSwept for a file of a session's history.
func (c *check) sweptFile(s *diskSession, file string) bool {
	for _, n := range c.dead[s.id] {
		if n.File == file {
			text, err := os.ReadFile(filepath.Join(s.dir, "history", file))
			return err == nil && c.isSwept(n, text)
		}
	}
	return false
}

// sweptMessage is the message of a node that was dead, after the sweep.
func (c *check) sweptMessage(id string, nodeID any) (msg map[string]any, dead bool) {
	name, _ := nodeID.(string)
	n, dead := c.dead[id][name]
	if !dead {
		return nil, false
	}
	return c.model(id).message(c.swept(n)), true
}
