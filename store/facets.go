package store

// Str returns a key of meta.json as a listing's row has it: the text, "" for
// what is no text, and whether the key is there.
func (sn *Snapshot) Str(key string) (text string, there bool) {
	if _, there = sn.meta.obj.Get(key); !there {
		return "", false
	}
	return sn.meta.obj.Str(key), true
}

// Truthy returns a key of meta.json as a boolean, and whether it is there.
func (sn *Snapshot) Truthy(key string) (value, there bool) {
	if _, there = sn.meta.obj.Get(key); !there {
		return false, false
	}
	return sn.meta.obj.Truthy(key), true
}
