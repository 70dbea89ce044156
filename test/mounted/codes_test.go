package mounted

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sessionfs/sessionfs/store"
	"github.com/sessionfs/sessionfs/test/harness"
)

// codeRow is a row of the table of codes in docs/operations.md.
var codeRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (E[A-Z]+)")

// provoked is a refusal that a test provokes: on a path of the mount, or with
// a command of a session's ctl.
type provoked struct {
	err error
	ctl string // the session's directory, where ctl was written
}

// TestEveryCode: each code of the documented table is provoked on a mount, by
// a system call and by a command of ctl, as far as there is one. The call gets
// the documented errno, .sessionfs/errors has a line with errno, code and a
// text, and ctl tells the code and a text.
func TestEveryCode(t *testing.T) {
	doc := read(t, harness.ModuleDir(t), "docs", "operations.md")
	rows := codeRow.FindAllStringSubmatch(doc, -1)
	if len(rows) < 15 {
		t.Fatalf("the table has %d codes", len(rows))
	}
	ways := codeWays()
	for _, row := range rows {
		code, errno := row[1], row[2]
		way, ok := ways[code]
		if !ok {
			t.Errorf("no way to provoke %s", code)
			continue
		}
		delete(ways, code)
		t.Run(code, func(t *testing.T) {
			m, all := way(t)
			for i, p := range all {
				checkCode(t, m, i, p, errno, code)
			}
		})
	}
	for code := range ways {
		t.Errorf("%s is not in the table", code)
	}
}

func checkCode(t *testing.T, m *harness.Mount, i int, p provoked, errno, code string) {
	t.Helper()
	var got syscall.Errno
	if !errors.As(p.err, &got) || unix.ErrnoName(got) != errno {
		t.Errorf("way %d: %v, want %s", i, p.err, errno)
	}
	if p.ctl != "" {
		told := regexp.MustCompile(`(?m)^error ` + code + `\b.*[a-z]`)
		if text := read(t, p.ctl, "ctl"); !told.MatchString(text) {
			t.Errorf("way %d: ctl reads %q", i, text)
		}
	}
	lines := strings.Split(read(t, m.Path(".sessionfs", "errors")), "\n")
	if !slices.ContainsFunc(lines, func(line string) bool {
		f := strings.Split(line, "\t")
		return len(f) == 6 && f[3] == errno && f[4] == code && f[5] != ""
	}) {
		t.Errorf("way %d: .sessionfs/errors has no line with %s, %s and a text:\n%s", i, errno, code, strings.Join(lines, "\n"))
	}
}

// onSession are ways that need no more than a session: paths and texts to
// write.
func onSession(golden, session string, writes ...[2]string) func(*testing.T) (*harness.Mount, []provoked) {
	return func(t *testing.T) (*harness.Mount, []provoked) {
		m := harness.Start(t, harness.Options{Store: harness.Golden(t, golden), Warnings: []string{"WARN"}})
		var out []provoked
		for _, w := range writes {
			p := provoked{err: put(m.Session(session, w[0]), w[1])}
			if w[0] == "ctl" {
				p.ctl = m.Session(session)
			}
			out = append(out, p)
		}
		return m, out
	}
}

// onMount are ways that need a mount of the branching chats.
func onMount(do func(t *testing.T, m *harness.Mount, s string) []provoked) func(*testing.T) (*harness.Mount, []provoked) {
	return func(t *testing.T) (*harness.Mount, []provoked) {
		m := start(t, "chat_branches")
		return m, do(t, m, m.Session(nested))
	}
}

