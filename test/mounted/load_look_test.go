package mounted

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// checker looks at one thing of a session and says what is wrong with it.
type checker struct {
	what string
	look func(l *load, s *talk, r *rand.Rand) string
}

// checkers are the looks of a reader.
func checkers() []checker {
	return []checker{
		{"head_id", (*load).lookHeadID},
		{"readlink head", (*load).lookLink},
		{"cat head", (*load).lookHead},
		{"ls messages", (*load).lookMessages},
		{"a message", (*load).lookMessage},
		{"transcript.md", (*load).lookTranscript},
		{"transcript.jsonl", (*load).lookLines},
		{"ls nodes", func(l *load, s *talk, _ *rand.Rand) string { return l.lookAll(s, "nodes") }},
		{"ls history", func(l *load, s *talk, _ *rand.Rand) string { return l.lookAll(s, "history") }},
		{"ls dag", func(l *load, s *talk, _ *rand.Rand) string { return l.lookAll(s, "dag") }},
		{"a node", (*load).lookNode},
		{"meta.json", (*load).lookMeta},
		{"graph.txt", (*load).lookGraph},
		{"a branch", (*load).lookBranch},
		{"fields/title", (*load).lookTitle},
		{"views/title", (*load).lookViews},
		{"index.json", (*load).lookIndex},
		{"attachments/latest", (*load).lookFile},
		{"a name that is not there", (*load).lookPhantom},
	}
}

// get reads a file to its end, sometimes in small pieces. One read beyond the
// end would ask for what is new, as tail -f does.
func (l *load) get(r *rand.Rand, session string, names ...string) (string, error) {
	path := l.m.Session(session, names...)
	if r.IntN(2) == 0 {
		b, err := os.ReadFile(path)
		return string(b), err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var b []byte
	for piece := make([]byte, 700); ; {
		n, err := f.Read(piece)
		b = append(b, piece[:n]...)
		if err == io.EOF {
			return string(b), nil
		}
		if err != nil {
			return string(b), err
		}
	}
}

func (l *load) lookHeadID(s *talk, r *rand.Rand) string {
	from := s.heads.now()
	got, err := l.get(r, s.id, "head_id")
	if err == nil && s.heads.lawful(from, func(x moment) bool { return x.head.ID()+"\n" == got }) {
		return ""
	}
	return fmt.Sprintf("%q, %v; want one of %s", got, err, s.ids(from))
}

// ids are the heads since a moment, for a message about a fault.
func (s *talk) ids(from int) []string {
	var out []string
	for _, x := range s.heads.since(from) {
		out = append(out, x.head.ID())
	}
	return out
}

func (l *load) lookLink(s *talk, _ *rand.Rand) string {
	from := s.heads.now()
	got, err := os.Readlink(l.m.Session(s.id, "head"))
	if err == nil && strings.HasPrefix(got, "nodes/") && s.heads.lawful(from, func(x moment) bool { return stemID(got) == x.head.ID() }) {
		return ""
	}
	return fmt.Sprintf("%q, %v; want one of %s", got, err, s.ids(from))
}

// lookHead: from the moment in which `echo > head` opens the node with O_TRUNC
// the kernel may believe that it is empty, as it would be on a disk: who reads
// it just then gets nothing, or no more.
func (l *load) lookHead(s *talk, r *rand.Rand) string {
	from := s.heads.now()
	got, err := l.get(r, s.id, "head")
	if err == nil && cutShort(s.heads.since(from), got) {
		return ""
	}
	if err == nil && s.heads.lawful(from, func(x moment) bool { return x.head.text+"\n" == got }) {
		return ""
	}
	return fmt.Sprintf("%.60q, %v; want one of %s", got, err, s.ids(from))
}

// cutShort reports whether what was seen is the beginning of a message's text
// while there was a change.
func cutShort(states []moment, got string) bool {
	return len(states) > 1 && slices.ContainsFunc(states, func(x moment) bool {
		return slices.ContainsFunc(x.head.branch(), func(m *said) bool { return strings.HasPrefix(m.text, got) })
	})
}

func list(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, err
}

// lookMessages: a listing has what was there all the time and nothing that was
// never there, each once. Of a name that comes or goes while a directory is
// being read, readdir says nothing.
func (l *load) lookMessages(s *talk, _ *rand.Rand) string {
	from := s.heads.now()
	got, err := list(l.m.Session(s.id, "messages"))
	if err != nil {
		return err.Error()
	}
	states := s.heads.since(from)
	s.heads.settle(from + len(states) - 1)
	always, ever := map[string]int{}, map[string]bool{}
	for _, x := range states {
		for _, name := range fileNames(x.head.branch()) {
			always[name]++
			ever[name] = true
		}
	}
	seen := map[string]bool{}
	for _, name := range got {
		if !ever[name] || seen[name] {
			return fmt.Sprintf("%s among %q", name, got)
		}
		seen[name] = true
	}
	for name, n := range always {
		if n == len(states) && !seen[name] {
			return fmt.Sprintf("%s is missing among %q", name, got)
		}
	}
	return ""
}

// lookMessage: a message that is listed can be read and has its text, unless
// the branch has gone elsewhere meanwhile: then the name is not there, or what
// it was opened by is stale.
func (l *load) lookMessage(s *talk, r *rand.Rand) string {
	from := s.heads.now()
	names, err := list(l.m.Session(s.id, "messages"))
	if err != nil || len(names) == 0 {
		return fmt.Sprint(len(names), " names, ", err)
	}
	name := names[r.IntN(len(names))]
	got, err := l.get(r, s.id, "messages", name)
	if (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESTALE)) && s.heads.lawful(from, func(x moment) bool { return !slices.Contains(fileNames(x.head.branch()), name) }) {
		return ""
	}
	if err == nil && cutShort(s.heads.since(from), got) {
		return "" // an edit opened it with O_TRUNC, see lookHead
	}
	ok := s.heads.lawful(from, func(x moment) bool {
		i := slices.Index(fileNames(x.head.branch()), name)
		return i >= 0 && x.head.branch()[i].text+"\n" == got
	})
	if err != nil || !ok {
		return fmt.Sprintf("%s is %.60q, %v", name, got, err)
	}
	return ""
}

