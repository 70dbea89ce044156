package editors

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/test/harness"
)

// metaEditors are programs that read meta.json, take their time, and set the
// key "model" in it. They run as shell scripts in the session's directory; $T
// is a directory of their own, and pause waits until somebody else is done.
var metaEditors = map[string]struct{ program, script string }{
	"jq and mv": {"jq", `jq '.model = "mine"' meta.json > m.new; pause; mv m.new meta.json`},
	"jq and cp": {"jq", `jq '.model = "mine"' meta.json > "$T/new"; pause; cp "$T/new" meta.json`},
	// A shell does not tell of an error of close.
	"jq in a shell": {"jq", `new=$(jq '.model = "mine"' meta.json); pause; printf '%s\n' "$new" > meta.json`},
	"sed -i":        {"sed", `sed -i -e '1e touch "$T/read"; while ! [ -e "$T/go" ]; do sleep 0.01; done' -e 's/"model": "[^"]*"/"model": "mine"/' meta.json`},
	"python, dump": {"python3", inPython(`d = json.load(open("meta.json")); d["model"] = "mine"; 
pause()
with open("meta.json", "w") as f: json.dump(d, f)`)},
	"python, replace": {"python3", inPython(`d = json.load(open("meta.json")); d["model"] = "mine"; json.dump(d, open("tmp", "w")); pause(); os.replace("tmp", "meta.json")`)},
	"python, in place": {"python3", inPython(`
f = open("meta.json", "r+"); d = json.load(f); d["model"] = "mine"; pause(); f.seek(0); json.dump(d, f); f.truncate(); f.close()`)},
	"python and mv": {"python3", inPython(`
d = json.loads(subprocess.check_output(["cat", "meta.json"])); d["model"] = "mine"; json.dump(d, open("tmp", "w")); pause()
subprocess.check_call(["mv", "tmp", "meta.json"])`)},
}

// inPython is a program in Python, as a shell script. A save that is refused
// is told by its exit status.
func inPython(program string) string {
	return `python3 -c '
import json, os, subprocess, time
def pause():
    open(os.environ["T"] + "/read", "w").close()
    while not os.path.exists(os.environ["T"] + "/go"): time.sleep(0.01)
` + program + `'`
}

// stranger runs a script that has nothing to do with this process: it has a
// terminal of its own, so to speak.
func stranger(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Setsid: true}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v, %s", script, err, out)
	}
}

