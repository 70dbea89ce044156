package attachment

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// Spec is what a marker is written from.
type Spec struct {
	Name    string // the upload's own name
	MIME    string // tells the ext of a name without one; may be empty
	Path    string // absolute
	Size    int64  // in bytes
	Count   string // such as "3 lines"; may be empty
	Preview string // the path of a preview; may be empty
}

var (
	brackets = regexp.MustCompile(`[\[\]()]+`)
	// A reader ends the ext at a comma.
	bracketsOrCommas = regexp.MustCompile(`[\[\](),]+`)
)

// Format writes a marker in the current spelling (reference 9.2).
func Format(s Spec) string {
	b := []byte("[attachment: ")
	b = append(b, orFile(brackets.ReplaceAllString(trim(s.Name), "_"))...)
	b = append(b, " ("...)
	b = append(b, ext(s.Name, s.MIME)...)
	b = append(b, ", "...)
	b = strconv.AppendInt(b, kb(s.Size), 10)
	b = append(b, " KB"...)
	if count := brackets.ReplaceAllString(trim(s.Count), "_"); count != "" {
		b = append(b, ", "...)
		b = append(b, count...)
	}
	b = append(b, ") @json "...)
	b = jsonedit.AppendString(b, s.Path)
	if s.Preview != "" {
		b = append(b, " @previewjson "...)
		b = jsonedit.AppendString(b, s.Preview)
	}
	return string(append(b, ']'))
}

func trim(s string) string { return strings.TrimFunc(strings.ToValidUTF8(s, "\uFFFD"), isBlank) }

func orFile(s string) string {
	if s == "" {
		return "file"
	}
	return s
}

// ext is the last suffix of a name, else the subtype of its MIME type.
func ext(name, mime string) string {
	_, suffix := splitExt(trim(name))
	e := strings.ToLower(strings.TrimPrefix(suffix, "."))
	if e == "" {
		if _, sub, ok := strings.Cut(mime, "/"); ok {
			e, _, _ = strings.Cut(sub, ";")
		}
	}
	return orFile(trim(bracketsOrCommas.ReplaceAllString(trim(e), "_")))
}

// splitExt cuts a name before its last suffix; a name that begins with a dot
// has none because of that dot.
func splitExt(name string) (stem, suffix string) {
	i := strings.LastIndexByte(name, '.')
	if i <= 0 || strings.Trim(name[:i], ".") == "" {
		return name, ""
	}
	return name[:i], name[i:]
}

// kb is a size in KB: at least 1, half a KB to the even number.
func kb(size int64) int64 {
	return max(1, int64(math.RoundToEven(float64(size)/1024)))
}
