package recipes

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// saves are real programs that save a file, each adding a word to its line,
// and the names that they leave beside it because they are told to.
var saves = []struct{ program, script, word, leaves string }{
	{"vim", `vim -Nu NONE -es -c 'set backupcopy=no' -c 's/$/ vim1/' -c wq "$1"`, "vim1", ""},
	{"vim", `vim -Nu NONE -es -c 'set backupcopy=yes' -c 's/$/ vim2/' -c wq "$1"`, "vim2", ""},
	{"vim", `vim -Nu NONE -es -c 'set nowritebackup' -c 's/$/ vim3/' -c wq "$1"`, "vim3", ""},
	{"vim", `vim -Nu NONE -es -c 'set backup' -c 's/$/ vim4/' -c wq "$1"`, "vim4", "~"},
	{"vim", `vim -Nu NONE -es -c 'set noswapfile' -c 's/$/ vim5/' -c wq "$1"`, "vim5", ""},
	{"emacs", `emacs -Q --batch "$1" --eval '(progn (end-of-line) (insert " emacs") (save-buffer))' 2> /dev/null`, "emacs", "~"},
	{"sed", `sed -i '1s/$/ sed/' "$1"`, "sed", ""},
	{"perl", `perl -pi -e 's/$/ perl/ if $. == 1' "$1"`, "perl", ""},
	{"busybox", `busybox sed -i 's/$/ busybox/' "$1"`, "busybox", ""},
	{"ed", `printf 's/$/ ed/\nw\nq\n' | ed -s "$1"`, "ed", ""},
	{"python3", `python3 -c 'import sys; t = open(sys.argv[1]).read(); open(sys.argv[1], "w").write(t.rstrip("\n") + " python3\n")' "$1"`, "python3", ""},
}

// TestP02Editors: editors differ in what they call, and a save failed, looked
// empty, or took the old text with it; here eleven saves by real programs, one
// after the other on the same file, each leave their word and nothing else,
// and the store has a new message for each save of one. The calls behind them
// are tested one by one in test/editors.
func TestP02Editors(t *testing.T) {
	for _, s := range saves {
		need(t, s.program)
	}
	m := start(t, "chat_branches")
	count := len(names(t, m.Repo(nested, "history")))
	for _, subject := range []string{"fields", "messages"} {
		var before []string
		path := func() string {
			if subject == "fields" {
				return m.Session(nested, "fields", "title")
			}
			all := names(t, m.Session(nested, "messages"))
			slices.Reverse(all)
			return m.Session(nested, "messages", all[slices.IndexFunc(all, func(n string) bool { return strings.Contains(n, "-user-") })])
		}
		if err := put(path(), "base\n"); err != nil {
			t.Fatal(err)
		}
		want := "base"
		for _, s := range saves {
			before = names(t, m.Session(nested, subject))
			file := path()
			r := harness.Shell(t, m.Session(nested, subject), s.script, file)
			want += " " + s.word
			if got := read(t, path()); r.Code != 0 || got != want+"\n" {
				t.Fatalf("%s: exit status %d, %s; the file is %q, want %q", s.script, r.Code, r.Err, got, want)
			}
			if s.leaves != "" {
				_ = os.Remove(file + s.leaves) // none of a file below $TMPDIR
			}
			after := names(t, m.Session(nested, subject))
			if subject == "fields" && !slices.Equal(after, before) || len(after) > len(before) {
				t.Errorf("%s: the directory has %q, had %q", s.script, after, before)
			}
		}
	}
	if got, added := len(names(t, m.Repo(nested, "history")))-count, len(saves)+1; got != added {
		t.Errorf("%d new messages, want %d", got, added)
	}
	quiet(t, m.Repo(nested), `find . -name '*.sw?' -o -name '*~' -o -name '.#*' -o -name 4913 -o -name 'sed*'`)
	if kept := names(t, m.Path(".sessionfs", "failed")); len(kept) > 0 {
		t.Errorf("failed/ has %q", kept)
	}
	m.Stop()
	quiet(t, m.Repo(nested), `git log --name-only --format= | sort -u | grep -v -e '^history/.*\.json$' -e '^meta.json$' -e '^workdir/' -e '^context/' -e '^$'; git status --porcelain`)
}