// codeWays are the ways to each code.
func codeWays() map[string]func(*testing.T) (*harness.Mount, []provoked) {
	return map[string]func(*testing.T) (*harness.Mount, []provoked){
		"not_found":           onSession("chat_branches", nested, [2]string{"head_id", "nosuchnode\n"}, [2]string{"ctl", "head nosuchnode\n"}),
		"ambiguous":           onSession("chat_branches", nested, [2]string{"head_id", "same name\n"}, [2]string{"ctl", "head 'same name'\n"}),
		"summary_head":        onSession("chat_compaction", "local_middle_d173ea7c", [2]string{"head_id", "summary_61bf9173df\n"}, [2]string{"ctl", "head summary_61bf9173df\n"}),
		"invalid":             onSession("chat_branches", nested, [2]string{"fields/pinned", "maybe\n"}, [2]string{"append/message.json", "[1]"}, [2]string{"ctl", "frobnicate\n"}),
		"predecessor_missing": onSession("chat_branches", nested, [2]string{"append/message.json", `{"role": "assistant", "content": "x", "predecessor": null}`}),
		"too_large":           onSession("chat_branches", nested, [2]string{"head_id", strings.Repeat("a", 65<<10)}, [2]string{"./ctl", "head " + strings.Repeat("a", 1<<20) + "\n"}), // no command yet, so that ctl tells no outcome
		"exists":              onSession("chat_branches", nested, [2]string{"ctl", "name " + tipDetour + " trunk\n"}),
		"immutable": onMount(func(_ *testing.T, _ *harness.Mount, s string) []provoked {
			return []provoked{{err: syscall.Unlink(filepath.Join(s, "head"))}, {err: os.Remove(filepath.Join(s, "fields", "title"))}}
		}),
		"not_empty": onMount(func(_ *testing.T, _ *harness.Mount, s string) []provoked { return []provoked{{err: syscall.Rmdir(s)}} }),
		"run_active": onMount(func(t *testing.T, m *harness.Mount, s string) []provoked {
			defer begin(t, m, nested).Close()
			return []provoked{{err: put(filepath.Join(s, "head_id"), tipDetour+"\n")}, {err: put(filepath.Join(s, "append", "user"), "x\n")},
				{err: put(filepath.Join(s, "ctl"), "head "+tipDetour+"\n"), ctl: s}}
		}),
		"burnt_id": onMount(func(t *testing.T, m *harness.Mount, _ string) []provoked {
			if err := errors.Join(os.Mkdir(m.Session("burnt_one"), 0o700), put(m.Path(".sessionfs", "ctl"), "delete-session burnt_one\n")); err != nil {
				t.Fatal(err)
			}
			return []provoked{{err: os.Mkdir(m.Session("burnt_one"), 0o700)}}
		}),
		"conflict": onMount(func(t *testing.T, _ *harness.Mount, s string) []provoked {
			name := names(t, s, "messages")[6]
			f, err := os.OpenFile(filepath.Join(s, "messages", name), os.O_WRONLY|os.O_TRUNC, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteString("another question\n")
			if err := errors.Join(err, put(filepath.Join(s, "head_id"), tipDetour+"\n")); err != nil {
				t.Fatal(err)
			}
			return []provoked{{err: f.Close()}}
		}),
		"corrupt": func(t *testing.T) (*harness.Mount, []provoked) {
			m := harness.Start(t, harness.Options{Store: harness.Golden(t, "broken_nodes"), Warnings: []string{"WARN"}})
			_, err := os.ReadDir(m.Session("local_nopred_4d4631ff", "messages"))
			return m, []provoked{{err: err}}
		},
		"no_space": onMount(func(_ *testing.T, _ *harness.Mount, s string) []provoked {
			return []provoked{{err: os.WriteFile(filepath.Join(s, "mine"), make([]byte, 65<<20), 0o600)}}
		}),
		"locked": onMount(func(t *testing.T, m *harness.Mount, s string) []provoked {
			foreign := harness.NewForeign(t)
			foreign.Do(harness.ForeignRequest{Store: m.Store, Session: nested, Op: "lock"})
			defer foreign.Do(harness.ForeignRequest{Store: m.Store, Session: nested, Op: "unlock"})
			stem := storedNodes(t, m, nested)[tipDetour].Stem
			return []provoked{{err: os.Rename(filepath.Join(s, "nodes", stem+".md"), filepath.Join(s, "head"))}}
		}),
		"read_only": func(t *testing.T) (*harness.Mount, []provoked) {
			m := harness.Start(t, harness.Options{Store: harness.Golden(t, "chat_branches"), Args: []string{"--read-only"}})
			return m, nil // the kernel refuses; that it does is in TestReadOnly
		},
		"confirm": confirmWay,
	}
}

// confirmWay rewinds over a reply that changed a file of the project's.
func confirmWay(t *testing.T) (*harness.Mount, []provoked) {
	t.Helper()
	state, ctx := t.TempDir(), t.Context()
	project := filepath.Join(state, "work")
	file := filepath.Join(project, "made")
	registry := `{"p1": {"id": "p1", "name": "Work", "path": "` + project + `", "session_ids": []}}`
	err := errors.Join(os.MkdirAll(filepath.Join(state, "projects"), 0o700), os.Mkdir(project, 0o700),
		os.WriteFile(filepath.Join(state, "projects", "projects.json"), []byte(registry), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(state, "sessions")
	st, err := store.Open(ctx, store.Options{Root: root, State: state, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	err = st.CreateSession(ctx, store.NewSession{ID: "x", Root: true, Project: "p1"})
	var ids []string
	for i, text := range []string{"q1", "a1", "q2", "a2"} {
		r, appendErr := st.AppendText(ctx, "x", []string{"user", "assistant"}[i%2], text)
		err = errors.Join(err, appendErr)
		ids = append(ids, r.ID)
	}
	err = errors.Join(err, st.BeforeWrite(ctx, "x", ids[3], file), os.WriteFile(file, []byte("x"), 0o600), st.AfterWrite(ctx, "x", ids[3], file), st.Close())
	if err != nil {
		t.Fatal(err)
	}
	m := harness.Start(t, harness.Options{Store: root})
	return m, []provoked{{err: put(m.Session("x", "ctl"), "rewind "+ids[2]+"\n"), ctl: m.Session("x")}}
}
