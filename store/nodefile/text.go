package nodefile

import (
	"fmt"

	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// Text returns a node's content as the mount shows it: the output's text, for
// an output that is no string its JSON, for null nothing; then a newline where
// the content does not end in one. A surrogate without its other half becomes
// U+FFFD, so that the result is UTF-8. The error is Parse's.
func Text(raw []byte) ([]byte, error) {
	var f fields
	if err := jsonedit.WalkBytes(raw, f.take); err != nil {
		return nil, fmt.Errorf("history file: %w", err)
	}
	return withNewline(outputText(f.output)), nil
}

func outputText(output []byte) []byte {
	if isNull(output) {
		return nil
	}
	if !jsonedit.IsString(output) {
		return jsonedit.Canonical(output)
	}
	text, _ := jsonedit.AppendDecoded(make([]byte, 0, len(output)), output)
	return text
}

func withNewline(text []byte) []byte {
	if n := len(text); n > 0 && text[n-1] == '\n' {
		return text
	}
	return append(text, '\n')
}

// textLen returns the length of withNewline(outputText(output)), for a string
// without decoding it.
func textLen(output []byte) (n int64, isText bool) {
	if isNull(output) {
		return 1, true
	}
	if !jsonedit.IsString(output) {
		return int64(len(jsonedit.Canonical(output))) + 1, false
	}
	size, newline := jsonedit.DecodedLen(output)
	if !newline {
		size++
	}
	return int64(size), true
}
