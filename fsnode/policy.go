package fsnode

import (
	"time"

	"github.com/sessionfs/sessionfs/fsnode/vnode"
)

// kind is a kind of entry with a cache policy of its own.
type kind int

const (
	kindConstant   kind = iota // README.txt: never changes
	kindDirectory              // a directory whose name stays
	kindSession                // sessions/<id>, archived/<id>
	kindLive                   // a file whose text changes: transcript.md, fields/* that are fixed
	kindWritable               // one that can be written: head_id, meta.json, fields/*
	kindRecord                 // history/*: changes hardly ever, may vanish
	kindNode                   // nodes/*: a rename takes the name away, and it stays
	kindMessage                // messages/*: a slot, see messages.go
	kindEditable               // messages/* that can be written
	kindBranch                 // branch/*: names come and go by any writer
	kindBranchLink             // branch/<name>/*
	kindGroup                  // dag/<id>/, views/<view>/<name>/: come and go with what they stand for
	kindScratch                // editors' files: a rename takes the name away
	kindFresh                  // asked each time: .sessionfs/errors, failed/*; real directories say themselves
	kindAsked                  // names and objects that are kept nowhere: links in dag/ and views/
	kindCommit                 // commits/*: the name may go, what it means does not change
)

// long is how long the kernel keeps what it is notified about.
const long = time.Hour

// kept is long, in a policy.
const kept = vnode.Span(long / time.Second)

// policyOf is the table of what the kernel may keep of each kind of entry.
//
// Attributes that come with a name may be kept where a barrier on the name's
// directory comes before every notification about them: while the kernel is
// being told of an inode for the first time, a notification about it finds
// nothing, and the old size would stay. A file that tells an estimate with its
// name is never kept so, see vnode.Estimated.
//
// Moves marks the names that a rename of the kernel's can take away although
// they stay (after a rename onto head the node's own dentry answers to "head",
// for as long as its time lasts), and those that may vanish in a request during
// which nobody can be told.
func policyOf(k kind, watched bool) vnode.Policy {
	if !watched {
		return vnode.Policy{} // nobody notifies: ask at each use
	}
	switch k {
	case kindConstant, kindLive, kindRecord, kindMessage, kindBranchLink, kindCommit:
		return vnode.Policy{Entry: kept, Lookup: kept, Attr: kept, Keep: true}
	case kindDirectory, kindSession:
		return vnode.Policy{Entry: kept, Lookup: kept, Attr: kept}
	case kindNode, kindWritable, kindEditable:
		return vnode.Policy{Entry: kept, Moves: true, Lookup: kept, Attr: kept, Keep: true}
	case kindBranch, kindGroup:
		return vnode.Policy{Entry: kept, Moves: true, Lookup: kept, Attr: kept}
	case kindFresh:
		return vnode.Policy{Entry: kept}
	case kindScratch, kindAsked:
		return vnode.Policy{}
	}
	return vnode.Policy{}
}
