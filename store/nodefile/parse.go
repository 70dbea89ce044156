package nodefile

import (
	"fmt"
	"strings"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// Parsed is what Parse finds in a history file.
type Parsed struct {
	Node dag.Node
	// TextLen is len(Text(raw)), the final newline included.
	TextLen int64
	// IsText is set when the output is a string, or null, which shows as an
	// empty one.
	IsText bool
	// SeqMissing is set when there is no usable seq (absent, null, negative,
	// not an integer): the reader assigns the next one (reference 2.5).
	SeqMissing bool
	// IDMissing is set when id is absent or null: Node.ID is "" then, and the
	// reader takes one from the file name.
	IDMissing bool
	// TimeMissing is set when created_at is absent or no number.
	TimeMissing bool
}

// Parse reads a history file by the peer's rules (reference 2.5): null is the
// default, unknown keys are ignored, of duplicate keys the last one counts. It
// returns an error when raw is not one JSON object in UTF-8, or when an id is
// something else than a string.
func Parse(raw []byte) (Parsed, error) {
	var f fields
	if err := jsonedit.WalkBytes(raw, f.take); err != nil {
		return Parsed{}, fmt.Errorf("history file: %w", err)
	}
	if err := f.checkIDs(); err != nil {
		return Parsed{}, fmt.Errorf("history file: %w", err)
	}
	var m metaFields
	if jsonedit.IsObject(f.metadata) {
		if err := jsonedit.WalkBytes(f.metadata, m.take); err != nil {
			return Parsed{}, fmt.Errorf("history file: metadata: %w", err)
		}
	}
	p := Parsed{IDMissing: isNull(f.id)}
	p.Node.ID, p.Node.Role, p.Node.Name, p.Node.Caller, p.Node.Predecessor, p.Node.Status =
		decode6(f.id, f.role, f.name, f.caller, f.predecessor, m.status)
	seq, ok := jsonedit.Int(f.seq)
	if p.SeqMissing = !ok || seq < 0; !p.SeqMissing {
		p.Node.Seq = seq
	}
	p.Node.CreatedAt, ok = jsonedit.Number(f.createdAt)
	p.TimeMissing = !ok
	p.Node.Flags = m.flags()
	if !isNull(f.input) {
		p.Node.Flags |= dag.HasInput
	}
	p.TextLen, p.IsText = textLen(f.output)
	return p, nil
}

// isNull reports whether a member is absent or null.
func isNull(raw []byte) bool { return len(raw) == 0 || jsonedit.IsNull(raw) }

// fields are the raw members of a history file, nil for an absent one.
type fields struct {
	id, createdAt, seq, role, name, input, output, caller, predecessor, metadata []byte
}

func (f *fields) take(key, raw []byte) error {
	switch string(key) {
	case "id":
		f.id = raw
	case "created_at":
		f.createdAt = raw
	case "seq":
		f.seq = raw
	case "role":
		f.role = raw
	case "name":
		f.name = raw
	case "input":
		f.input = raw
	case "output":
		f.output = raw
	case "caller":
		f.caller = raw
	case "predecessor":
		f.predecessor = raw
	case "metadata":
		f.metadata = raw
	}
	return nil
}

// checkIDs refuses what cannot be an edge. What is false in Python is no edge
// there either.
func (f *fields) checkIDs() error {
	if !isNull(f.id) && !jsonedit.IsString(f.id) {
		return fmt.Errorf("id is not a string")
	}
	if jsonedit.Truthy(f.caller) && !jsonedit.IsString(f.caller) {
		return fmt.Errorf("caller is not a string")
	}
	if jsonedit.Truthy(f.predecessor) && !jsonedit.IsString(f.predecessor) {
		return fmt.Errorf("predecessor is not a string")
	}
	return nil
}

// metaFields are the members of metadata that the graph looks at.
type metaFields struct {
	status, display, structural, rewound, spawn, source, covers, function, role []byte
}

func (m *metaFields) take(key, raw []byte) error {
	switch string(key) {
	case "status":
		m.status = raw
	case "display":
		m.display = raw
	case "structural":
		m.structural = raw
	case "rewound":
		m.rewound = raw
	case "spawn_branch_root":
		m.spawn = raw
	case "source":
		m.source = raw
	case "covers_ids":
		m.covers = raw
	case "function":
		m.function = raw
	case "role":
		m.role = raw
	}
	return nil
}

func (m *metaFields) flags() dag.Flags {
	var fl dag.Flags
	for _, c := range [...]struct {
		set  bool
		flag dag.Flags
	}{
		{isText(m.display, "root"), dag.DisplayRoot},
		{isText(m.display, "runtime"), dag.DisplayRuntime},
		{jsonedit.Truthy(m.structural), dag.Structural},
		{jsonedit.Truthy(m.rewound), dag.Rewound},
		{jsonedit.Truthy(m.spawn) || isText(m.source, "agent_spawn"), dag.SpawnRoot},
		{!isNull(m.covers), dag.Covers},
		{jsonedit.Truthy(m.covers), dag.CoversSome},
		{isText(m.function, "attach"), dag.Attach},
		{jsonedit.Truthy(m.function), dag.Function},
		{isText(m.role, "system"), dag.System},
	} {
		if c.set {
			fl |= c.flag
		}
	}
	return fl
}

// isText reports whether raw is the string want, without allocating.
func isText(raw []byte, want string) bool {
	if len(raw) < len(want)+2 {
		return false
	}
	var buf [64]byte
	got, ok := jsonedit.AppendDecoded(buf[:0], raw)
	return ok && string(got) == want
}

// decode6 decodes strings into one allocation; what is no string is "".
func decode6(r1, r2, r3, r4, r5, r6 []byte) (s1, s2, s3, s4, s5, s6 string) {
	var buf [256]byte
	var ends [6]int
	text := buf[:0]
	for i, raw := range [...][]byte{r1, r2, r3, r4, r5, r6} {
		text, _ = jsonedit.AppendDecoded(text, raw)
		ends[i] = len(text)
	}
	all := string(text)
	cut := func(i int) string {
		if i == 0 {
			return all[:ends[0]]
		}
		return all[ends[i-1]:ends[i]]
	}
	return cut(0), role(cut(1)), cut(2), cut(3), cut(4), cut(5)
}

// role returns the constant for a role that is known, so that the common ones
// are equal by pointer.
func role(s string) string {
	for _, r := range [...]string{roleUser, roleLLM, roleCode} {
		if s == r {
			return r
		}
	}
	return strings.Clone(s)
}

// The roles of nodes (reference 2.5).
const (
	roleUser = "user"
	roleLLM  = "llm"
	roleCode = "code"
)
