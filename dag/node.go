package dag

import "strings"

// RootID is the id of a session's root node, and the predecessor or caller
// that stands for it where a session has no such node (reference 5.1).
const RootID = "ROOT"

// The values of Node.Role that the rules distinguish (reference 2.5).
const (
	roleUser = "user"
	roleLLM  = "llm"
	roleCode = "code"
)

const (
	contextPrefix  = "context/"        // names of nodes that the context engine wrote
	contextSummary = "context/summary" // the one kind of them that is a message
	summaryPrefix  = "summary_"        // ids of compaction summaries
)

// Flags are the facts about a node's input and metadata that the rules ask
// for, so that the index need not keep either (reference 2.6).
type Flags uint16

const (
	// HasInput: "input" is not null. On a user node: an answer to a question
	// that was asked back, not a turn.
	HasInput Flags = 1 << iota
	// DisplayRoot: metadata.display is "root": the session's root node.
	DisplayRoot
	// DisplayRuntime: metadata.display is "runtime": a row of the machinery.
	DisplayRuntime
	// Structural: metadata.structural is truthy: hidden from messages.
	Structural
	// Rewound: metadata.rewound is truthy: hidden from branches and messages.
	Rewound
	// SpawnRoot: metadata.spawn_branch_root is truthy, or metadata.source is
	// "agent_spawn": the first node of a spawned branch.
	SpawnRoot
	// Covers: metadata.covers_ids is not null.
	Covers
	// CoversSome: metadata.covers_ids is truthy: a summary, which can never
	// be the head.
	CoversSome
	// Attach: metadata.function is "attach": a pointer to another branch.
	Attach
	// Function: metadata.function is truthy.
	Function
	// System: metadata.role is "system": a system message, stored as llm.
	System
)

// Has reports whether all of the flags in want are set.
func (f Flags) Has(want Flags) bool { return f&want == want }

// Node is what the graph knows of one history file. It is a plain value; the
// message text is not part of it.
type Node struct {
	ID  string
	Seq int64 // the canonical order in time (reference 5.2)
	// Role is the file's: "user", "llm", "code", or whatever it says.
	Role string
	// Name is a model's, a function's or a user's name.
	Name string
	// Caller is the node that invoked this one; "" and RootID mean none.
	Caller string
	// Predecessor is the node before this one in the conversation, "" = none.
	Predecessor string
	CreatedAt   float64 // seconds since the epoch; not a sort key
	Status      string  // metadata.status, "" when absent
	Flags       Flags
}

// Speaks reports whether the node is a user's or a model's, the two roles that
// form a conversation.
func (n Node) Speaks() bool { return n.Role == roleUser || n.Role == roleLLM }

// Speaker is the role that a reader sees: "user", "assistant", "system",
// "summary" for a compaction summary, "tool" for a call, and for anything else
// what the file says, "unknown" when that is nothing.
func (n Node) Speaker() string {
	switch n.Role {
	case roleLLM:
		switch {
		case n.Flags.Has(CoversSome):
			return "summary"
		case n.Flags.Has(System):
			return "system"
		}
		return "assistant"
	case roleCode:
		return "tool"
	case "":
		return "unknown"
	}
	return n.Role
}

// ChainLevel reports whether no node called this one, that is, whether it
// stands in the chat chain itself rather than inside a call (reference 5.1).
func (n Node) ChainLevel() bool { return n.Caller == "" || n.Caller == RootID }

// opensChain reports whether n counts as a conversational node where the
// invariants ask for "the first one" (reference 5.3, 5.4).
func (n Node) opensChain() bool {
	return n.Speaks() && n.ChainLevel() && !n.Flags.Has(DisplayRoot)
}

// isContext reports whether the context engine wrote the node.
func (n Node) isContext() bool { return strings.HasPrefix(n.Name, contextPrefix) }

// IsMessage reports whether readers of messages see the node (reference 5.5).
func (n Node) IsMessage() bool {
	if n.Flags&(DisplayRoot|Rewound|Structural) != 0 {
		return false
	}
	return !n.isContext() || n.Name == contextSummary
}
