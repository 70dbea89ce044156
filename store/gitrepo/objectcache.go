package gitrepo

import (
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
)

// objectCache keeps decoded objects up to a number of bytes, the oldest of them
// going first. Unlike go-git's own it takes no memory before it holds something:
// there is one for each session that somebody looks into. Whoever uses it locks.
type objectCache struct {
	max, size int64
	objects   map[plumbing.Hash]plumbing.EncodedObject
	order     []plumbing.Hash
}

var _ cache.Object = (*objectCache)(nil)

// Put keeps an object; one of more than half of what there is room for is not
// kept.
func (c *objectCache) Put(o plumbing.EncodedObject) {
	h, n := o.Hash(), o.Size()
	if _, ok := c.objects[h]; ok || n > c.max/2 {
		return
	}
	if c.objects == nil {
		c.objects = map[plumbing.Hash]plumbing.EncodedObject{}
	}
	c.objects[h] = o
	c.order = append(c.order, h)
	for c.size += n; c.size > c.max; {
		c.size -= c.objects[c.order[0]].Size()
		delete(c.objects, c.order[0])
		c.order = c.order[1:]
	}
}

// Get returns an object that is kept.
func (c *objectCache) Get(h plumbing.Hash) (plumbing.EncodedObject, bool) {
	o, ok := c.objects[h]
	return o, ok
}

// Clear drops everything.
func (c *objectCache) Clear() { *c = objectCache{max: c.max} }
