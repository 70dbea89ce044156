package fsnode

import (
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestWords(t *testing.T) {
	for line, want := range map[string][3]string{
		`a b c`:              {"a", "b c"},
		`  a   b `:           {"a", "b "},
		`"a b" c`:            {"a b", "c"},
		`'a "b' c`:           {`a "b`, "c"},
		`"a \"b\" \\ \n\q"`:  {"a \"b\" \\ \n\\q", ""},
		`"a`:                 {"", "", "!"},
		`"a"b`:               {"", "", "!"},
		`x`:                  {"x", ""},
		``:                   {"", ""},
		"a\tb":               {"a", "b"},
		`"" b`:               {"", "b"},
		`'it''s' no`:         {"", "", "!"},
		`détour "two words"`: {"détour", `"two words"`},
	} {
		word, rest, err := cutWord(line)
		if (err != nil) != (want[2] == "!") || err == nil && (word != want[0] || rest != want[1]) {
			t.Errorf("%q: %q, %q, %v", line, word, rest, err)
		}
	}
	for rest, want := range map[string]string{
		`a b `: "a b", `"a b"`: "a b", `"a" b`: `"a" b`, `'x`: `'x`, ``: "", `say "hi"`: `say "hi"`, `"a\nb"`: "a\nb", `''`: "",
	} {
		if got := wholeArg(rest); got != want {
			t.Errorf("%q: %q, want %q", rest, got, want)
		}
	}
}

func TestCommands(t *testing.T) {
	b := newBench(t, nil)
	ids := b.chat("s1")
	p := "sessions/s1/"
	head := func(want, text string) {
		t.Helper()
		b.agree("s1", want, text)
	}
	do := func(line string) {
		t.Helper()
		must(t, line, b.write(p+"ctl", line+"\n"))
		word, _, _ := strings.Cut(line, " ")
		lines := strings.Split(strings.TrimSpace(b.read(p+"ctl")), "\n")
		if last := lines[len(lines)-1]; !strings.HasPrefix(last, "ok "+word) {
			t.Errorf("%s: the outcome is %q", line, last)
		}
	}
	do("name " + ids[2] + " a long name")
	if got := b.list(p + "branch"); !slices.Contains(got, "a long name") {
		t.Errorf("branches %q", got)
	}
	do(`checkout "a long name"`)
	head(ids[2], "second question")
	do("head " + ids[1] + "~1")
	head(ids[0], "first question")
	do("leaf")
	head(ids[3], "another second question")
	do("leaf " + ids[0])
	do("sibling " + ids[3] + " prev")
	head(ids[2], "second question")
	do("sibling " + ids[2] + " next")
	head(ids[3], "another second question")
	do("head " + ids[1])
	do("retry " + ids[1])
	head(ids[0], "first question")
	do("edit " + ids[2] + ` "with "quotes`)
	edited := strings.TrimSpace(b.read(p + "head_id"))
	head(edited, `"with "quotes`)
	do("edit " + ids[2] + ` "two\nlines"`)
	head(strings.TrimSpace(b.read(p+"head_id")), "two\nlines")
	do("delete " + edited)
	b.absent(p + "dag/" + edited)
	do(`attach "a long name"`)
	if got := b.list(p + "branch"); slices.Contains(got, short(ids[2])) {
		t.Errorf("branches %q", got)
	}
	do("rewind " + strings.TrimSpace(b.read(p+"head_id")))
	head(ids[1], "first answer")
	do("commit")
	do("commit because of this")
	for line, want := range map[string]syscall.Errno{
		"frobnicate":               syscall.EINVAL,
		"head":                     syscall.EINVAL,
		"head nope":                syscall.ENOENT,
		"edit " + ids[0]:           syscall.EINVAL,
		"edit " + ids[1] + " text": syscall.EPERM,
		"sibling " + ids[3]:        syscall.EINVAL,
		"begin now":                syscall.EINVAL,
		"end":                      syscall.EINVAL,
		"name nope x":              syscall.ENOENT,
		"delete nope":              syscall.ENOENT,
		`checkout "open`:           syscall.ENOENT,
		`name "open x`:             syscall.EINVAL,
		"rewind " + ids[0] + "x":   syscall.ENOENT,
	} {
		if got := b.write(p+"ctl", line+"\n"); got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
		if got := b.read(p + "ctl"); !strings.Contains(got[strings.LastIndex(strings.TrimSpace(got), "\n"):], "error ") {
			t.Errorf("%s: %s", line, got)
		}
	}
	head(ids[1], "first answer")
}

func TestRootCommands(t *testing.T) {
	b := newBench(t, nil)
	b.chat("s1")
	b.chat("s2")
	for _, line := range []string{"reload", "reload s1"} {
		must(t, line, b.write(".sessionfs/ctl", line+"\n"))
	}
	must(t, "delete", b.write(".sessionfs/ctl", "delete-session s1\n"))
	b.same("sessions", "s2")
	b.same("views/agent/main", "s2")
	for line, want := range map[string]syscall.Errno{
		"delete-session":      syscall.EINVAL,
		"delete-session s1":   syscall.ENOENT,
		"reload nope":         syscall.ENOENT,
		"delete-everything s": syscall.EINVAL,
	} {
		if got := b.write(".sessionfs/ctl", line+"\n"); got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
	}
	if got := b.read(".sessionfs/ctl"); !strings.Contains(got, "ok delete-session\n") || !strings.Contains(got, "error not_found delete-session") {
		t.Errorf("ctl:\n%s", got)
	}
	if got := b.mkdir("sessions/s1"); got != syscall.EEXIST {
		t.Errorf("mkdir of a deleted id: %v", got)
	}
	f, errno := b.openWrite(b.node("sessions/s2/ctl"))
	must(t, "open", errno)
	must(t, "begin", f.write("begin\n", 0))
	if got := b.write(".sessionfs/ctl", "delete-session s2\n"); got != syscall.EBUSY {
		t.Errorf("delete during a run: %v", got)
	}
	f.release()
}

func TestMetrics(t *testing.T) {
	b := newBench(t, nil)
	b.fs = metered{b.fs, &b.tree.meter}
	ids := b.chat("s1")
	b.write("sessions/s1/head_id", "nonsense\n")
	must(t, "head", b.write("sessions/s1/head_id", ids[0]+"\n"))
	must(t, "commit", b.write("sessions/s1/ctl", "commit\n"))
	text := string(b.tree.metricsText())
	for _, want := range []string{
		`sessionfs_request_seconds_count{op="lookup"} `, `sessionfs_request_seconds_count{op="write"} `,
		`sessionfs_store_seconds_count{what="commit"} `, `sessionfs_store_seconds_count{what="lock_wait"} `,
		`sessionfs_refusals_total{code="not_found"} 1`, `sessionfs_invalidations_total{kind="content"} `,
		"sessionfs_sessions 1\n", "sessionfs_sessions_open 1\n", "\n# EOF\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
