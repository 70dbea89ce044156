package registry

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOrderIsThatOfIDs: Order tells the places in which IDs yields the rows,
// also of a file with duplicates and with changes that are not in it.
func TestOrderIsThatOfIDs(t *testing.T) {
	for name, text := range map[string]string{
		"plain": `{"b": {"id": "b"}, "a": {"id": "a"}, "c": {}}`,
		"twice": `{"b": {"n": 1}, "a": {"n": 1}, "b": {"n": 2}, "c": {}, "a": {"n": 2}, "b": {"n": 3}}`,
		"odd":   `{"b": {}, "x": 5, "a": {}, "y": null, "y": {}, "z": {}, "z": 7}`,
		"none":  `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := open(t, text)
			check := func() {
				t.Helper()
				v := r.View()
				o := v.Order()
				at := make([]string, o.Len())
				var want []string
				for id := range v.IDs() {
					row, ok := v.Row(id)
					peeked, there := v.Peek(id)
					if ok != there || ok && string(row.Bytes()) != string(peeked.Bytes()) {
						t.Errorf("%s: the row is %v, %v when peeked at", id, row, peeked)
					}
					place, ok2 := o.At(id)
					if ok != ok2 {
						t.Errorf("%s: a row %v, a place %v", id, ok, ok2)
					}
					if ok {
						want = append(want, id)
						at[place] = id
					}
				}
				got := slices.DeleteFunc(at, func(id string) bool { return id == "" })
				if d := cmp.Diff(want, got); d != "" && len(want)+len(got) > 0 {
					t.Errorf("places:\n%s", d)
				}
				if _, ok := o.At("nobody"); ok {
					t.Error("nobody has a place")
				}
			}
			check()
			r.Put("new2", raw("title", `"x"`))
			r.Put("b", raw("title", `"y"`))
			r.Adopt("new1", RowFromMeta("new1", nil, 1))
			r.Adopt("x", RowFromMeta("x", nil, 1))
			check()
			r.Delete("a")
			r.Delete("new2")
			r.Put("new2", raw("title", `"again"`))
			check()
		})
	}
}