func (l *load) lookTranscript(s *talk, r *rand.Rand) string {
	from, title := s.heads.now(), s.title.now()
	got, err := l.get(r, s.id, "transcript.md")
	if err != nil {
		return err.Error()
	}
	if !s.heads.lawful(from, func(x moment) bool { return holdsBranch(got, x.head.branch()) }) {
		return fmt.Sprintf("%d bytes that are no branch of %s: …%.200q", len(got), s.ids(from), got[max(0, len(got)-200):])
	}
	first, _, _ := strings.Cut(got, "\n")
	if !s.title.lawful(title, func(x string) bool { return first == "# "+x }) {
		return fmt.Sprintf("the title is %q", first)
	}
	return ""
}

func (l *load) lookLines(s *talk, r *rand.Rand) string {
	from := s.heads.now()
	got, err := l.get(r, s.id, "transcript.jsonl")
	if err != nil {
		return err.Error()
	}
	var ids []string
	for line := range strings.Lines(got) {
		var m struct{ ID, Content string }
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			return err.Error()
		}
		ids = append(ids, m.ID)
	}
	if s.heads.lawful(from, func(x moment) bool {
		branch := x.head.branch()
		return slices.EqualFunc(ids, branch, func(id string, m *said) bool { return id == m.ID() })
	}) {
		return ""
	}
	return fmt.Sprintf("%s is no branch of %s", ids, s.ids(from))
}

// lookAll: a directory of all nodes has every one that was acknowledged
// before, none that was not begun after, and each once.
func (l *load) lookAll(s *talk, dir string) string {
	from := s.heads.now()
	made := s.heads.last().made
	names, err := list(l.m.Session(s.id, dir))
	if err != nil {
		return err.Error()
	}
	seen := map[string]bool{}
	for _, name := range names {
		seen[stemID(name)] = true
	}
	if len(seen) != len(names) {
		return "a name is there twice"
	}
	delete(seen, "ROOT")
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	for _, m := range all[:made] {
		if !seen[m.ID()] {
			return "lacks " + m.ID()
		}
		delete(seen, m.ID())
	}
	if s.heads.lawful(from, func(x moment) bool { return len(seen) <= x.made-made && s.own(seen) }) {
		return ""
	}
	return fmt.Sprintf("has %v, which nobody made", seen)
}

// own reports whether all ids are those of messages that were made.
func (s *talk) own(ids map[string]bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range ids {
		if !slices.ContainsFunc(s.all, func(m *said) bool { return m.ID() == id }) {
			return false
		}
	}
	return true
}

// lookNode: a node that is there has its text for good, and its size.
func (l *load) lookNode(s *talk, r *rand.Rand) string {
	from, m := s.heads.now(), s.any(r)
	stem := l.stem(l.m.Session(s.id), m.ID())
	st, err := os.Stat(l.m.Session(s.id, "nodes", stem+".md"))
	if err != nil || st.Size() != int64(len(m.text))+1 {
		return fmt.Sprint("stat: ", err)
	}
	got, err := l.get(r, s.id, "nodes", stem+".md")
	if err != nil || got != m.text+"\n" && !cutShort(s.heads.since(from), got) { // it may be the head, see lookHead
		return fmt.Sprintf("%s is %.60q, %v", stem, got, err)
	}
	got, err = l.get(r, s.id, "history", stem+".json")
	var on struct{ Output string }
	if err = errors.Join(err, json.Unmarshal([]byte(got), &on)); err != nil || on.Output != m.text {
		return fmt.Sprintf("its history is %.60q, %v", got, err)
	}
	return ""
}