// TestTwoEditorsOfMeta: two programs have meta.json open at the same time. What
// each of them changed is there afterwards; where both changed the same key,
// the later save is refused and kept. Nothing is put back that somebody else
// has changed, whatever the way in which the text is saved.
func TestTwoEditorsOfMeta(t *testing.T) {
	others := map[string]struct {
		script       string
		title, model string // afterwards; a model of "mine" is a save that went well
	}{
		"another key": {`cat meta.json > /dev/null; echo theirs > fields/title; cat meta.json > /dev/null`, "theirs", "mine"},
		"another key, twice, in meta.json": {`for i in 1 2; do sed "s/\"title\": \"[^\"]*\"/\"title\": \"theirs $i\"/" meta.json > t.new && mv t.new meta.json; done`,
			"theirs 2", "mine"},
		"the same key":           {`sed 's/"model": "[^"]*"/"model": "theirs"/' meta.json > t.new && mv t.new meta.json`, "", "theirs"},
		"the same key, and read": {`sed 's/"model": "[^"]*"/"model": "theirs"/' meta.json > t.new && mv t.new meta.json && cat meta.json > /dev/null`, "", "theirs"},
		"the head":               {`echo ` + tipDetour + ` > head_id; cat meta.json > /dev/null`, "", "mine"},
	}
	for what, other := range others {
		t.Run(what, func(t *testing.T) {
			m := start(t, harness.Options{})
			dir := m.Session(nested)
			stranger(t, dir, `sed 's/{"id"/{"model": "", "id"/' meta.json > t.new && mv t.new meta.json`)
			for name, e := range metaEditors {
				if _, err := exec.LookPath(e.program); err != nil && os.Getenv("CI") != "true" {
					continue
				}
				stranger(t, dir, `sed 's/"model": "[^"]*"/"model": "before"/; s/"title": "[^"]*"/"title": "before"/' meta.json > t.new && mv t.new meta.json; echo `+tipTrunk+` > head_id`)
				code, said := beside(t, dir, e.script, func() { stranger(t, dir, other.script) })
				got := meta(t, m, nested)
				title := other.title
				if title == "" {
					title = "before"
				}
				if got["title"] != title || got["model"] != other.model || (code == 0) != (other.model == "mine" || name == "jq in a shell") {
					t.Errorf("%s: exit status %d, %s; the title is %q and the model %q", name, code, said, got["title"], got["model"])
				}
				if what == "the head" && got["head_id"] != tipDetour {
					t.Errorf("%s: the head is %s", name, got["head_id"])
				}
				lost := other.model != "mine"
				for file, text := range failed(t, m) {
					if !lost || !strings.Contains(text, `"mine"`) {
						t.Errorf("%s: failed/ holds %s: %s", name, file, text)
					}
					lost = false
				}
				if lost {
					t.Errorf("%s: what was refused is not in failed/", name)
				}
				clearFailed(t, m)
				for _, left := range foreign(t, m, nested) { // of a rename that was refused
					if err := os.Remove(m.Session(nested, left)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// beside runs a script until it pauses, does something else, and lets it go on.
func beside(t *testing.T, dir, script string, do func()) (code int, said string) {
	t.Helper()
	own := t.TempDir()
	cmd := exec.Command("sh", "-c", `pause() { touch "$T/read"; while ! [ -e "$T/go" ]; do sleep 0.01; done; }; `+script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "T="+own)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = &out, &out, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }() // of a failed test
	there := func() bool { _, err := os.Stat(filepath.Join(own, "read")); return err == nil }
	if !harness.Wait(time.Minute, there) {
		t.Fatalf("%s does not get on", script)
	}
	do()
	if err := os.WriteFile(filepath.Join(own, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), out.String()
}

// clearFailed empties failed/.
func clearFailed(t *testing.T, m *harness.Mount) {
	t.Helper()
	for _, n := range names(t, m.Path(".sessionfs", "failed")) {
		if err := os.Remove(m.Path(".sessionfs", "failed", n)); err != nil {
			t.Error(err)
		}
	}
}

// TestSaveOfNothing: a program that only lays meta.json out anew puts nothing
// back that was changed while it did.
func TestSaveOfNothing(t *testing.T) {
	need(t, "jq")
	m := start(t, harness.Options{})
	dir := m.Session(nested)
	stranger(t, dir, `cat meta.json > /dev/null`)
	code, said := beside(t, dir, `jq . meta.json > m.new; pause; mv m.new meta.json`, func() {
		stranger(t, dir, `echo theirs > fields/title; cat meta.json > /dev/null`)
	})
	if got := meta(t, m, nested)["title"]; code != 0 || got != "theirs" {
		t.Errorf("exit status %d, %s; the title is %q", code, said, got)
	}
	// Of a program of which nothing is known it cannot be told whether it has
	// changed anything: the text may be one that was read, or the newer one
	// with something put back.
	source := filepath.Join(t.TempDir(), "old")
	if err := os.WriteFile(source, []byte(read(t, dir, "meta.json")), 0o600); err != nil {
		t.Fatal(err)
	}
	stranger(t, dir, `echo newer > fields/title; cat meta.json > /dev/null`)
	cmd := exec.Command("sh", "-c", `cat "$0" > meta.json`, source)
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.CombinedOutput()
	if got := meta(t, m, nested)["title"]; got != "newer" {
		t.Errorf("%v, %s; the title is %q", err, out, got)
	}
	if got := failed(t, m); !strings.Contains(got[nested+"-meta.json"], `"theirs"`) {
		t.Errorf("failed/ holds %q", got)
	}
}
