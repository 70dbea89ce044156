package fsnode

import (
	"container/list"
	"sync"
)

// maxTexts bounds the rendered texts that are kept, in bytes, and restTexts
// those that are kept while the mount is at rest.
const (
	maxTexts  = 32 << 20
	restTexts = 512 << 10
)

// textKey names something that was derived from a state of a session.
type textKey struct {
	session string
	gen     uint64 // of the session's object
	what    string
	version any // comparable; another one whenever the text may be
}

// textCache keeps what is costly to make, the last used first, up to a number
// of bytes for the whole mount: memory does not follow what was looked at.
type textCache struct {
	max   int
	meter *meter

	mu    sync.Mutex // leaf
	size  int
	order *list.List // of *cachedText, the last used at the front
	byKey map[textKey]*list.Element
}

type cachedText struct {
	key   textKey
	value any
	size  int
}

func newTextCache(limit int, m *meter) *textCache {
	return &textCache{max: limit, meter: m, order: list.New(), byKey: map[textKey]*list.Element{}}
}

// get returns what is kept under a key, nil when nothing is.
func (c *textCache) get(k textKey) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byKey[k]
	if !ok {
		c.meter.cache.Add("miss", 1)
		return nil
	}
	c.meter.cache.Add("hit", 1)
	c.order.MoveToFront(e)
	return e.Value.(*cachedText).value
}

// put keeps a value of a size in bytes; one that is too large is not kept.
func (c *textCache) put(k textKey, value any, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[k]; ok {
		c.drop(e)
	}
	size += 256 // the cache's own
	if size > c.max/2 {
		return
	}
	c.byKey[k] = c.order.PushFront(&cachedText{k, value, size})
	c.size += size
	c.shrinkLocked(c.max)
}

// shrinkLocked drops what was used least until no more is kept than a size.
// Requires c.mu.
func (c *textCache) shrinkLocked(size int) {
	for c.size > size {
		c.drop(c.order.Back())
	}
}

// rest drops what is not worth its memory while nobody asks.
func (c *textCache) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shrinkLocked(restTexts)
}

// forget drops what is kept of session objects that are no more.
func (c *textCache) forget(gens map[uint64]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, e := range c.byKey {
		if gens[k.gen] {
			c.drop(e)
		}
	}
}

func (c *textCache) drop(e *list.Element) {
	t := c.order.Remove(e).(*cachedText)
	delete(c.byKey, t.key)
	c.size -= t.size
}

// text returns a text, made by render when it is not kept.
func (c *textCache) text(k textKey, render func() ([]byte, error)) ([]byte, error) {
	if b, ok := c.get(k).([]byte); ok {
		return b, nil
	}
	b, err := render()
	if err == nil {
		if b == nil || cap(b)-len(b) > len(b)/8 {
			b = append(make([]byte, 0, len(b)), b...) // what it grew by is not kept
		}
		c.put(k, b, len(b))
	}
	return b, err
}
