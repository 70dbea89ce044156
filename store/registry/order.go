package registry

import "github.com/sessionfs/sessionfs/store/internal/jsonedit"

// Order tells where the rows of a View stand: in file order, new ones last, as
// View.IDs yields them. It is safe for concurrent use.
type Order struct {
	view  View
	first map[string]int32 // of ids that come more than once, the first place; nil when there are none
	fresh map[string]int   // of rows that the file lacks, behind its members
}

// Order returns the order of the view's rows.
func (v View) Order() Order {
	o := Order{view: v}
	if v.base.dup {
		o.first = make(map[string]int32, len(v.base.last))
		for i := range v.base.members {
			if id := v.base.members[i].id; v.base.last[id] != int32(i) {
				if _, known := o.first[id]; !known {
					o.first[id] = int32(i)
				}
			}
		}
	}
	if len(v.pending) > 0 {
		o.fresh = map[string]int{}
		for i, id := range newRows(v.base, v.pending) {
			o.fresh[id] = len(v.base.members) + i
		}
	}
	return o
}

// Len returns a number that every place is below.
func (o Order) Len() int { return len(o.view.base.members) + len(o.fresh) }

// At returns the place of a session's row; ok is false when it has none. What is
// no object is none.
func (o Order) At(id string) (place int, ok bool) {
	c := o.view.pending[id]
	if c != nil && c.row == nil {
		return 0, false
	}
	last, there := o.view.base.last[id]
	if !there {
		place, ok = o.fresh[id]
		return place, ok
	}
	if m := o.view.base.members[last]; c == nil && o.view.base.text[m.val] != '{' {
		return 0, false
	}
	if first, twice := o.first[id]; twice {
		last = first
	}
	return int(last), true
}

// Peek is Row without a copy of the text: the row keeps all of the registry's
// text, so it is for who drops it soon.
func (v View) Peek(id string) (*jsonedit.Object, bool) {
	if len(v.pending) > 0 {
		if c := v.pending[id]; c != nil {
			return rowOf(v.base, c, id)
		}
	}
	raw, ok := v.base.row(id)
	if !ok {
		return nil, false
	}
	row, err := jsonedit.ParseObject(raw)
	return row, err == nil // what is no object is no row
}
