package dag

import "strconv"

// BrokenChainError says that a branch cannot be read because its walk ended at
// a node that has no predecessor and is no legal start (reference 5.4).
type BrokenChainError struct {
	Node string // the id of the node at which the walk ended
}

// Error names the node.
func (e *BrokenChainError) Error() string {
	return "broken chain: node " + strconv.Quote(e.Node) + " has no predecessor and starts no conversation"
}

// PredecessorMissingError says that a node must not be stored, because it has
// no predecessor and none of the exceptions applies (reference 5.3).
type PredecessorMissingError struct {
	Node string // the id of the refused node
}

// Error names the node.
func (e *PredecessorMissingError) Error() string {
	return "node " + strconv.Quote(e.Node) + " has no predecessor and would start a second conversation"
}
