package jsonedit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	valid := []string{
		`{}`, `[]`, `""`, `0`, `-0`, `1e400`, `-1.5E+07`, `NaN`, `Infinity`, `-Infinity`, `null`, `true`, `false`,
		" \t\r\n{ \"a\" : [ 1 , { } , [ ] ] } \n", `"\ud800"`, `"\ud83d\ude00"`, `"\udc00\ud800"`, `{"a":1,"a":2}`,
		`"` + "\u2028\u007f日本" + `"`, `123456789012345678901234567890`, `"\u0000\/"`,
		strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth),
		strings.Repeat(`{"a":`, MaxDepth) + "1" + strings.Repeat("}", MaxDepth),
	}
	for _, s := range valid {
		if err := Check([]byte(s)); err != nil {
			t.Errorf("Check(%.40q) = %v", s, err)
		}
	}
	invalid := []string{
		``, ` `, `{`, `}`, `[1,]`, `[,1]`, `{"a":1,}`, `{"a"}`, `{"a" 1}`, `{a:1}`, `{1:1}`, `[1 2]`, `[1}`, `{"a":1]`, `1 2`,
		`01`, `1.`, `.5`, `+1`, `-`, `1e`, `1e+`, `nul`, `nan`, `-Inf`, `Infinit`, `-NaN`, `True`,
		`"`, `"a`, `"\`, `"\x"`, `"\u12"`, `"\u12g4"`, "\"\n\"", "\"\x00\"", "\"aaaaaaaa\x1f\"", `'a'`, "\ufeff{}",
		"\"\xff\"", "\"\xed\xa0\x80\"", "\xff", `{"a":1}x`, "{\"a\x01\":1}",
		strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1),
		strings.Repeat("[", 1<<20), strings.Repeat(`{"a":`, 1<<18), strings.Repeat(`[{"a":`, 1<<18),
	}
	for _, s := range invalid {
		var se *SyntaxError
		if err := Check([]byte(s)); !errors.As(err, &se) {
			t.Errorf("Check(%.40q) = %v, want a SyntaxError", s, err)
		} else if se.Offset < 0 || se.Offset > len(s) {
			t.Errorf("Check(%.40q): offset %d", s, se.Offset)
		}
		if _, err := ParseObject([]byte(`{"k": ` + s + `}`)); err == nil && s != "" && s != " " && s != "\ufeff{}" {
			t.Errorf("ParseObject accepted %.40q as a value", s)
		}
		Array([]byte("[" + s + "]"))
		Compact([]byte(s))
		Indent([]byte(s), "")
		String([]byte(s))
		Number([]byte(s))
		Truthy([]byte(s))
		Equal([]byte(s), []byte(`[1]`))
	}
}

// The expected texts are what Python's json.dumps(…, ensure_ascii=False) gives.
func TestEncode(t *testing.T) {
	floats := []struct {
		f    float64
		want string
	}{
		{0, "0.0"}, {math.Copysign(0, -1), "-0.0"}, {1, "1.0"}, {1735000000, "1735000000.0"}, {1e15, "1000000000000000.0"},
		{1e16, "1e+16"}, {123456789012345678, "1.2345678901234568e+17"}, {9999999999999998, "9999999999999998.0"},
		{0.0001, "0.0001"}, {0.00001, "1e-05"}, {1.5e-7, "1.5e-07"}, {1e100, "1e+100"}, {5e-324, "5e-324"},
		{1.7976931348623157e308, "1.7976931348623157e+308"}, {0.1, "0.1"}, {1788038049.444136, "1788038049.444136"},
		{math.NaN(), "NaN"}, {math.Inf(1), "Infinity"}, {math.Inf(-1), "-Infinity"}, {-2.5, "-2.5"},
	}
	for _, c := range floats {
		if got := string(EncodeFloat(c.f)); got != c.want {
			t.Errorf("EncodeFloat(%v) = %s, want %s", c.f, got, c.want)
		}
	}
	strs := []struct{ s, want string }{
		{"", `""`}, {"a\"b\\c/d", `"a\"b\\c/d"`}, {"\n\r\t\b\f", `"\n\r\t\b\f"`}, {"\x00\x1f\x0b\x7f", "\"\\u0000\\u001f\\u000b\x7f\""},
		{"日本<>&\u2028\u2029", "\"日本<>&\u2028\u2029\""}, {"\xff\xed\xa0\x80é", "\"\ufffd\ufffd\ufffd\ufffdé\""}, {"😀", `"😀"`},
	}
	for _, c := range strs {
		if got := string(EncodeString(c.s)); got != c.want {
			t.Errorf("EncodeString(%q) = %s, want %s", c.s, got, c.want)
		}
	}
	if got := string(EncodeStrings([]string{"a", `"`})); got != `["a", "\""]` {
		t.Error(got)
	}
	if got := string(EncodeArray([][]byte{EncodeInt(-3), EncodeBool(true)})); got != `[-3, true]` {
		t.Error(got)
	}
}

func TestDecode(t *testing.T) {
	cases := []struct{ raw, want string }{
		{`""`, ""}, {`"a\n"`, "a\n"}, {`"\u0041\/\"\\\b\f\r\t"`, "A/\"\\\b\f\r\t"}, {`"\ud83d\ude00"`, "😀"},
		{`"\ud83d"`, "\ufffd"}, {`"\ud83dx"`, "\ufffdx"}, {`"\ud83d\ud83d\ude00"`, "\ufffd😀"}, {`"\ude00\ud83d"`, "\ufffd\ufffd"},
		{`"\ud83d\u0041"`, "\ufffdA"}, {`"日\n本"`, "日\n本"}, {`"\ud800\n"`, "\ufffd\n"}, {` "a" `, "a"},
	}
	for _, c := range cases {
		got, ok := String([]byte(c.raw))
		if !ok || got != c.want {
			t.Errorf("String(%s) = %q, %v", c.raw, got, ok)
		}
		n, newline := DecodedLen([]byte(c.raw))
		if n != len(c.want) || newline != strings.HasSuffix(c.want, "\n") {
			t.Errorf("DecodedLen(%s) = %d, %v", c.raw, n, newline)
		}
		if b, ok := AppendDecoded([]byte("x"), []byte(c.raw)); !ok || string(b) != "x"+c.want {
			t.Errorf("AppendDecoded(%s) = %q", c.raw, b)
		}
	}
	for _, raw := range []string{``, `1`, `"a`, `"a" "b"`, `"\q"`, `null`, `{}`} {
		if s, ok := String([]byte(raw)); ok {
			t.Errorf("String(%s) = %q", raw, s)
		}
	}
}

func TestNumbersAndTruth(t *testing.T) {
	nums := []struct {
		raw   string
		f     float64
		n     int64
		isInt bool
	}{
		{"1", 1, 1, true}, {"-0", 0, 0, true}, {"1.0", 1, 0, false}, {"1e2", 100, 0, false}, {"1e400", math.Inf(1), 0, false},
		{"-1e400", math.Inf(-1), 0, false}, {"Infinity", math.Inf(1), 0, false}, {"-Infinity", math.Inf(-1), 0, false},
		{"9223372036854775808", 9223372036854775808, 0, false}, {"9223372036854775807", 9223372036854775807, math.MaxInt64, true},
	}
	for _, c := range nums {
		f, ok := Number([]byte(c.raw))
		n, isInt := Int([]byte(c.raw))
		if !ok || f != c.f || isInt != c.isInt || isInt && n != c.n {
			t.Errorf("%s: Number %v %v, Int %d %v", c.raw, f, ok, n, isInt)
		}
	}
	if f, ok := Number([]byte("NaN")); !ok || !math.IsNaN(f) {
		t.Error("NaN is a number")
	}
	for _, raw := range []string{"", "true", "null", `"1"`, "[1]", "1x", "01", "--1"} {
		if f, ok := Number([]byte(raw)); ok {
			t.Errorf("Number(%s) = %v", raw, f)
		}
	}
	for raw, want := range map[string]bool{
		"": false, "null": false, "false": false, "0": false, "-0": false, "0.0": false, "-0e5": false, "1e-400": false,
		`""`: false, "[]": false, "[ ]": false, "{}": false, "{\n}": false, "true": true, "1": true, "NaN": true, "1e400": true,
		"123456789012345678901234567890": true, `" "`: true, `"\u0000"`: true, "[0]": true, `{"": 0}`: true, "-Infinity": true,
	} {
		if Truthy([]byte(raw)) != want {
			t.Errorf("Truthy(%s) is not %v", raw, want)
		}
	}
}

func TestObjectEdits(t *testing.T) {
	cases := []struct {
		name, in, want string
		edit           func(o *Object)
	}{
		{"replace", `{"a": 1, "b":2 ,"c": 1e400}`, `{"a": 1, "b":"x" ,"c": 1e400}`, func(o *Object) { o.Set("b", []byte(`"x"`)) }},
		{"same bytes", ` {"a":  NaN}`, ` {"a":  NaN}`, func(o *Object) { o.Set("a", []byte(`NaN`)) }},
		{"last duplicate", `{"a": 1, "a": 2}`, `{"a": 1, "a": 3}`, func(o *Object) { o.Set("a", []byte(`3`)) }},
		{"append", `{"a": 1}`, `{"a": 1, "b": null}`, func(o *Object) { o.Set("b", nil) }},
		{"append to empty", `{ }`, `{"b": 1}`, func(o *Object) { o.Set("b", []byte("1")) }},
		{"append dense", `{"a":1}`, `{"a":1,"b":2}`, func(o *Object) { o.Set("b", []byte("2")) }},
		{"append dense 2", `{"a":1,"b":2}`, `{"a":1,"b":2,"c":3}`, func(o *Object) { o.Set("c", []byte("3")) }},
		{"append indented", "{\n  \"a\": 1\n}\n", "{\n  \"a\": 1,\n  \"b\": 2\n}\n", func(o *Object) { o.Set("b", []byte("2")) }},
		{"append indented 2", "{\n  \"a\": 1,\n  \"b\": 2\n}", "{\n  \"a\": 1,\n  \"b\": 2,\n  \"c\": 3\n}", func(o *Object) { o.Set("c", []byte(" 3 ")) }},
		{"escaped key", `{"\u0061\n": 1}`, `{"\u0061\n": 2}`, func(o *Object) { o.Set("a\n", []byte("2")) }},
		{"invalid raw", `{"a": 1}`, `{"a": "}{"}`, func(o *Object) { o.Set("a", []byte("}{")) }},
		{"delete first", `{"a": 1, "b": 2}`, `{"b": 2}`, func(o *Object) { o.Delete("a") }},
		{"delete last", `{"a": 1, "b": 2 }`, `{"a": 1 }`, func(o *Object) { o.Delete("b") }},
		{"delete duplicates", `{"a": 1, "b": 2, "a": 3, "c": 4}`, `{"b": 2, "c": 4}`, func(o *Object) { o.Delete("a") }},
		{"delete all", "{\n  \"a\": 1\n}", `{}`, func(o *Object) { o.Delete("a") }},
		{"delete none", `{"a": 1}`, `{"a": 1}`, func(o *Object) { o.Delete("b") }},
		{"set all", `{"a": 1, "b": 2}`, `{"a": 5, "b": 2, "n": 4, "m": 1}`, func(o *Object) {
			o.SetAll([]Member{{"a", []byte("4")}, {"n", []byte("3")}, {"m", []byte("1")}, {"a", []byte("5")}, {"n", []byte("4")}})
		}},
	}
	for _, c := range cases {
		o, err := ParseObject([]byte(c.in))
		if err != nil {
			t.Fatal(c.name, err)
		}
		before := o.Clone()
		kept := o.Bytes()
		c.edit(o)
		if string(o.Bytes()) != c.want {
			t.Errorf("%s: %s, want %s", c.name, o.Bytes(), c.want)
		}
		if string(before.Bytes()) != c.in || string(kept) != c.in {
			t.Errorf("%s: the clone or the old text changed", c.name)
		}
		checkObject(t, o)
	}
	o := NewObject()
	o.Set("k", []byte("1"))
	if string(o.Bytes()) != `{"k": 1}` {
		t.Error(string(o.Bytes()))
	}
}

// checkObject compares an Object with one freshly parsed from its text.
func checkObject(t *testing.T, o *Object) {
	t.Helper()
	fresh, err := ParseObject(o.Bytes())
	if err != nil {
		t.Fatalf("%v in %q", err, o.Bytes())
	}
	if fresh.open != o.open || fresh.close != o.close || len(fresh.members) != len(o.members) {
		t.Fatalf("positions differ in %q", o.Bytes())
	}
	for i := range fresh.members {
		if fresh.members[i] != o.members[i] {
			t.Fatalf("member %d: %v, want %v in %q", i, o.members[i], fresh.members[i], o.Bytes())
		}
	}
}

func TestObjectReads(t *testing.T) {
	o, err := ParseObject([]byte(`{"s": "x\ud800", "n": 3, "f": 1.5, "t": [1], "z": 0, "s2": 1, "n": 4, "\ud800": 1, "\udbff": 2}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%q", o.Keys()); got != `["s" "n" "f" "t" "z" "s2" "\xed\xa0\x80" "\xed\xaf\xbf"]` {
		t.Error(got)
	}
	if o.Str("s") != "x\ufffd" || o.Str("n") != "" || o.Str("none") != "" || o.Len() != 9 || o.Has("q") {
		t.Error("strings")
	}
	if n, ok := o.Int("n"); n != 4 || !ok {
		t.Error("the last duplicate counts")
	}
	if _, ok := o.Int("f"); ok {
		t.Error("1.5 is no integer")
	}
	if f, ok := o.Float("f"); f != 1.5 || !ok || !o.Truthy("t") || o.Truthy("z") || o.Truthy("none") {
		t.Error("floats and truth")
	}
	// A key with half of a pair moves to another object as it is.
	to := NewObject()
	for k, v := range o.All() {
		to.Set(k, v)
	}
	if want := `{"s": "x\ud800", "n": 4, "f": 1.5, "t": [1], "z": 0, "s2": 1, "\ud800": 1, "\udbff": 2}`; string(to.Bytes()) != want {
		t.Errorf("%s", to.Bytes())
	}
	for _, bad := range []string{`[]`, `1`, ``, `{}x`, `{"a":1`, "\ufeff{}"} {
		if _, err := ParseObject([]byte(bad)); err == nil {
			t.Errorf("ParseObject(%q) succeeded", bad)
		}
	}
}

func TestWalkAndArray(t *testing.T) {
	var got []string
	err := Walk([]byte(`{"a":[1, 2] , "\u0062":"x","a":{}}`), func(k string, raw []byte) error {
		got = append(got, k+"="+string(raw))
		return nil
	})
	if s := strings.Join(got, ";"); err != nil || s != `a=[1, 2];b="x";a={}` {
		t.Error(s, err)
	}
	stop := errors.New("stop")
	if err := Walk([]byte(`{"a":1}`), func(string, []byte) error { return stop }); err != stop {
		t.Error(err)
	}
	elems, ok := Array([]byte(` [1, "a,]", [2,3] ,{} ] `))
	if !ok || fmt.Sprintf("%s", elems) != `[1 "a,]" [2,3] {}]` {
		t.Errorf("%s %v", elems, ok)
	}
	if e, ok := Array([]byte("[ ]")); !ok || len(e) != 0 {
		t.Error("empty array")
	}
	for _, bad := range []string{"", "{}", "[1", "[1,]", "[1 2]", "[]x", "[1]x", "[,]"} {
		if _, ok := Array([]byte(bad)); ok {
			t.Errorf("Array(%s)", bad)
		}
	}
}

func TestLayout(t *testing.T) {
	in := "{ \"a\" :[ ] , \"b\":{\n},\"c\":[1,{\"d\":\"x, : ]\"}, NaN ],\"e\": \"\\ud800\" } "
	if got, want := string(Compact([]byte(in))), `{"a": [], "b": {}, "c": [1, {"d": "x, : ]"}, NaN], "e": "\ud800"}`; got != want {
		t.Errorf("%s", got)
	}
	if CompactLen([]byte(in)) != len(Compact([]byte(in))) {
		t.Error("CompactLen")
	}
	want := "{\n.  \"a\": [],\n.  \"b\": {},\n.  \"c\": [\n.    1,\n.    {\n.      \"d\": \"x, : ]\"\n.    },\n.    NaN\n.  ],\n.  \"e\": \"\\ud800\"\n.}"
	if got := string(Indent([]byte(in), ".")); got != want {
		t.Errorf("%s", got)
	}
}

func TestIndentIsGoIndent(t *testing.T) {
	for _, in := range []string{`[]`, `{}`, `[[],[[]],{}]`, `{"a":{"b":[1,2,{"c":null}]},"d":[]}`, `1`, `"x"`, `[{}]`, `[1]`, `{"a":[{},[]]}`} {
		var want bytes.Buffer
		if err := json.Indent(&want, []byte(in), "", "  "); err != nil {
			t.Fatal(err)
		}
		if got := string(Indent([]byte(in), "")); got != want.String() {
			t.Errorf("%s:\n%s\n%s", in, got, want.String())
		}
	}
}

func TestEqual(t *testing.T) {
	cases := []struct {
		a, b string
		want bool
	}{
		{`1`, `1.0`, true}, {`1`, `2`, false}, {`0`, `-0`, true}, {`1e400`, `Infinity`, true}, {`NaN`, `NaN`, true}, {`NaN`, `1`, false},
		{`12345678901234567890`, `12345678901234567891`, false}, {`1e2`, `100`, true}, {`"a"`, `"\u0061"`, true}, {`"\ud800"`, `"\ud801"`, false},
		{`{"a":1,"b":2}`, `{"b": 2, "a": 1.0}`, true}, {`{"a":1,"a":2}`, `{"a":2}`, true}, {`{"a":1}`, `{"b":1}`, false}, {`{"a":1}`, `{"a":1,"b":1}`, false},
		{`[1,2]`, `[1, 2]`, true}, {`[1,2]`, `[2,1]`, false}, {`[1]`, `[1,1]`, false}, {`null`, ` null`, true}, {`null`, `false`, false},
		{`true`, `1`, false}, {`"1"`, `1`, false}, {`[]`, `{}`, false}, {`{}`, `{ }`, true}, {`{x`, `{y`, false},
	}
	for _, c := range cases {
		if Equal([]byte(c.a), []byte(c.b)) != c.want || Equal([]byte(c.b), []byte(c.a)) != c.want {
			t.Errorf("Equal(%s, %s) is not %v", c.a, c.b, c.want)
		}
	}
}

func TestLargeObjectUsesLastDuplicate(t *testing.T) {
	var b strings.Builder
	b.WriteString("{")
	for i := range 200 {
		fmt.Fprintf(&b, `"k%d": %d, `, i%150, i)
	}
	b.WriteString(`"end": 0}`)
	o, err := ParseObject([]byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := o.Int("k10"); n != 160 {
		t.Error("k10 is", n)
	}
	if len(o.Keys()) != 151 {
		t.Error(len(o.Keys()), "keys")
	}
	o.Set("k10", []byte("7"))
	o.Set("new", []byte("8"))
	o.Delete("k11")
	checkObject(t, o)
	if n, _ := o.Int("k10"); n != 7 || o.Has("k11") {
		t.Error("edits of a large object")
	}
}

func TestKindsAndIsX(t *testing.T) {
	for raw, want := range map[string]string{"null": "N", "{}": "O", " [1]": "A", `"x"`: "S", "-1": "#", "NaN": "#", "Infinity": "#", "true": "B", "false": "B"} {
		b := []byte(raw)
		got := ""
		for _, k := range []struct {
			is   bool
			name string
		}{{IsNull(b), "N"}, {IsObject(b), "O"}, {IsArray(b), "A"}, {IsString(b), "S"}, {IsNumber(b), "#"}, {IsBool(b), "B"}} {
			if k.is {
				got += k.name
			}
		}
		if got != want {
			t.Errorf("%s is %s, want %s", raw, got, want)
		}
	}
}

func TestCanonical(t *testing.T) {
	in := `{"\u00e9":"\u65e5\/\u0041\n\u001f\ud83d\ude00\ud800", "n":[1e400,1.50], "p":"日"}`
	want := `{"é": "日/A\n\u001f😀` + "\ufffd" + `", "n": [1e400, 1.50], "p": "日"}`
	if got := string(Canonical([]byte(in))); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
