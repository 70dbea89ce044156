package nodefile

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

const userFile = `{"id": "aaaa", "created_at": 1735000000.5, "seq": 3, "role": "user", "name": "", "input": null, "output": "hi\nthere", "caller": "ROOT", "predecessor": "pppp", "reads": [], "metadata": {"status": "queued", "source": "web"}}`

func TestParse(t *testing.T) {
	p, err := Parse([]byte(userFile))
	if err != nil {
		t.Fatal(err)
	}
	want := Parsed{Node: dag.Node{ID: "aaaa", Seq: 3, Role: "user", Caller: "ROOT", Predecessor: "pppp", CreatedAt: 1735000000.5, Status: "queued"}, TextLen: 9, IsText: true}
	if d := cmp.Diff(want, p); d != "" {
		t.Error(d)
	}
}

func TestParseDefaults(t *testing.T) {
	null := dag.Node{ID: "a"}
	cases := []struct {
		name, in string
		want     Parsed
	}{
		{"only an id", `{"id":"a"}`, Parsed{Node: null, TextLen: 1, IsText: true, SeqMissing: true, TimeMissing: true}},
		{"nulls", `{"id":"a","created_at":null,"seq":null,"role":null,"name":null,"input":null,"output":null,"caller":null,"predecessor":null,"reads":null,"metadata":null}`,
			Parsed{Node: null, TextLen: 1, IsText: true, SeqMissing: true, TimeMissing: true}},
		{"empty", `{}`, Parsed{TextLen: 1, IsText: true, SeqMissing: true, IDMissing: true, TimeMissing: true}},
		{"negative seq", `{"id":"a","seq":-1,"created_at":1}`, Parsed{Node: dag.Node{ID: "a", CreatedAt: 1}, TextLen: 1, IsText: true, SeqMissing: true}},
		{"float seq", `{"id":"a","seq":1.0,"created_at":1}`, Parsed{Node: dag.Node{ID: "a", CreatedAt: 1}, TextLen: 1, IsText: true, SeqMissing: true}},
		{"huge seq", `{"id":"a","seq":99999999999999999999,"created_at":1}`, Parsed{Node: dag.Node{ID: "a", CreatedAt: 1}, TextLen: 1, IsText: true, SeqMissing: true}},
		{"duplicates", `{"id":"x","id":"a","seq":1,"seq":2,"created_at":1,"output":"long","output":"s"}`, Parsed{Node: dag.Node{ID: "a", Seq: 2, CreatedAt: 1}, TextLen: 2, IsText: true}},
		{"false edges", `{"id":"a","seq":0,"created_at":1,"caller":0,"predecessor":false}`, Parsed{Node: dag.Node{ID: "a", CreatedAt: 1}, TextLen: 1, IsText: true}},
		{"unknown members, odd types", `{"zz":[{}],"id":"\u0061","seq":0,"created_at":1,"role":5,"name":[],"metadata":[1]}`, Parsed{Node: dag.Node{ID: "a", CreatedAt: 1}, TextLen: 1, IsText: true}},
		{"object output", `{"id":"a","seq":0,"created_at":1,"output":{"k":[1,2]}}`, Parsed{Node: dag.Node{ID: "a", CreatedAt: 1}, TextLen: 14}},
	}
	for _, c := range cases {
		p, err := Parse([]byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if d := cmp.Diff(c.want, p); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, in := range []string{``, `[]`, `"x"`, `{"id":"a"`, `{"id":"a"}x`, "{\"id\":\"\xff\"}", "\ufeff{}", `{"id":5}`, `{"id":["a"]}`, `{"id":"a","caller":5}`,
		`{"id":"a","predecessor":{"x":1}}`, strings.Repeat(`{"id":`, 1<<17)} {
		if p, err := Parse([]byte(in)); err == nil {
			t.Errorf("Parse(%.40q) = %v", in, p)
		}
		if _, err := ToMessage([]byte(in), "s", "n"); err == nil {
			t.Errorf("ToMessage(%.40q) succeeded", in)
		}
	}
}

func TestParseFlags(t *testing.T) {
	cases := []struct {
		in   string
		want dag.Flags
	}{
		{`"input": {}`, dag.HasInput}, {`"input": 0`, dag.HasInput}, {`"input": null`, 0},
		{`"metadata": {"display": "root"}`, dag.DisplayRoot}, {`"metadata": {"display": "run\u0074ime"}`, dag.DisplayRuntime}, {`"metadata": {"display": "card"}`, 0},
		{`"metadata": {"structural": true}`, dag.Structural}, {`"metadata": {"structural": 0}`, 0},
		{`"metadata": {"rewound": 1}`, dag.Rewound}, {`"metadata": {"rewound": false}`, 0},
		{`"metadata": {"spawn_branch_root": true}`, dag.SpawnRoot}, {`"metadata": {"source": "agent_spawn"}`, dag.SpawnRoot}, {`"metadata": {"source": "web"}`, 0},
		{`"metadata": {"covers_ids": ["a"]}`, dag.Covers | dag.CoversSome}, {`"metadata": {"covers_ids": []}`, dag.Covers}, {`"metadata": {"covers_ids": null}`, 0},
		{`"metadata": {"function": "attach"}`, dag.Attach | dag.Function}, {`"metadata": {"function": "f"}`, dag.Function}, {`"metadata": {"function": ""}`, 0},
		{`"metadata": {"structural": true, "structural": false}`, 0}, {`"metadata": {"x": {"structural": true}}`, 0},
	}
	for _, c := range cases {
		p, err := Parse([]byte(`{"id": "a", ` + c.in + `}`))
		if err != nil || p.Node.Flags != c.want {
			t.Errorf("%s: flags %b, want %b (%v)", c.in, p.Node.Flags, c.want, err)
		}
	}
}

func TestText(t *testing.T) {
	for output, want := range map[string]string{
		`null`: "\n", `""`: "\n", `"\n"`: "\n", `"a"`: "a\n", `"a\n"`: "a\n", `"a\n\n"`: "a\n\n", `"a\r"`: "a\r\n", `"\\n"`: "\\n\n",
		`"\ud83d\ude00"`: "😀\n", `"\ud83d"`: "\ufffd\n", `{"b":1,"a":["\u00e9\ud800"]}`: "{\"b\": 1, \"a\": [\"é\ufffd\"]}\n", `12`: "12\n", `[]`: "[]\n", `true`: "true\n",
	} {
		raw := []byte(`{"id": "a", "output": ` + output + `}`)
		text, err := Text(raw)
		p, perr := Parse(raw)
		if err != nil || perr != nil || string(text) != want || p.TextLen != int64(len(want)) {
			t.Errorf("%s: %q (length %d), want %q", output, text, p.TextLen, want)
		}
	}
	if text, err := Text([]byte(`{}`)); err != nil || string(text) != "\n" {
		t.Errorf("%q %v", text, err)
	}
	if _, err := Text([]byte(`{"output": "x`)); err == nil {
		t.Error("Text of half a file")
	}
}

func TestNames(t *testing.T) {
	cases := []struct {
		seq      int64
		role, id string
		want     string
	}{
		{0, "user", "a-b", "0000-u-a-b.json"}, {41, "llm", "x", "0041-l-x.json"}, {12345, "code", "x", "12345-c-x.json"}, {1, "", "x", "0001-x-x.json"}, {2, "役", "x", "0002-役-x.json"},
	}
	for _, c := range cases {
		name := FileName(c.seq, c.role, c.id)
		if name != c.want {
			t.Errorf("FileName = %q, want %q", name, c.want)
		}
		seq, letter, id, ok := ParseName(name)
		if ascii := c.role != "役"; ok != ascii || ok && (seq != c.seq || letter != name[strings.Index(name, "-")+1] || id != c.id) {
			t.Errorf("ParseName(%q) = %d %c %q %v", name, seq, letter, id, ok)
		}
	}
	for _, bad := range []string{"", ".json", "0001-u-.json", "0001-u-a", "u-a.json", "0001-uu-a.json", "-1-u-a.json", "99999999999999999999-u-a.json", "0001u-a.json", "0001-u-a.JSON"} {
		if _, _, _, ok := ParseName(bad); ok {
			t.Errorf("ParseName(%q)", bad)
		}
	}
	if Stem("0001-u-a.json") != "0001-u-a" {
		t.Error("Stem")
	}
	for id, want := range map[string]bool{"a": true, "ROOT": true, "a b": true, "日": true, ".a": true, "": false, ".": false, "..": false, "a/b": false, `a\b`: false,
		"a\x00": false, "a\n": false, "\x7f": false, "\xff": false, strings.Repeat("a", 200): true, strings.Repeat("a", 201): false} {
		if ValidID(id) != want {
			t.Errorf("ValidID(%q) is not %v", id, want)
		}
	}
}

func TestLoadOrder(t *testing.T) {
	want := []string{".0001-u-a.json", "-1-u-a.json", "0000-u-a.json", "0001-l-a.json", "0001-u-a.json", "1-z-a.json", "0002-u-a.json", "9999-u-a.json", "10000-u-a.json",
		"10001-u-a.json", "99999999999999999999999-u.json", "README.json", "a.json"}
	slices.SortFunc(want[:2], strings.Compare)
	for seed := range uint64(20) {
		got := slices.Clone(want)
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		slices.SortFunc(got, func(a, b string) int {
			switch {
			case Less(a, b):
				return -1
			case Less(b, a):
				return 1
			}
			return 0
		})
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	}
}

func TestEncode(t *testing.T) {
	meta := jsonedit.NewObject()
	meta.Set("tool_call_id", []byte(`"c1"`))
	meta.Set("extra", []byte(`{"a":[1,NaN],"\u00e9":"\ud800"}`))
	s := Spec{ID: "x_t_1", CreatedAt: 1735000000, Seq: 12, Role: "code", Name: "read_file", Input: []byte(`{"p":"日\u672c"}`), Output: []byte(`"a\/b\u0001"`),
		Caller: "x", Reads: []string{"r1", "r2"}, Metadata: meta}
	want := `{"id": "x_t_1", "created_at": 1735000000.0, "seq": 12, "role": "code", "name": "read_file", "input": {"p": "日本"}, "output": "a/b\u0001", "caller": "x", ` +
		`"predecessor": null, "reads": ["r1", "r2"], "metadata": {"tool_call_id": "c1", "extra": {"a": [1, NaN], "é": "` + "\ufffd" + `"}}}`
	if d := cmp.Diff(want, string(s.Encode())); d != "" {
		t.Error(d)
	}
	s = Spec{ID: "a", CreatedRaw: []byte("1735000000"), Role: "user", Predecessor: "p"}
	want = `{"id": "a", "created_at": 1735000000, "seq": 0, "role": "user", "name": "", "input": null, "output": null, "caller": "", "predecessor": "p", "reads": [], "metadata": {}}`
	if d := cmp.Diff(want, string(s.Encode())); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(dag.Node{ID: "a", Role: "user", Predecessor: "p", CreatedAt: 1735000000}, s.Node()); d != "" {
		t.Error(d)
	}
}

func TestSetOutput(t *testing.T) {
	in := `{"zz":1e400,"output" :"old",  "metadata":{"a": 1,"status":"running", "big":123456789012345678901},"t":"\ud800"} `
	cases := []struct {
		output string
		meta   map[string][]byte
		want   string
	}{
		{`"new\u00e9"`, nil, strings.Replace(in, `"old"`, `"newé"`, 1)},
		{``, map[string][]byte{"status": []byte(`"done"`)}, strings.Replace(in, `"running"`, `"done"`, 1)},
		{`{"k":1}`, map[string][]byte{"b": []byte(`1`), "a": []byte(`2`)}, strings.NewReplacer(`"old"`, `{"k": 1}`, `"a": 1,`, `"a": 2,`, `678901}`, `678901, "b":1}`).Replace(in)},
		{``, nil, in},
		{`"old"`, map[string][]byte{"a": []byte(`1`)}, in},
	}
	for _, c := range cases {
		var output []byte
		if c.output != "" {
			output = []byte(c.output)
		}
		got, err := SetOutput([]byte(in), output, c.meta)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Replace(c.want, `, "b":1}`, `, "b":1}`, 1)
		if d := cmp.Diff(want, string(got)); d != "" {
			t.Errorf("%s %s: %s", c.output, c.meta, d)
		}
	}
	got, err := SetOutput([]byte(`{"id": "a", "metadata": null}`), nil, map[string][]byte{"k": []byte("1")})
	if err != nil || string(got) != `{"id": "a", "metadata": {"k": 1}}` {
		t.Errorf("%s %v", got, err)
	}
	for _, bad := range []struct{ raw, output, meta string }{{`[]`, `""`, `1`}, {`{}`, `x`, `1`}, {`{}`, `""`, `}`}} {
		if _, err := SetOutput([]byte(bad.raw), []byte(bad.output), map[string][]byte{"m": []byte(bad.meta)}); err == nil {
			t.Errorf("SetOutput(%v) succeeded", bad)
		}
	}
}

// FuzzText: the length that Parse reports is the length of the text, and the
// text is valid UTF-8 that ends in a newline.
func FuzzText(f *testing.F) {
	f.Add([]byte(userFile))
	for _, s := range []string{`"\ud83d\ude00\n"`, `{"a":"\u0041"}`, `"\\"`, `1e400`, `"\ud800"`} {
		f.Add([]byte(`{"output":` + s + `}`))
	}
	f.Fuzz(func(t *testing.T, raw []byte) { checkText(t, raw) })
}

func checkText(t *testing.T, raw []byte) {
	t.Helper()
	p, err := Parse(raw)
	text, terr := Text(raw)
	if err != nil {
		return
	}
	if terr != nil || int64(len(text)) != p.TextLen || !bytes.HasSuffix(text, []byte("\n")) || !bytes.Equal(bytes.ToValidUTF8(text, nil), text) {
		t.Fatalf("%q: text %q, length %d, %v", raw, text, p.TextLen, terr)
	}
	msg, err := ToMessage(raw, "s", "n")
	if err != nil || jsonedit.Check(msg) != nil {
		t.Fatalf("%q: message %q, %v", raw, msg, err)
	}
	out, err := SetOutput(raw, []byte(`"new"`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Text(out); err != nil || string(again) != "new\n" {
		t.Fatalf("%q after SetOutput: %q %v", out, again, err)
	}
}

func TestRandomTexts(t *testing.T) {
	pieces := []string{"a", "日", `\n`, `\\`, `\"`, `\u0041`, `\ud83d`, `\ude00`, `\ud83d\ude00`, `\u000a`, `\u00e9`, " ", `\/`}
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var b strings.Builder
		for range rng.IntN(12) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}
		s := `"` + b.String() + `"`
		if rng.IntN(3) == 0 {
			s = fmt.Sprintf(`{%s:[%s, %d]}`, s, s, rng.Int())
		}
		checkText(t, []byte(`{"id":"a","output": `+s+`}`))
	}
}

func BenchmarkParse(b *testing.B) {
	body := strings.Repeat(`Some words of a reply, as long as one line is.\n`, 25)
	raw := []byte(`{"id": "0123456789ab_reply", "created_at": 1735000000.123456, "seq": 41, "role": "llm", "name": "demo-large", "input": null, "output": "` + body +
		`", "caller": "", "predecessor": "0123456789ab", "reads": [], "metadata": {"source": "web", "status": "completed", "worker_id": "4242-ab12cd", "started_at": 1788038338.7856011, "input_tokens": 2450}}`)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(raw); err != nil {
			b.Fatal(err)
		}
	}
}
