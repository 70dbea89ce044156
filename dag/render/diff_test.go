package render

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnifiedDiff(t *testing.T) {
	for _, tt := range []struct {
		name, a, b string
		want       string
	}{
		{"equal", "a\nb\n", "a\nb\n", ""},
		{"one line", "a\nb\nc\n", "a\nx\nc\n", "--- o\n+++ n\n@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"},
		{"added at the end", "a\n", "a\nb\n", "--- o\n+++ n\n@@ -1 +1,2 @@\n a\n+b\n"},
		{"no newline", "a", "b\n", "--- o\n+++ n\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n"},
		{"from nothing", "", "a\n", "--- o\n+++ n\n@@ -0,0 +1 @@\n+a\n"},
		{"binary", "a\x00", "b", "Binary files o and n differ\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(UnifiedDiff("o", "n", []byte(tt.a), []byte(tt.b), 3)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if got := string(UnifiedDiff("o", "n", nil, []byte("a\n"), 3)); !strings.HasPrefix(got, "--- /dev/null\n+++ n\n") {
		t.Errorf("a file that was not there: %q", got)
	}
}

// TestDiffGivesBackBoth takes the old and the new text out of the edits again.
func TestDiffGivesBackBoth(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		a, b := randomText(rnd, 30), randomText(rnd, 30)
		var gotA, gotB []byte
		for _, e := range lineEdits(splitLines(a), splitLines(b)) {
			if e.op != '+' {
				gotA = append(gotA, e.line...)
			}
			if e.op != '-' {
				gotB = append(gotB, e.line...)
			}
		}
		if !bytes.Equal(a, gotA) || !bytes.Equal(b, gotB) {
			t.Fatalf("edits of %q and %q give %q and %q", a, b, gotA, gotB)
		}
	}
}

func TestDiffOfWhatHasNothingInCommon(t *testing.T) {
	var a, b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&a, "a%d\n", i)
		fmt.Fprintf(&b, "b%d\n", i)
	}
	got := UnifiedDiff("o", "n", []byte(a.String()), []byte(b.String()), 3)
	if n := bytes.Count(got, []byte("\n-a")) + bytes.Count(got, []byte("\n+b")); n != 6000 {
		t.Errorf("%d changed lines, want 6000", n)
	}
}

// TestPatchAppliesDiff has patch(1) make the new text out of the old one.
func TestPatchAppliesDiff(t *testing.T) {
	if _, err := exec.LookPath("patch"); err != nil {
		t.Skip("no patch(1) here")
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	dir := t.TempDir()
	for i := range 40 {
		a, b := randomText(rnd, 60), randomText(rnd, 60)
		if len(a) == 0 || len(b) == 0 || bytes.Equal(a, b) {
			continue
		}
		file := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(file, a, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("patch", "-s", file)
		cmd.Stdin = bytes.NewReader(UnifiedDiff("o", "n", a, b, 3))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("patch: %v\n%s", err, out)
		}
		if got, _ := os.ReadFile(file); !bytes.Equal(got, b) {
			t.Fatalf("patch made %q of %q, want %q", got, a, b)
		}
	}
}

func randomText(rnd *rand.Rand, lines int) []byte {
	var b bytes.Buffer
	for range rnd.IntN(lines) {
		fmt.Fprintf(&b, "line %d\n", rnd.IntN(8))
	}
	if rnd.IntN(4) == 0 {
		b.WriteString("tail")
	}
	return b.Bytes()
}
