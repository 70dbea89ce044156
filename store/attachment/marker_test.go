package attachment

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestFind(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []Marker
	}{
		{"none", "nothing [attach ment", nil},
		{"whole", `[attachment: a b.txt (txt, 1.5 KB, 3 lines) @json "/x/]\"é" @previewjson "/p"]`,
			[]Marker{{Name: "a b.txt", Ext: "txt", KB: 1.5, Count: "3 lines", Path: `/x/]"é`, Preview: "/p"}}},
		{"no blanks", `[attached:a(txt,1KB)@json"/x"]`, []Marker{{Name: "a", Ext: "txt", KB: 1, Path: "/x"}}},
		{"blanks", "[attachment:\u00a0\n a\t (b,  2   KB, c )\u3000@json \n\"/x\" \u2003]", []Marker{{Name: "a", Ext: "b", KB: 2, Count: "c", Path: "/x"}}},
		{"historic", "x[attached: a (b, 2 KB) @\n /x y/[z ]rest]", []Marker{{Name: "a", Ext: "b", KB: 2, Path: "/x y/[z"}}},
		{"historic like json", "[attached: a (b, 2 KB) @jsonl/x][attached: a (b, 2 KB) @json][attached: a (b, 2 KB) @js]",
			[]Marker{{Name: "a", Ext: "b", KB: 2, Path: "jsonl/x"}, {Name: "a", Ext: "b", KB: 2, Path: "json"}, {Name: "a", Ext: "b", KB: 2, Path: "js"}}},
		{"json in blanks", "[attached: a (b, 2 KB) @  json /x]", nil},
		{"bad literal", `[attached: a (b, 2 KB) @json "\x"] [attached: a (b, 2 KB) @json "a` + "\n" + `b"]`, nil},
		{"inner after bad", `[attachment: a (t, 1 KB) @json "/x [attachment: b (t, 1 KB) @ /y]`, []Marker{{Name: "b", Ext: "t", KB: 1, Path: "/y"}}},
		{"marker in a path", `[attachment: a (t, 1 KB) @json "/[attachment: b (t, 1 KB) @ /y]"]`, []Marker{{Name: "a", Ext: "t", KB: 1, Path: "/[attachment: b (t, 1 KB) @ /y]"}}},
		{"odd size", "[attachment: a (t, 1.2.3 KB) @ /y]", []Marker{{Name: "a", Ext: "t", Path: "/y"}}},
		{"no path", "[attachment: a (t, 1 KB)] [attachment: a (t, 1 KB) @ ] [attachment: (t, 1 KB) @]", nil},
		{"surrogate", `[attachment: a (t, 1 KB) @json "/\ud83d\ude00"]`, []Marker{{Name: "a", Ext: "t", KB: 1, Path: "/😀"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Find(c.text)
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(Marker{}, "Text", "Start", "End"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, m := range got {
				if c.text[m.Start:m.End] != m.Text {
					t.Errorf("%q is not at %d:%d", m.Text, m.Start, m.End)
				}
			}
		})
	}
}

func TestFormat(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Name: "notes.txt", Path: "/a/图.txt", Size: 705, Count: "3 lines"}, `[attachment: notes.txt (txt, 1 KB, 3 lines) @json "/a/图.txt"]`},
		{Spec{Name: " a[(x)]b.TAR.GZ ", Path: `/"\`, Size: 0}, `[attachment: a_x_b.TAR.GZ (gz, 1 KB) @json "/\"\\"]`},
		{Spec{Name: "", MIME: "image/png; q=1", Path: "/x", Preview: "/p"}, `[attachment: file (png, 1 KB) @json "/x" @previewjson "/p"]`},
		{Spec{Name: ".bashrc", Path: "/x"}, `[attachment: .bashrc (file, 1 KB) @json "/x"]`},
		{Spec{Name: "a.", Path: "/x"}, `[attachment: a. (file, 1 KB) @json "/x"]`},
		{Spec{Name: "a.b,(c", Path: "/x"}, `[attachment: a.b,_c (b_c, 1 KB) @json "/x"]`},
	} {
		if got := Format(c.spec); got != c.want {
			t.Errorf("Format(%+v) = %s, want %s", c.spec, got, c.want)
		}
	}
	for size, want := range map[int64]int64{0: 1, 512: 1, 1536: 2, 1537: 2, 2560: 2, 2561: 3, 3584: 4, MaxFile: 32768} {
		if got := kb(size); got != want {
			t.Errorf("kb(%d) = %d, want %d", size, got, want)
		}
	}
}

// TestFormatFind: what is written is read back, whatever is around it.
func TestFormatFind(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	word := func() string {
		letters := []rune("ab .,[]()\"\\@jso\n\t\u00a0é图😀\x01/-_")
		var b strings.Builder
		for range rnd.IntN(12) {
			b.WriteRune(letters[rnd.IntN(len(letters))])
		}
		return b.String()
	}
	for range 5000 {
		s := Spec{Name: word(), MIME: "x/" + word(), Path: "/" + word(), Count: word(), Preview: word(), Size: rnd.Int64N(1 << 22)}
		text := strings.ReplaceAll(word(), "[", "")
		marker := Format(s)
		got := Find(text + marker + text)
		if len(got) != 1 || got[0].Text != marker || got[0].Path != s.Path || got[0].Preview != s.Preview || got[0].KB != float64(kb(s.Size)) {
			t.Fatalf("%+v\nwrote %q\nread %+v", s, marker, got)
		}
		if Strip(text+marker+text) != text+text {
			t.Fatalf("stripping %q", text+marker+text)
		}
	}
}

func TestStripBlocks(t *testing.T) {
	text := "a <attachment-preview path=\"/x\" kind=\"text\">\nlines\n</attachment-preview>b<file name=\"x\">y\n</file>c<file src=z>d <files>"
	if got, want := StripBlocks(text), "a bcd <files>"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestHostileLength: no text makes the search slow out of proportion: four
// times the text may not take much more than four times as long.
func TestHostileLength(t *testing.T) {
	for _, piece := range []string{`[attachment: a (t, 1 KB) @json "`, "[attachment: a (t, 1 KB) @ ", "[attachment: ", `[attachment: a (t, 1 KB) @json "\" `, "[attached: a (t, 1 KB) @json /x "} {
		long := strings.Repeat(piece, 1<<17/len(piece))
		small, large := searchTime(long[:len(long)/4]), searchTime(long)
		if large > 12*small && large > time.Second {
			t.Errorf("%q: %v for a quarter, %v for the whole", piece, small, large)
		}
	}
}

func searchTime(text string) time.Duration {
	start := time.Now()
	Find(text)
	return time.Since(start)
}

func FuzzFind(f *testing.F) {
	f.Add(`[attachment: a (txt, 1 KB, 3 lines) @json "/x" @previewjson "/p"] and [attached: a (txt, 1 KB) @ /x]`)
	f.Fuzz(func(t *testing.T, text string) {
		end := 0
		for _, m := range Find(text) {
			if m.Start < end || text[m.Start:m.End] != m.Text {
				t.Fatalf("%+v after %d", m, end)
			}
			end = m.End
		}
	})
}
