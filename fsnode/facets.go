package fsnode

import (
	"github.com/sessionfs/sessionfs/store"
)

// facets are what views/ sorts sessions by, beside their activity.
type facets struct {
	title, project, agent, source, status, group string
	pinned                                       bool
}

func facetsOf(r store.Row) facets {
	return facets{title: r.Title, project: r.Project, agent: r.AgentID, source: r.Source, status: r.Status, group: r.Group, pinned: r.Pinned}
}

// after returns the facets as a change of meta.json leaves them. A key that
// was never there says nothing: the registry's value stands. The project is
// the project registry's to say. It only touches memory.
func (f facets) after(old, cur *store.Snapshot) facets {
	text := func(key string, value *string) {
		if s, there := cur.Str(key); there {
			*value = s
		} else if old != nil {
			if _, was := old.Str(key); was {
				*value = ""
			}
		}
	}
	text("title", &f.title)
	text("agent_id", &f.agent)
	text("source", &f.source)
	text("status", &f.status)
	text("group", &f.group)
	if f.status == "" {
		f.status = "idle"
	}
	if b, there := cur.Truthy("pinned"); there {
		f.pinned = b
	} else if old != nil {
		if _, was := old.Truthy("pinned"); was {
			f.pinned = false
		}
	}
	return f
}
