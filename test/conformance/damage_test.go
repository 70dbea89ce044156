package conformance

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// damageSeeds is how many times each store is damaged.
const damageSeeds = 3

// TestDamagedAtRandom damages the files of stores at random and compares every
// answer with the model's: a bad file is left out, nothing else is lost, every
// question is answered, also where references form loops. It is what the
// comparison falls back to where the peer failed, held to more than the
// recorded stores have.
func TestDamagedAtRandom(t *testing.T) {
	stores := filepath.Join(harness.ModuleDir(t), "test", "testdata", "stores")
	for _, name := range []string{"broken_nodes", "chat_tools", "chat_branches", "chat_spawn", "crash_running", "broken_layout", "startup_cleanup", "index_stale", "nested_projects"} {
		for seed := range uint64(damageSeeds) {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				t.Parallel()
				c := extract(t, filepath.Join(stores, name+".tar.gz"))
				d := damager{rand.New(rand.NewPCG(seed, uint64(len(name))))}
				if d.IntN(2) == 0 {
					d.registry(t, filepath.Join(c.root, "index.json"), c.disk.index)
				}
				if name != "broken_layout" { // which has links to what would go
					d.intent(t, c.root, c.disk.order)
				}
				for _, id := range c.disk.order {
					if s := c.disk.sessions[id]; !s.symlink {
						d.session(t, s)
					}
				}
				c.look()
				c.open()
				c.sweepNodes()
				if err := c.s.Close(); err != nil {
					t.Fatalf("Close: %v", err)
				}
				c.open() // which finds nothing more to do
				c.checkSweep()
				c.want.ListSessions = nil
				c.checkList()
				for _, id := range c.disk.order {
					c.ruleAll(id, &expectedSession{})
				}
				c.want.Sessions, c.want.Disk.IndexAfterOpen = nil, nil
				c.checkDisk()
				c.checkRegistry()
				t.Logf("%s", c.y)
			})
		}
	}
}

// damager is a source of damage.
type damager struct{ *rand.Rand }

func (d damager) pick(of []string) string { return of[d.IntN(len(of))] }

// registry damages index.json: it goes, is cut, becomes something else, or its
// rows go, lag behind or are none.
func (d damager) registry(t *testing.T, file string, text []byte) {
	t.Helper()
	write := func(s string) {
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	switch d.IntN(6) {
	case 0:
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		return
	case 1:
		write(string(text[:d.IntN(len(text))]))
		return
	case 2:
		write(d.pick([]string{"", "{}", "[]", "null", "{\n}"}))
		return
	}
	ids, rows := members(string(text))
	var out []string
	for i, id := range ids {
		row := rows[i]
		switch d.IntN(5) {
		case 0:
			continue
		case 1:
			row = d.pick([]string{"7", "null", "[]", `{}`, `{"id": "other"}`})
		case 2:
			row = strings.TrimSuffix(strings.TrimSpace(row), "\n  }") + ",\n    " + d.pick([]string{
				`"status": "running"`, `"status": "cancelling"`, `"title": "stale"`, `"unknown": {"a": [1, 2]}`, `"archived": true`,
				`"updated_at": 99999999999`, `"preview": null`, `"id": "other"`, `"created_at": 0`,
			}) + "\n  }"
		}
		out = append(out, string(quoted(id))+": "+row)
	}
	write("{\n  " + strings.Join(out, ",\n  ") + "\n}")
}

// intent leaves a deletion that was cut off before its first removal.
func (d damager) intent(t *testing.T, root string, ids []string) {
	t.Helper()
	if d.IntN(2) == 0 {
		return
	}
	if err := os.MkdirAll(filepath.Join(root, ".deleted"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, ".deleted", d.pick(ids)), []byte(d.pick([]string{"", "{", `{"deleted_at": 1.0}`})), 0o600); err != nil {
		t.Fatal(err)
	}
}

// session damages some files of a session.
func (d damager) session(t *testing.T, s *diskSession) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "history", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, n := range s.nodes() {
		ids = append(ids, n.ID)
	}
	ids = append(ids, "no-such-node", "ROOT")
	for range 1 + len(files)/4 {
		if len(files) == 0 {
			break
		}
		d.node(t, d.pick(files), ids)
	}
	if d.IntN(3) == 0 {
		d.edit(t, filepath.Join(s.dir, "meta.json"), d.pick([]string{
			`"status": "running"`, `"status": "cancelling"`, `"status": "needs_input"`, `"status": null`, `"head_id": null`,
			`"head_id": "no-such-node"`, `"merged_heads": ["` + d.pick(ids) + `", 7, null]`, `"merged_heads": {}`, `"branches": []`,
			`"branches": {"` + d.pick(ids) + `": {"archived": true, "updated_at": 5}, "` + d.pick(ids) + `": "old form"}`,
			`"branches": {"` + d.pick(ids) + `": null, "` + d.pick(ids) + `": {"name": 3, "created_at": "x"}}`,
			`"head_id": "", "last_node_id": "` + d.pick(ids) + `"`, `"created_at": 0`, `"updated_at": 12345678901234567890`,
		}))
	}
}

