package render

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestEscapeName(t *testing.T) {
	tests := []struct{ text, want string }{
		{"", "untitled"},
		{"untitled", "untitled"},
		{"Plan for March", "Plan for March"},
		{"a/b", "a%2Fb"},
		{"100%", "100%25"},
		{"a%2Fb", "a%252Fb"},
		{".", "%2E"},
		{"..", "%2E."},
		{".hidden", "%2Ehidden"},
		{"a.b-c", "a.b-c"},
		{"-rf", "%2Drf"},
		{"--", "%2D-"},
		{" ", "%20"},
		{"  x  ", "%20 x %20"},
		{"\u3000x\u00a0", "%E3%80%80x%C2%A0"},
		{"a\nb\tc\x00d\x7f", "a%0Ab%09c%00d%7F"},
		{"a\u0085b", "a%C2%85b"},
		{"\xff\xfea", "%FF%FEa"},
		{"half \xe4\xbd", "half %E4%BD"},
		{"计划 🚀", "计划 🚀"},
		{"back\\slash:*?", "back\\slash:*?"},
	}
	for _, tt := range tests {
		if got := EscapeName(tt.text); got != tt.want {
			t.Errorf("EscapeName(%q) = %q, want %q", tt.text, got, tt.want)
		}
		if tt.text == "" {
			continue
		}
		if got := UnescapeName(tt.want); got != tt.text {
			t.Errorf("UnescapeName(%q) = %q, want %q", tt.want, got, tt.text)
		}
	}
}

func TestUnescapeNameOfTypedNames(t *testing.T) {
	for name, want := range map[string]string{
		"50%": "50%", "5%0": "5%0", "%zz": "%zz", "%2f": "/", "%%41": "%A", "a%4": "a%4", "": "",
	} {
		if got := UnescapeName(name); got != want {
			t.Errorf("UnescapeName(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestEscapeNameCuts(t *testing.T) {
	for _, size := range []int{254, 255} {
		if s := strings.Repeat("x", size); EscapeName(s) != s {
			t.Errorf("a name of %d bytes was cut", size)
		}
	}
	long := map[string]bool{}
	for _, s := range []string{
		strings.Repeat("x", 256), strings.Repeat("x", 257), strings.Repeat("界", 86), strings.Repeat("\x00", 100),
		strings.Repeat("\u0085", 100), "a" + strings.Repeat("\u0085", 100), strings.Repeat(" ", 300), strings.Repeat("\xff", 300),
	} {
		name := EscapeName(s)
		if long[name] || UnescapeName(name) == s {
			t.Errorf("%.20q…: %q is not cut, or is taken", s, name)
		}
		long[name] = true
		checkName(t, s, name, 255)
		if len(name) < 250 {
			t.Errorf("%.20q… was cut to %d bytes, which is more than need be", s, len(name))
		}
		// Who names another thing like a cut name does not get its place.
		if EscapeName(name) == name {
			t.Errorf("%q is its own name although it is the name of something longer", name)
		}
	}
	if got := EscapeName("日本" + strings.Repeat("語", 100)); !strings.HasPrefix(got, "日本語") {
		t.Errorf("a cut name lost its beginning: %q", got)
	}
}

func TestEscapeNameMax(t *testing.T) {
	title := strings.Repeat("An unusually long title, ", 20)
	for _, limit := range []int{-1, 0, 10, 23, 24, 100, 246} {
		checkName(t, title, EscapeNameMax(title, limit), max(limit, 23))
	}
	if got := EscapeNameMax("short", 100); got != "short" {
		t.Errorf("EscapeNameMax(short) = %q", got)
	}
}

// checkName fails if name cannot be a file name made of s.
func checkName(t *testing.T, s, name string, limit int) {
	t.Helper()
	first, _ := utf8.DecodeRuneInString(name)
	last, _ := utf8.DecodeLastRuneInString(name)
	switch {
	case name == "" || name == "." || name == "..":
		t.Errorf("EscapeName(%q) = %q", s, name)
	case len(name) > limit:
		t.Errorf("EscapeName(%q) has %d bytes, at most %d may be", s, len(name), limit)
	case !utf8.ValidString(name) || strings.Contains(name, "/") || strings.ContainsFunc(name, unicode.IsControl):
		t.Errorf("EscapeName(%q) = %q has what a file name must not have", s, name)
	case first == '.' || first == '-' || unicode.IsSpace(first) || unicode.IsSpace(last):
		t.Errorf("EscapeName(%q) = %q begins or ends badly", s, name)
	}
}

func FuzzEscapeName(f *testing.F) {
	for _, s := range []string{
		"", "untitled", ".", "..", "-", " a ", "a/b", "%", "%25", "\x00", "\x7f", "\u0080", "\xff", "标题", "🧑‍🚀", "\u2028",
		strings.Repeat("x", 255), strings.Repeat("x", 238) + "~0123456789abcdef", strings.Repeat("%", 90), strings.Repeat("é", 128),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name := EscapeName(s)
		checkName(t, s, name, 255)
		if name != EscapeName(s) {
			t.Errorf("EscapeName(%q) is not a function", s)
		}
		// Whatever is shorter than the shortest cut name is not cut, and what is
		// not cut comes back, which makes the pair injective.
		if back := UnescapeName(name); back != s && s != "" && len(name) < 250 {
			t.Errorf("UnescapeName(EscapeName(%q)) = %q", s, back)
		}
	})
}

func FuzzUnescapeName(f *testing.F) {
	for _, s := range []string{"%", "%%", "%4", "%41", "%2f%2F", "a%zz", "\xff%ff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		text := UnescapeName(name)
		if len(text) > len(name) {
			t.Errorf("UnescapeName(%q) grew to %q", name, text)
		}
		if again := EscapeName(text); text != "" && len(again) < 250 && UnescapeName(again) != text {
			t.Errorf("%q means %q, whose name %q means something else", name, text, again)
		}
	})
}

func TestPreview(t *testing.T) {
	long := strings.Repeat("x", 80)
	tests := []struct{ text, want string }{
		{"", ""},
		{" \n\t\x1c\u3000", ""},
		{"  two\nlines\r\n", "two lines"},
		{"\x1fkept\tinside\r", "kept\tinside"},
		{"a\n\nb", "a  b"},
		{long, long},
		{long + "y", long[:77] + "…"},
		{" " + long + " ", long},
		{strings.Repeat("语", 81), strings.Repeat("语", 77) + "…"},
		{strings.Repeat("🚀", 80), strings.Repeat("🚀", 80)},
	}
	for _, tt := range tests {
		if got := Preview(tt.text); got != tt.want {
			t.Errorf("Preview(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}
