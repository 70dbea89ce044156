package mounted

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// register is a thing that one writer changes and many readers look at. It
// knows every state that the thing was to have and which of them the last
// call that was acknowledged made, so that what a reader sees can be held to
// the states that there were between just before and just after its look.
type register[T any] struct {
	mu     sync.Mutex
	states []T // those whose making has begun
	acked  int // index of the last one that was acknowledged
}

func newRegister[T any](first T) *register[T] { return &register[T]{states: []T{first}} }

// begin notes the state that the next call makes.
func (r *register[T]) begin(s T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states = append(r.states, s)
}

// ack notes that the call has returned.
func (r *register[T]) ack() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked = len(r.states) - 1
}

// now is where a look begins: the last acknowledged state.
func (r *register[T]) now() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.acked
}

// last is the last acknowledged state.
func (r *register[T]) last() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states[r.acked]
}

// since are the states that a look which began at from may have seen, and
// where it ended.
func (r *register[T]) since(from int) []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.states[from:])
}

// lawful reports whether some state that there was since from is what was
// seen. A state whose making has begun may not yet know all of itself (the id
// of a message that the store makes up), so the answer no waits for it.
func (r *register[T]) lawful(from int, seen func(T) bool) bool {
	states := r.since(from)
	if slices.ContainsFunc(states, seen) {
		return true
	}
	r.settle(from + len(states) - 1)
	return slices.ContainsFunc(states, seen)
}

// settle waits until a state was acknowledged.
func (r *register[T]) settle(i int) {
	for deadline := time.Now().Add(time.Minute); r.now() < i && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// said is a message of the load.
type said struct {
	id   atomic.Value // string; not there until the store has told it
	role string       // in a message's name
	text string
	pred *said
	made int // its place among the session's messages
}

func (m *said) ID() string {
	id, _ := m.id.Load().(string)
	return id
}

// branch is the branch that ends in m, oldest first.
func (m *said) branch() []*said {
	var out []*said
	for ; m != nil; m = m.pred {
		out = append(out, m)
	}
	slices.Reverse(out)
	return out
}

// fileName is the message's name in messages/ at a place of its branch.
func (m *said) fileName(place int) string {
	return fmt.Sprintf("%06d-%s-%.8s.md", place, m.role, m.ID())
}

// fileNames are the names of a branch in messages/.
func fileNames(branch []*said) []string {
	var out []string
	for i, m := range branch {
		out = append(out, m.fileName(i+1))
	}
	return out
}

// moment is a state of a session's conversation.
type moment struct {
	head *said
	made int // how many messages there are
}

// marker begins and ends each text of the load, and stands in none.
const marker = "⟦"

// words is a text of its own, in a few lines, that shows when it is cut.
func words(name string, n int) string {
	return fmt.Sprintf("%s%s⟧ %s\nand no more %s/%s⟧", marker, name, strings.Repeat("so many words\n", n%97), marker, name)
}

// holdsBranch reports whether a rendered document holds the branch's texts,
// whole and in order, and no other.
func holdsBranch(document string, branch []*said) bool {
	if strings.Count(document, marker) != 2*len(branch) {
		return false
	}
	for _, m := range branch {
		_, rest, ok := strings.Cut(document, m.text)
		if !ok {
			return false
		}
		document = rest
	}
	return true
}

// shortID is the end of a name in messages/.
func shortID(name string) string {
	return strings.TrimSuffix(name[strings.LastIndexByte(name, '-')+1:], ".md")
}

// stemID is the id in a node's file name.
func stemID(name string) string {
	parts := strings.SplitN(name, "-", 3)
	id, _, _ := strings.Cut(parts[len(parts)-1], ".")
	return id
}
