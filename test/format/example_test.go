package format

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// example is a fenced block of the document that has a name.
type example struct {
	name string
	line int
	text string
}

// namedFence begins such a block: its language, then its name.
var namedFence = regexp.MustCompile("^```[a-z]+ example=([a-z-]+( in short)?)$")

func examples(t *testing.T) []example {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(harness.ModuleDir(t), "docs", "store-format.md"))
	if err != nil {
		t.Fatal(err)
	}
	var out []example
	lines := strings.Split(string(b), "\n")
	for i := 0; i < len(lines); i++ {
		m := namedFence.FindStringSubmatch(lines[i])
		if m == nil {
			continue
		}
		end := i + 1 + slices.Index(lines[i+1:], "```")
		if end == i {
			t.Fatalf("line %d: the block does not end", i+1)
		}
		out = append(out, example{m[1], i + 2, strings.Join(lines[i+1:end], "\n")})
		i = end
	}
	return out
}

// TestExamples holds every worked example of the document to what the store
// writes when it does what the example tells of. Nothing may differ but what
// the document says stands for something else.
func TestExamples(t *testing.T) {
	st := newStory(t)
	st.tell()
	shown := map[string]bool{}
	for _, e := range examples(t) {
		got, ok := st.got[e.name]
		if !ok {
			t.Errorf("docs/store-format.md:%d: nothing is known of the example %q", e.line, e.name)
			continue
		}
		if shown[e.name] {
			t.Errorf("docs/store-format.md:%d: the example %q is there twice", e.line, e.name)
		}
		shown[strings.TrimSuffix(e.name, " in short")] = true
		if diff := st.compare(e, got); diff != "" {
			t.Error(diff)
		}
		st.everyLineCounts(e, got)
	}
	for name := range st.got {
		if !shown[strings.TrimSuffix(name, " in short")] {
			t.Errorf("docs/store-format.md does not show the example %q", name)
		}
	}
}

// compare goes line by line. A line of "…" alone stands for any lines: what
// follows it, up to the next one, is looked for as a whole. The result is ""
// when nothing differs.
func (st *story) compare(e example, got string) string {
	have := strings.Split(got, "\n")
	anywhere, line := false, e.line
	for _, part := range strings.Split(e.text+"\n", "…\n") {
		want := strings.Split(strings.TrimSuffix(strings.TrimRight(part, " "), "\n"), "\n")
		at := 0
		for anywhere && at < len(have) && st.differs(want, have[at:]) >= 0 {
			at++
		}
		if i := st.differs(want, have[at:]); i >= 0 {
			return fmt.Sprintf("docs/store-format.md:%d: example %s:\nthe document: %s\nthe store:    %s", line+i, e.name, want[i], lineAt(have, at+i))
		}
		have, anywhere, line = have[at+len(want):], true, line+len(want)+1
	}
	if len(have) > 0 {
		return fmt.Sprintf("docs/store-format.md:%d: example %s: the store writes more: %s", line-1, e.name, strings.Join(have, "\n"))
	}
	return ""
}

// everyLineCounts changes each line of an example in turn, and takes it away,
// and wants to hear of it.
func (st *story) everyLineCounts(e example, got string) {
	st.t.Helper()
	lines := strings.Split(e.text, "\n")
	for i, line := range lines {
		if left(lines, i) {
			continue
		}
		for _, other := range [][]string{{line + "x"}, {strings.Replace(line, line[len(line)/2:], "", 1)}, nil} {
			if other == nil && (len(lines) == 1 || left(lines, i-1) || left(lines, i+1)) {
				continue // what is beside a line that is left out may be left out too
			}
			changed := e
			changed.text = strings.Join(slices.Concat(lines[:i], other, lines[i+1:]), "\n")
			if st.compare(changed, got) == "" {
				st.t.Errorf("docs/store-format.md:%d: example %s: nobody would notice %q", e.line+i, e.name, other)
			}
		}
	}
}

// left reports whether a line says that lines are left out.
func left(lines []string, i int) bool {
	return i >= 0 && i < len(lines) && strings.TrimSpace(lines[i]) == "…"
}

