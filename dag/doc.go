// Package dag is the message graph of a session as plain values.
package dag

import "iter"

const RootID = "ROOT"

type Node struct {
	ID, Role, Name, Caller, Predecessor, Status string
	Seq                                          int64
	CreatedAt                                    float64
	Flags                                        Flags
}
type Flags uint16
type Index struct{}

func (ix *Index) Len() int                     { panic("stub") }
func (ix *Index) All() iter.Seq[Node]          { panic("stub") }
func (ix *Index) Get(id string) (Node, bool)   { panic("stub") }
