package fsnode

import (
	"testing"
)

func TestGarbagePercent(t *testing.T) {
	for live, want := range map[uint64]int32{0: 100, 1 << 20: 100, 8 << 20: 100, 16 << 20: 48, 24 << 20: 32, 40 << 20: 20, 1 << 30: 12} {
		if got := garbagePercent(live); got != want {
			t.Errorf("beside %d bytes: %d %%, want %d", live, got, want)
		}
	}
}

// What was made for a session is not kept longer than the session, and little
// is while nobody asks.
func TestTextCacheLetsGo(t *testing.T) {
	c := newTextCache(maxTexts, &meter{})
	key := func(gen uint64, what string) textKey { return textKey{session: "s", gen: gen, what: what} }
	grown := make([]byte, 1<<18, 1<<20)
	for gen := range uint64(4) {
		b, err := c.text(key(gen, "text"), func() ([]byte, error) { return grown, nil })
		if err != nil || len(b) != len(grown) {
			t.Fatal(len(b), err)
		}
		if cap(b) > len(b)*5/4 {
			t.Errorf("a text of %d bytes is kept in %d", len(b), cap(b))
		}
	}
	c.forget(map[uint64]bool{1: true})
	for gen, want := range []bool{true, false, true, true} {
		if got := c.get(key(uint64(gen), "text")) != nil; got != want {
			t.Errorf("generation %d is kept: %v", gen, got)
		}
	}
	c.rest()
	if c.size > restTexts || c.get(key(3, "text")) == nil {
		t.Errorf("at rest %d bytes are kept, and not what was used last", c.size)
	}
	c.forget(map[uint64]bool{0: true, 2: true, 3: true})
	if c.size != 0 || len(c.byKey) != 0 || c.order.Len() != 0 {
		t.Errorf("%d bytes and %d texts are left", c.size, len(c.byKey))
	}
}