// differs returns the first line of want that is not there, -1 when all are.
func (st *story) differs(want, have []string) int {
	for i, line := range want {
		if i >= len(have) || !st.pattern(line).MatchString(have[i]) {
			return i
		}
	}
	return -1
}

// lineAt is a line, or that there is none.
func lineAt(lines []string, i int) string {
	if i >= len(lines) {
		return "(no such line)"
	}
	return lines[i]
}

// standIn is what stands for something that differs each time.
var standIn = regexp.MustCompile(`<(dir|pid|[0-9]+ hex)>`)

// pattern is a line of the document as an expression.
func (st *story) pattern(line string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString("^")
	for at := 0; ; {
		m := standIn.FindStringIndex(line[at:])
		if m == nil {
			b.WriteString(regexp.QuoteMeta(line[at:]))
			break
		}
		b.WriteString(regexp.QuoteMeta(line[at : at+m[0]]))
		switch word := line[at+m[0]+1 : at+m[1]-1]; word {
		case "dir":
			b.WriteString(regexp.QuoteMeta(st.dir))
		case "pid":
			b.WriteString(strconv.Itoa(os.Getpid()))
		default:
			fmt.Fprintf(&b, "[0-9a-f]{%s}", strings.TrimSuffix(word, " hex"))
		}
		at += m[1]
	}
	return regexp.MustCompile(b.String() + "$")
}

// temporary is the name of a file that is not in place yet.
var temporary = regexp.MustCompile(`\.[0-9a-f]{32}\.tmp$`)

// inShort puts "replace" for the calls of a durable replacement, when they are
// exactly those and in their order.
func inShort(lines []string) []string {
	var out []string
	for i := 0; i < len(lines); i++ {
		n, name := replacement(lines[i:])
		if n == 0 {
			out = append(out, lines[i])
			continue
		}
		out = append(out, "replace "+name)
		i += n - 1
	}
	return out
}

// replacement returns how many lines at the start are one, and of what.
func replacement(lines []string) (n int, name string) {
	op, path, _ := strings.Cut(lines[0], " ")
	path = strings.TrimSpace(path)
	if op != "open" || !temporary.MatchString(path) {
		return 0, ""
	}
	name = temporary.ReplaceAllString(path, "")
	want := []string{"open    " + path, "write   " + path, "sync    " + path, "rename  " + name, "syncdir " + filepath.Dir(name)}
	if len(lines) < len(want) || !slices.Equal(lines[:len(want)], want) {
		return 0, ""
	}
	return len(want), name
}

// TestComparison shows that a difference is seen.
func TestComparison(t *testing.T) {
	st := &story{t: t, dir: "/x"}
	match := func(doc, have string) bool { return st.pattern(doc).MatchString(have) }
	for _, c := range []struct {
		doc, have string
		want      bool
	}{
		{`{"a": 1.0}`, `{"a": 1.0}`, true}, {`{"a": 1.0}`, `{"a": 1}`, false}, {`{"a": 1.0}`, `{"a": 1.0} `, false},
		{"open <8 hex>.tmp", "open 0123abcd.tmp", true}, {"open <8 hex>.tmp", "open 0123abc.tmp", false}, {"open <8 hex>.tmp", "open 0123abcg.tmp", false},
		{"<dir>/y", "/x/y", true}, {"<dir>/y", "/z/y", false}, {"a.b", "axb", false},
	} {
		if got := match(c.doc, c.have); got != c.want {
			t.Errorf("%q for %q: %v", c.doc, c.have, got)
		}
	}
	whole := []string{"open    d/f." + strings.Repeat("0", 32) + ".tmp", "write   d/f." + strings.Repeat("0", 32) + ".tmp",
		"sync    d/f." + strings.Repeat("0", 32) + ".tmp", "rename  d/f", "syncdir d"}
	if got := inShort(whole); !slices.Equal(got, []string{"replace d/f"}) {
		t.Errorf("a replacement in short: %q", got)
	}
	if got := inShort(append(slices.Clone(whole[:2]), whole[3:]...)); len(got) != 4 {
		t.Errorf("a replacement without its sync in short: %q", got)
	}
}
