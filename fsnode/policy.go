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
	kindScratch                // editors' files: a rename takes the name away
	kindFresh                  // asked each time: .sessionfs/errors, failed/*
	kindAsked                  // names and objects that are kept nowhere: dag/*/*, views/*/*
	kindCommit                 // commits/*: the name may go, what it means does not change
)

// long is how long the kernel keeps what it is notified about.
const long = time.Hour

// policyOf is the table of what the kernel may keep of each kind of entry.
//
// A name's time is 0 where a rename of the kernel's can move the dentry away
// although the name stays (after a rename onto head the node's own dentry
// answers to "head", for as long as its time lasts), and where names vanish
// that nobody is notified about. Attributes that come with a name are never
// kept of what changes: while the kernel is being told of an inode for the
// first time, a notification about it finds nothing, and the old size would
// stay. messages/* and branch/<name>/* are the exception, as a barrier on
// their directory comes before every notification about them.
func policyOf(k kind, watched bool) vnode.Policy {
	if !watched {
		return vnode.Policy{} // nobody notifies: ask at each use
	}
	switch k {
	case kindConstant:
		return vnode.Policy{Entry: long, Lookup: long, Attr: long, Keep: true}
	case kindDirectory, kindSession:
		return vnode.Policy{Entry: long, Attr: long}
	case kindLive, kindRecord:
		return vnode.Policy{Entry: long, Attr: long, Keep: true}
	case kindNode:
		// The name is asked about at each use, and the answer brings the
		// attributes along.
		return vnode.Policy{Lookup: long, Attr: long, Keep: true}
	case kindWritable:
		// An editor renames the name to that of its backup, and it stays.
		return vnode.Policy{Attr: long, Keep: true}
	case kindEditable:
		return vnode.Policy{Lookup: long, Attr: long, Keep: true}
	case kindMessage, kindBranchLink:
		return vnode.Policy{Entry: long, Lookup: long, Attr: long, Keep: true}
	case kindBranch:
		return vnode.Policy{Attr: long}
	case kindFresh:
		return vnode.Policy{Entry: long}
	case kindCommit:
		return vnode.Policy{Lookup: long, Attr: long, Keep: true}
	case kindScratch, kindAsked:
		return vnode.Policy{}
	}
	return vnode.Policy{}
}
