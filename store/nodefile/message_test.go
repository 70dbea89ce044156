package nodefile

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

func TestFromMessage(t *testing.T) {
	cases := []struct{ name, in, want string }{
		{"user", `{"role":"user","content":"hi","custom":[1],"caller":"ROOT","session_id":"s","predecessor":"p","timestamp":1735000000}`,
			`{"id": "new", "created_at": 1735000000, "seq": 0, "role": "user", "name": "", "input": null, "output": "hi", "caller": "", "predecessor": "p", "reads": [], "metadata": {"custom": [1], "caller": "ROOT"}}`},
		{"user, extra does not overwrite", `{"id":"u","role":"user","content":null,"source":"web","extra":"{\"source\":\"x\",\"k\":1}","timestamp":0}`,
			`{"id": "u", "created_at": 5.0, "seq": 0, "role": "user", "name": "", "input": null, "output": "", "caller": "", "predecessor": null, "reads": [], "metadata": {"source": "web", "k": 1}}`},
		{"extra object, extra that is none", `{"id":"u","role":"user","extra":"plain"}`,
			`{"id": "u", "created_at": 5.0, "seq": 0, "role": "user", "name": "", "input": null, "output": "", "caller": "", "predecessor": null, "reads": [], "metadata": {"extra": "plain"}}`},
		{"tool", `{"id":"t","role":"tool","content":"out","predecessor":"a","function":"f","timestamp":1.5,"extra":"{\"tool_use\":{\"name\":\"read\",\"arguments\":{\"p\":\"日\"},\"tool_call_id\":\"c1\"},\"is_error\":false}"}`,
			`{"id": "t", "created_at": 1.5, "seq": 0, "role": "code", "name": "read", "input": {"p": "日"}, "output": "out", "caller": "a", "predecessor": null, "reads": [], "metadata": {"extra": {"is_error": false}, "tool_call_id": "c1"}}`},
		{"bare tool", `{"id":"t","role":"tool","content":{"k":1},"function":"f","caller":"x","predecessor":"a","status":"error"}`,
			`{"id": "t", "created_at": 5.0, "seq": 0, "role": "code", "name": "f", "input": {}, "output": {"k": 1}, "caller": "x", "predecessor": null, "reads": [], "metadata": {"status": "error", "tool_call_id": "t"}}`},
		{"tool, caller of the use wins", `{"id":"t","role":"tool","content":null,"caller":"x","extra":{"tool_use":{"caller":"y"}}}`,
			`{"id": "t", "created_at": 5.0, "seq": 0, "role": "code", "name": "", "input": {}, "output": null, "caller": "y", "predecessor": null, "reads": [], "metadata": {"tool_call_id": "t"}}`},
		{"assistant", `{"id":"r","role":"assistant","content":"yes","token_model":"m1","predecessor":"u","metadata":{"shadow":1},"status":"completed"}`,
			`{"id": "r", "created_at": 5.0, "seq": 0, "role": "llm", "name": "m1", "input": null, "output": "yes", "caller": "", "predecessor": "u", "reads": [], "metadata": {"metadata": {"shadow": 1}, "status": "completed"}}`},
		{"system", `{"id":"r","role":"system","content":"be short","predecessor":"u"}`,
			`{"id": "r", "created_at": 5.0, "seq": 0, "role": "llm", "name": "", "input": null, "output": "be short", "caller": "", "predecessor": "u", "reads": [], "metadata": {"role": "system"}}`},
		{"attach without caller", `{"id":"r","role":"assistant","content":"x","predecessor":"u","function":"attach"}`,
			`{"id": "r", "created_at": 5.0, "seq": 0, "role": "llm", "name": "", "input": null, "output": "x", "caller": "u", "predecessor": "u", "reads": [], "metadata": {"function": "attach"}}`},
		{"attach with caller", `{"id":"r","role":"assistant","content":"x","predecessor":"u","function":"attach","caller":"c"}`,
			`{"id": "r", "created_at": 5.0, "seq": 0, "role": "llm", "name": "", "input": null, "output": "x", "caller": "c", "predecessor": "u", "reads": [], "metadata": {"function": "attach", "caller": "c"}}`},
	}
	for _, c := range cases {
		msg, err := jsonedit.ParseObject([]byte(c.in))
		if err != nil {
			t.Fatal(err)
		}
		s, err := FromMessage(msg, 5, func() string { return "new" })
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if d := cmp.Diff(c.want, string(s.Encode())); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
		if string(msg.Bytes()) != c.in {
			t.Errorf("%s: the message changed", c.name)
		}
	}
}

