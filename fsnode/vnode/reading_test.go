package vnode

import (
	"errors"
	"testing"
)

// TestReading: what a read at an offset is answered from, while the file's text
// changes.
func TestReading(t *testing.T) {
	type step struct {
		now   string // the file's text
		off   int64
		want  string // from the offset on
		fresh bool
	}
	for name, steps := range map[string][]step{
		"to the end":             {{"abcdef", 0, "abcdef", true}, {"abcdef", 3, "def", false}, {"abcdef", 6, "", false}},
		"over a change":          {{"abcdef", 0, "abcdef", true}, {"xy", 3, "def", false}, {"xy", 6, "", false}},
		"over a longer one":      {{"abc", 0, "abc", true}, {"uvwxyz", 3, "", false}},
		"again":                  {{"abcdef", 0, "abcdef", true}, {"xyz", 0, "xyz", true}, {"abc", 1, "yz", false}},
		"again, the same":        {{"abc", 0, "abc", true}, {"abc", 0, "abc", false}},
		"what is added":          {{"abc", 0, "abc", true}, {"abcdef", 3, "def", true}, {"abcdefg", 4, "ef", false}, {"abcdefg", 6, "g", true}},
		"added while it reads":   {{"abc", 0, "abc", true}, {"abcd", 2, "c", false}, {"abcd", 3, "d", true}},
		"a follower":             {{"abc", 0, "abc", true}, {"abc", 3, "", false}, {"uvwxyz", 3, "xyz", true}},
		"a follower of less":     {{"abc", 0, "abc", true}, {"x", 3, "", false}, {"x", 3, "", true}, {"x", 0, "x", false}},
		"from the middle":        {{"abcdef", 4, "ef", true}, {"xyz", 0, "abcdef", false}, {"xyz", 0, "xyz", true}},
		"from nothing":           {{"", 0, "", true}, {"abc", 0, "abc", true}},
		"beyond the end":         {{"abc", 9, "", true}, {"abcdefghijkl", 9, "jkl", true}},
		"to nothing, and follow": {{"abc", 0, "abc", true}, {"", 3, "", false}, {"", 3, "", true}, {"abc", 0, "abc", true}},
	} {
		var r reading
		for i, s := range steps {
			b, fresh, err := r.at(s.off, func() ([]byte, error) { return []byte(s.now), nil })
			if got := string(b[min(int(s.off), len(b)):]); err != nil || got != s.want || fresh != s.fresh {
				t.Errorf("%s, step %d: %q %v %v, want %q %v", name, i, got, fresh, err, s.want, s.fresh)
			}
		}
	}
	var r reading
	failed := errors.New("failed")
	if _, _, err := r.at(0, func() ([]byte, error) { return nil, failed }); !errors.Is(err, failed) || r.taken {
		t.Errorf("%v, taken %v", err, r.taken)
	}
}
