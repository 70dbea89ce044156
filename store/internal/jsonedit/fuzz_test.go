package jsonedit

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzCheck: what Go's own parser accepts we accept, Python's extras aside; no
// input makes any function panic; layouts keep the value.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{`{"a": [1, 2.5e3, "x\n", null], "b": {}}`, `NaN`, `[`, `"\ud800\udc00"`, `{"a":1,"a":2}`, "\"\xff\"", ` [1 , -Infinity] `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := Check(b)
		if json.Valid(b) && utf8.Valid(b) && err != nil && !strings.Contains(err.Error(), "too deep") {
			t.Fatalf("%v for valid %q", err, b)
		}
		if err == nil && !json.Valid(b) && !bytes.Contains(b, []byte("NaN")) && !bytes.Contains(b, []byte("Infinity")) {
			t.Fatalf("accepted %q", b)
		}
		c, in := Compact(b), Indent(b, "")
		Truthy(b)
		Number(b)
		Array(b)
		String(b)
		if err != nil {
			return
		}
		if !Equal(b, c) || !Equal(c, in) || Check(c) != nil || Check(in) != nil {
			t.Fatalf("layout changed %q to %q and %q", b, c, in)
		}
		if !bytes.Equal(Compact(in), c) || CompactLen(b) != len(c) {
			t.Fatalf("Compact of %q: %q and %q", b, c, Compact(in))
		}
	})
}

// FuzzSet: after Set, Get gives the value back, every other member has its
// bytes and its place, and the text is valid.
func FuzzSet(f *testing.F) {
	f.Add([]byte(`{"a": 1, "b": {"c": 1e400}}`), "a", []byte(`"x"`))
	f.Add([]byte("{\n  \"a\": 1\n}"), "new", []byte(`[1]`))
	f.Add([]byte(`{"a":1,"a":2,"\ud800":3}`), "a", []byte(`}`))
	f.Add([]byte(` { } `), "\xed\xa0\x80", []byte(``))
	f.Fuzz(func(t *testing.T, doc []byte, key string, raw []byte) {
		o, err := ParseObject(doc)
		if err != nil {
			return
		}
		if !bytes.Equal(o.Bytes(), doc) {
			t.Fatal("parsing changed the text")
		}
		checkSet(t, o, key, raw)
		checkDelete(t, o, key)
	})
}

func checkSet(t *testing.T, o *Object, key string, raw []byte) {
	t.Helper()
	before := o.Clone()
	o.Set(key, raw)
	checkObject(t, o)
	if !utf8.ValidString(key) {
		key = string(decodedKey(appendKey(nil, key)))
	}
	got, ok := o.Get(key)
	if !ok || !bytes.Equal(got, settable(raw)) {
		t.Fatalf("Set(%q, %q) then Get: %q", key, raw, got)
	}
	at := before.find(key)
	if at < 0 {
		at = before.Len()
	}
	if want := max(before.Len(), at+1); o.Len() != want {
		t.Fatalf("%d members, want %d", o.Len(), want)
	}
	for i, m := range before.members {
		n := o.members[i]
		if i != at && !bytes.Equal(before.b[m.k0:m.v1], o.b[n.k0:n.v1]) {
			t.Fatalf("Set(%q) changed member %q", key, m.key)
		}
	}
	if at < before.Len() { // nothing but that value's bytes
		m := before.members[at]
		want := append(append(append([]byte{}, before.b[:m.v0]...), settable(raw)...), before.b[m.v1:]...)
		if !bytes.Equal(want, o.Bytes()) {
			t.Fatalf("Set(%q): %q, want %q", key, o.Bytes(), want)
		}
	}
}

func checkDelete(t *testing.T, o *Object, key string) {
	t.Helper()
	before := o.Clone()
	removed := o.Delete(key)
	checkObject(t, o)
	if removed != before.Has(key) || o.Has(key) {
		t.Fatalf("Delete(%q) = %v", key, removed)
	}
	j := 0
	for _, m := range before.members {
		if m.key == key {
			continue
		}
		n := o.members[j]
		if !bytes.Equal(before.b[m.k0:m.v1], o.b[n.k0:n.v1]) {
			t.Fatalf("Delete(%q) changed member %q", key, m.key)
		}
		j++
	}
	if j != o.Len() {
		t.Fatalf("Delete(%q) left %d members, want %d", key, o.Len(), j)
	}
}

