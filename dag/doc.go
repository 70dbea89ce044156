// Package dag is the message graph of one session as plain values.
//
// A session is a list of nodes in stored order. Two kinds of edges join them:
// a node's predecessor is the node before it in the conversation, its caller
// the node that invoked it. Edges are kept as the ids that the nodes carry; an
// id that no node has is legal and simply ends a walk, and so is a loop.
//
// An Index is an immutable view of such a list. Append returns a new view and
// leaves the old one as it was; both share one append-only storage, so that
// adding a node costs the same at ten nodes and at a hundred thousand. A view
// sees exactly the nodes that it was made with, whatever is appended later,
// and may be used by any number of goroutines at once.
//
// The rules (which nodes form a branch, which are its tips, which messages a
// reader sees) are those of the OpenProgram session store; comments cite its
// reference by section.
//
// Every walk is a loop, not a recursion, visits a node at most once and
// therefore ends on every input. The package does no I/O, reads no clock,
// starts no goroutine and logs nothing. Its one lock is the storage's own; it
// is held across memory only, never while a caller's function runs.
package dag
