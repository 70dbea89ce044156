package jsonedit

// rewrite makes the object's new text: members that drop names are left out,
// values in repl (by position) replaced, added members appended. What lies
// between two members goes with the second of them.
func (o *Object) rewrite(repl map[int][]byte, drop func(entry) bool, added []Member) {
	w := rewriter{src: o.b, sep: o.separator(), colon: o.colon()}
	w.out = append(make([]byte, 0, len(o.b)+sizeOf(repl, added)), o.b[:o.open+1]...)
	for i, m := range o.members {
		if drop != nil && drop(m) {
			continue
		}
		w.gap(o, i)
		w.keep(m, repl[i])
	}
	for _, m := range added {
		w.add(m)
	}
	if n := len(o.members); n > 0 && len(w.members) > 0 {
		w.out = append(w.out, o.b[o.members[n-1].v1:o.close]...)
	}
	closing := len(w.out)
	o.b = append(w.out, o.b[o.close:]...)
	o.close, o.members = closing, w.members
	o.reindex()
}

func sizeOf(repl map[int][]byte, added []Member) int {
	n := 0
	for _, raw := range repl {
		n += len(raw)
	}
	for _, m := range added {
		n += len(m.Key) + len(m.Raw) + 16
	}
	return n
}

type rewriter struct {
	src        []byte
	out        []byte
	members    []entry
	sep, colon []byte
}

// gap copies what stands before member i, if another member stands there too.
func (w *rewriter) gap(o *Object, i int) {
	if len(w.members) > 0 {
		w.out = append(w.out, w.src[o.members[i-1].v1:o.members[i].k0]...)
		return
	}
	w.out = append(w.out, w.src[o.open+1:o.members[0].k0]...)
}

func (w *rewriter) keep(m entry, repl []byte) {
	if repl == nil {
		repl = w.src[m.v0:m.v1]
	}
	w.put(m.key, w.src[m.k0:m.k1], w.src[m.k1:m.v0], repl)
}

func (w *rewriter) add(m Member) {
	if len(w.members) > 0 {
		w.out = append(w.out, w.sep...)
	}
	w.put(m.Key, appendKey(nil, m.Key), w.colon, m.Raw)
}

func (w *rewriter) put(key string, rawKey, colon, raw []byte) {
	e := entry{key: key}
	e.k0 = len(w.out)
	w.out = append(w.out, rawKey...)
	e.k1 = len(w.out)
	w.out = append(w.out, colon...)
	e.v0 = len(w.out)
	w.out = append(w.out, raw...)
	e.v1 = len(w.out)
	w.members = append(w.members, e)
}

// separator is what stands between the last two members; when there is only
// one, the comma and what stands before it, else ", ".
func (o *Object) separator() []byte {
	n := len(o.members)
	if n > 1 {
		return o.b[o.members[n-2].v1:o.members[n-1].k0]
	}
	if n == 1 {
		if lead := o.b[o.open+1 : o.members[0].k0]; len(lead) > 0 {
			return append([]byte{','}, lead...)
		}
		if len(o.colon()) == 1 {
			return []byte{','}
		}
	}
	return []byte(", ")
}

// colon is what stands between the last key and its value, else ": ".
func (o *Object) colon() []byte {
	if n := len(o.members); n > 0 {
		return o.b[o.members[n-1].k1:o.members[n-1].v0]
	}
	return []byte(": ")
}