// node damages one history file: it is cut, becomes something else, or a value
// in it is replaced.
func (d damager) node(t *testing.T, file string, ids []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		return // gone, or moved
	}
	base, dir := filepath.Base(file), filepath.Dir(file)
	write := func(b []byte) {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	switch d.IntN(14) {
	case 0:
		write(text[:d.IntN(len(text)+1)])
	case 1:
		write(nil)
	case 2:
		write([]byte(d.pick([]string{"[]", "null", "7", `"text"`, "{}", "{} {}", "\ufeff{}", strings.Repeat("[", 5000)})))
	case 3:
		at := d.IntN(len(text) + 1)
		write(append(append(slices.Clone(text[:at]), 0xff), text[at:]...))
	case 4:
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	case 5:
		if err := os.Rename(file, filepath.Join(dir, d.pick([]string{".", "x", "00", "99999-u-"})+base)); err != nil {
			t.Fatal(err)
		}
	case 6:
		if err := os.WriteFile(filepath.Join(dir, d.pick([]string{".", "9", "copy-"})+base), text, 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		d.edit(t, file, d.pick([]string{
			`"id": null`, `"id": 7`, `"id": ""`, `"id": "` + d.pick(ids) + `"`, `"seq": null`, `"seq": -1`, `"seq": 2.5`, `"seq": "3"`,
			`"seq": 123456789012345678901234567890`, `"predecessor": null`, `"predecessor": "` + d.pick(ids) + `"`, `"predecessor": ["x"]`,
			`"predecessor": "` + d.pick(ids) + `"`, `"caller": "` + d.pick(ids) + `"`, `"caller": 5`, `"caller": null`, `"caller": {}`,
			`"role": null`, `"role": "llm"`, `"role": "user"`, `"role": "other"`, `"name": 5`, `"name": "context/summary"`, `"metadata": null`,
			`"metadata": "text"`, `"metadata": {"structural": true}`, `"metadata": {"display": "root"}`, `"metadata": {"rewound": 1}`,
			`"metadata": {"covers_ids": []}`, `"metadata": {"function": "attach"}`, `"metadata": {"status": "running"}`,
			`"metadata": {"status": "cancelling", "finished_at": 3}`, `"metadata": {"role": "system", "content": 5, "id": "other"}`,
			`"output": null`, `"output": {"a": [1.0, NaN]}`, `"output": "\ud83d"`, `"input": {"x": 1}`, `"created_at": "soon"`,
			`"created_at": 1e400`, `"created_at": 17`,
		}))
	}
}

// edit appends a member to an object's text; it counts, being the last of its
// key.
func (d damager) edit(t *testing.T, file, member string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		return // there is none
	}
	body, ok := strings.CutSuffix(strings.TrimSpace(string(text)), "}")
	if !ok {
		return // damaged already
	}
	if strings.TrimSpace(body) != "{" {
		body += ", "
	}
	if err := os.WriteFile(file, []byte(body+member+"}"), 0o600); err != nil {
		t.Fatal(err)
	}
}