// FuzzString: strings survive a round trip, and the lengths are right.
func FuzzString(f *testing.F) {
	for _, s := range []string{"", "a\nb", "日本\x00", "\xff", "\xed\xa0\x80", "😀\\\"\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		raw := EncodeString(s)
		got, ok := String(raw)
		if want := strings.ToValidUTF8(s, "\ufffd"); !ok || utf8.ValidString(s) && got != want || !utf8.ValidString(got) {
			t.Fatalf("%q became %q", s, got)
		}
		if n, newline := DecodedLen(raw); n != len(got) || newline != strings.HasSuffix(got, "\n") {
			t.Fatalf("DecodedLen(%s) = %d, %v", raw, n, newline)
		}
		var std string
		if err := json.Unmarshal(raw, &std); err != nil || std != got {
			t.Fatalf("%s: the standard library reads %q, %v", raw, std, err)
		}
		quoted := []byte(`"` + s + `"`) // s as the inside of a string, if it is one
		if got, ok := String(quoted); ok && utf8.Valid(quoted) {
			if json.Unmarshal(quoted, &std) != nil || std != got {
				t.Fatalf("%s: %q, the standard library reads %q", quoted, got, std)
			}
			if n, _ := DecodedLen(quoted); n != len(got) {
				t.Fatalf("DecodedLen(%s) = %d", quoted, n)
			}
		}
	})
}

// TestRandomEdits runs the properties of FuzzSet over generated documents.
func TestRandomEdits(t *testing.T) {
	for seed := range uint64(300) {
		g := gen{rand.New(rand.NewPCG(seed, 7))}
		o, err := ParseObject([]byte(g.object(3)))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for range 8 {
			checkSet(t, o, g.key(), []byte(g.value(2)))
		}
		for range 3 {
			checkDelete(t, o, g.key())
		}
	}
}

type gen struct{ *rand.Rand }

func (g gen) pick(list ...string) string { return list[g.IntN(len(list))] }
func (g gen) space() string              { return g.pick("", "", "", " ", "\n  ", "\t", "\r\n") }
func (g gen) key() string {
	return g.pick("id", "head_id", "title", "名", "a\"b", "", "x\n", "k1", "k2", "\xed\xa0\x80")
}

func (g gen) value(depth int) string {
	switch n := g.IntN(9); {
	case n == 0 && depth > 0:
		return g.object(depth - 1)
	case n == 1 && depth > 0:
		parts := make([]string, g.IntN(4))
		for i := range parts {
			parts[i] = g.space() + g.value(depth-1) + g.space()
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return g.pick("null", "true", "false", "0", "-1.5e-7", "NaN", "-Infinity", "1e400", `""`, `"\ud800"`, `"日\u672c"`,
		`"\\\""`, "123456789012345678901234567890", `" , : { } "`)
}

func (g gen) object(depth int) string {
	parts := make([]string, g.IntN(40)*g.IntN(2)+g.IntN(4))
	for i := range parts {
		parts[i] = g.space() + string(appendKey(nil, g.key())) + g.space() + ":" + g.space() + g.value(depth) + g.space()
	}
	return g.space() + "{" + strings.Join(parts, ",") + g.space() + "}" + g.space()
}

func BenchmarkCheck(b *testing.B) {
	doc := []byte(`{"id": "0123456789ab", "output": "` + strings.Repeat(`All of the text of a message.\n`, 50) + `", "metadata": {"status": "done", "n": [1, 2, 3]}}`)
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		if err := Check(doc); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseObjectAndGet(b *testing.B) {
	g := gen{rand.New(rand.NewPCG(1, 1))}
	doc := []byte(g.object(2))
	for b.Loop() {
		o, err := ParseObject(doc)
		if err != nil {
			b.Fatal(err)
		}
		o.Get("head_id")
	}
}