func (l *load) lookMeta(s *talk, r *rand.Rand) string {
	from, title := s.heads.now(), s.title.now()
	got, err := l.get(r, s.id, "meta.json")
	var meta struct {
		Title string
		Head  string `json:"head_id"`
	}
	if err = errors.Join(err, json.Unmarshal([]byte(got), &meta)); err != nil {
		return fmt.Sprintf("%v in %.200q", err, got)
	}
	if !s.heads.lawful(from, func(x moment) bool { return x.head.ID() == meta.Head }) {
		return fmt.Sprintf("the head is %s, want one of %s", meta.Head, s.ids(from))
	}
	if !s.title.lawful(title, func(x string) bool { return x == meta.Title }) {
		return fmt.Sprintf("the title is %q", meta.Title)
	}
	return ""
}

func (l *load) lookGraph(s *talk, r *rand.Rand) string {
	from := s.heads.now()
	got, err := l.get(r, s.id, "graph.txt")
	if err == nil && strings.Count(got, "(HEAD") == 1 && s.heads.lawful(from, func(x moment) bool { return strings.Contains(got, "* "+x.head.ID()+" (HEAD") }) {
		return ""
	}
	return fmt.Sprintf("%v, %.400q; want one of %s", err, got, s.ids(from))
}

// lookBranch: a branch's directory is a chain from the root to its last one.
func (l *load) lookBranch(s *talk, r *rand.Rand) string {
	names, err := list(l.m.Session(s.id, "branch"))
	if err != nil || len(names) == 0 {
		return fmt.Sprint(len(names), " branches, ", err)
	}
	tip := names[r.IntN(len(names))]
	got, err := list(l.m.Session(s.id, "branch", tip))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESTALE) {
		return "" // a tip goes when the branch goes on, and a name when it is taken away
	}
	if err != nil || len(got) == 0 {
		return fmt.Sprint(len(got), " messages, ", err)
	}
	if tip == "here" || tip == "there" {
		return "" // now one branch, now another, and perhaps while we were reading
	}
	from, short := s.heads.now(), shortID(got[len(got)-1])
	if short == tip && s.heads.lawful(from, func(moment) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.ContainsFunc(s.all, func(m *said) bool {
			return strings.HasPrefix(m.ID(), short) && slices.Equal(got, fileNames(m.branch()))
		})
	}) {
		return ""
	}
	return fmt.Sprintf("%q is not the branch of %s", got, tip)
}

func (l *load) lookTitle(s *talk, r *rand.Rand) string {
	from := s.title.now()
	got, err := l.get(r, s.id, "fields", "title")
	if err == nil && s.title.lawful(from, func(x string) bool { return x+"\n" == got }) {
		return ""
	}
	return fmt.Sprintf("%q, %v; want one of %q", got, err, s.title.since(from))
}

// lookViews: the session stands under its title, once.
func (l *load) lookViews(s *talk, _ *rand.Rand) string {
	from := s.title.now()
	names, err := list(l.m.Path("views", "title"))
	if err != nil {
		return err.Error()
	}
	end := "~" + s.id[len(s.id)-8:]
	var got []string
	for _, n := range names {
		if title, ok := strings.CutSuffix(n, end); ok {
			got = append(got, title)
		}
	}
	if len(got) == 1 && s.title.lawful(from, func(x string) bool { return x == got[0] }) {
		return ""
	}
	return fmt.Sprintf("%q; want one of %q", got, s.title.since(from))
}

func (l *load) lookIndex(s *talk, _ *rand.Rand) string {
	from := s.title.now()
	b, err := os.ReadFile(l.m.Path("index.json"))
	rows := map[string]struct{ Title string }{}
	if err = errors.Join(err, json.Unmarshal(b, &rows)); err != nil {
		return fmt.Sprintf("%v in %d bytes", err, len(b))
	}
	if s.title.lawful(from, func(x string) bool { return x == rows[s.id].Title }) {
		return ""
	}
	return fmt.Sprintf("%q; want one of %q", rows[s.id].Title, s.title.since(from))
}

func (l *load) lookFile(s *talk, r *rand.Rand) string {
	from := s.file.now()
	got, err := l.get(r, s.id, "attachments", "latest")
	if err == nil && s.file.lawful(from, func(x string) bool { return x == got }) {
		return ""
	}
	return fmt.Sprintf("%.60q (%d bytes), %v", got, len(got), err)
}

func (l *load) lookPhantom(s *talk, _ *rand.Rand) string {
	for _, name := range []string{"nodes/9999-u-nosuch.md", "branch/nosuch", "nosuch", "messages/000000-user-nosuch00.md"} {
		if _, err := os.Lstat(filepath.Join(l.m.Session(s.id), name)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprint(name, ": ", err)
		}
	}
	return ""
}
