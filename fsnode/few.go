package fsnode

import (
	"iter"
	"maps"
	"slices"
)

// manyNamed is how many values a few keeps without a map.
const manyNamed = 16

// named is a value that knows the name under which it is found.
type named interface{ label() string }

// few holds values by their names. There is one for each directory of each
// session, and most hold very few, for which a map takes more memory than what
// is in it. The zero value is empty. Its user guards it.
type few[V named] struct {
	list []V
	many map[string]V // in the place of list, once there are many
}

// get finds a value.
func (f *few[V]) get(name string) (v V, ok bool) {
	if f.many != nil {
		v, ok = f.many[name]
		return v, ok
	}
	for _, v := range f.list {
		if v.label() == name {
			return v, true
		}
	}
	return v, false
}

// put adds a value under a name that has none.
func (f *few[V]) put(v V) {
	if f.many == nil && len(f.list) < manyNamed {
		f.list = append(f.list, v)
		return
	}
	if f.many == nil {
		f.many = make(map[string]V, 2*manyNamed)
		for _, v := range f.list {
			f.many[v.label()] = v
		}
		f.list = nil
	}
	f.many[v.label()] = v
}

// all are the values, in no order.
func (f *few[V]) all() iter.Seq[V] {
	if f.many != nil {
		return maps.Values(f.many)
	}
	return slices.Values(f.list)
}

// len is how many values there are.
func (f *few[V]) len() int { return len(f.list) + len(f.many) }
