package fsnode

import (
	"fmt"
	"slices"
	"testing"
)

type label1 string

func (l label1) label() string { return string(l) }

// TestFew: what is put in is found and listed, before and after there are
// many.
func TestFew(t *testing.T) {
	var f few[label1]
	var want []label1
	for n := range 3 * manyNamed {
		name := label1(fmt.Sprintf("%03d", n))
		if _, ok := f.get(string(name)); ok {
			t.Fatalf("%s is there before it was put in", name)
		}
		f.put(name)
		want = append(want, name)
		for _, w := range want {
			if v, ok := f.get(string(w)); !ok || v != w {
				t.Fatalf("of %d, %s is %q, %v", n+1, w, v, ok)
			}
		}
		if got := slices.Sorted(f.all()); !slices.Equal(got, want) || f.len() != len(want) {
			t.Fatalf("all are %v, %d; want %v", got, f.len(), want)
		}
	}
}