func TestFromMessageRefuses(t *testing.T) {
	for _, in := range []string{`{}`, `{"role":5}`, `{"role":""}`, `{"role":"user","id":7}`, `{"role":"user","id":"a/b"}`, `{"role":"user","id":".."}`, `{"role":"user","predecessor":[1]}`,
		`{"role":"user","timestamp":"now"}`, `{"role":"user","timestamp":NaN}`, `{"role":"user","timestamp":1e400}`, `{"role":"tool","caller":5}`, `{"role":"assistant","token_model":{"a":1}}`} {
		msg, err := jsonedit.ParseObject([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		if s, err := FromMessage(msg, 5, func() string { return "new" }); err == nil {
			t.Errorf("%s: %s", in, s.Encode())
		}
	}
}

func TestToMessage(t *testing.T) {
	cases := []struct{ name, in, want string }{
		{"user", `{"id": "a", "created_at": 7, "role": "user", "output": "hi", "caller": null, "predecessor": null, "metadata": {"source": "web"}}`,
			`{"id": "a", "session_id": "s", "role": "user", "content": "hi", "predecessor": "", "caller": "", "timestamp": 7, "source": "web", "status": "done"}`},
		{"metadata wins", `{"id": "a", "created_at": 7.5, "role": "user", "output": "hi", "caller": "ROOT", "metadata": {"status": "queued", "timestamp": 1, "caller": "x", "zz":[1,2]}}`,
			`{"id": "a", "session_id": "s", "role": "user", "content": "hi", "predecessor": "", "caller": "x", "timestamp": 1, "status": "queued", "zz": [1, 2]}`},
		{"reply keeps its caller", `{"id": "a", "created_at": 1.0, "role": "llm", "name": "m", "output": null, "caller": "c", "metadata": {"caller": "x", "role": "system", "content": "other"}}`,
			`{"id": "a", "session_id": "s", "role": "system", "content": "other", "predecessor": "", "caller": "c", "timestamp": 1.0, "token_model": "m", "status": "done"}`},
		{"tool", `{"id": "a", "created_at": 1.0, "role": "code", "name": "f", "input": null, "output": {"é": [1]}, "caller": "c", "predecessor": "p", "metadata": {"extra": {"e": 1, "tool_use": 2}, "tool_call_id": "c1", "d": 0.5}}`,
			`{"id": "a", "session_id": "s", "role": "tool", "content": "{\"é\": [1]}", "predecessor": "p", "caller": "c", "timestamp": 1.0, "function": "f", "extra": "{\"tool_use\": {\"name\": \"f\", \"arguments\": {}, \"caller\": \"c\", \"tool_call_id\": \"c1\"}, \"e\": 1}", "d": 0.5, "status": "done"}`},
		{"no id", `{"created_at": 7, "role": "user", "output": "hi"}`,
			`{"id": "n", "session_id": "s", "role": "user", "content": "hi", "predecessor": "", "caller": "", "timestamp": 7, "status": "done"}`},
		{"tool without output", `{"id": "a", "role": "code"}`,
			`{"id": "a", "session_id": "s", "role": "tool", "content": "null", "predecessor": "", "caller": "", "timestamp": 0.0, "function": "", "extra": "{\"tool_use\": {\"name\": \"\", \"arguments\": {}, \"caller\": \"\"}}", "status": "done"}`},
	}
	for _, c := range cases {
		got, err := ToMessage([]byte(c.in), "s", "n")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if d := cmp.Diff(c.want, string(got)); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}
