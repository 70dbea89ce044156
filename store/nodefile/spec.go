package nodefile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// Spec is a node that is to be written for the first time. Raw values may be
// laid out in any way; Encode writes them as the peer would.
type Spec struct {
	ID        string
	CreatedAt float64 // seconds since the epoch
	// CreatedRaw, when not nil, is written in place of CreatedAt: an integer
	// stays one (reference 2.1).
	CreatedRaw  []byte
	Seq         int64
	Role        string // "user", "llm", "code"
	Name        string
	Input       []byte // raw JSON, nil for null
	Output      []byte // raw JSON, nil for null
	Caller      string
	Predecessor string // "" for none, written as null
	Reads       []string
	Metadata    *jsonedit.Object // nil for {}
}

// Encode returns the history file: the eleven fields in the peer's order on one
// line, without a final newline (reference 2.1, 2.5).
func (s Spec) Encode() []byte {
	created := jsonedit.EncodeFloat(s.CreatedAt)
	if s.CreatedRaw != nil {
		created = s.CreatedRaw
	}
	var predecessor []byte
	if s.Predecessor != "" {
		predecessor = jsonedit.EncodeString(s.Predecessor)
	}
	metadata := []byte("{}")
	if s.Metadata != nil {
		metadata = s.Metadata.Bytes()
	}
	o := jsonedit.NewObject()
	o.SetAll([]jsonedit.Member{
		{Key: "id", Raw: jsonedit.EncodeString(s.ID)},
		{Key: "created_at", Raw: created},
		{Key: "seq", Raw: jsonedit.EncodeInt(s.Seq)},
		{Key: "role", Raw: jsonedit.EncodeString(s.Role)},
		{Key: "name", Raw: jsonedit.EncodeString(s.Name)},
		{Key: "input", Raw: jsonedit.Canonical(s.Input)},
		{Key: "output", Raw: jsonedit.Canonical(s.Output)},
		{Key: "caller", Raw: jsonedit.EncodeString(s.Caller)},
		{Key: "predecessor", Raw: predecessor},
		{Key: "reads", Raw: jsonedit.EncodeStrings(s.Reads)},
		{Key: "metadata", Raw: jsonedit.Canonical(metadata)},
	})
	return o.Bytes()
}

// Node returns the graph node that the encoded file would be read as.
func (s Spec) Node() dag.Node {
	p, _ := Parse(s.Encode()) // Encode writes an object with string ids
	return p.Node
}

// SetOutput changes a history file (reference 6.9): output, raw JSON, replaces
// the content unless it is nil; metadata's raw values are set one by one, keys
// that it does not name stay. Every other byte is kept. An error means that raw
// is no JSON object or that a value is no JSON.
func SetOutput(raw []byte, output []byte, metadata map[string][]byte) ([]byte, error) {
	o, err := jsonedit.ParseObject(raw)
	if err != nil {
		return nil, fmt.Errorf("history file: %w", err)
	}
	if output != nil {
		if err := jsonedit.Check(output); err != nil {
			return nil, fmt.Errorf("new output: %w", err)
		}
		o.Set("output", jsonedit.Canonical(output))
	}
	if len(metadata) == 0 {
		return o.Bytes(), nil
	}
	meta, err := mergeMetadata(o, metadata)
	if err != nil {
		return nil, err
	}
	o.Set("metadata", meta)
	return o.Bytes(), nil
}

// mergeMetadata returns the file's metadata with values set; what is there but
// no object counts as empty, as on load.
func mergeMetadata(o *jsonedit.Object, values map[string][]byte) ([]byte, error) {
	meta := jsonedit.NewObject()
	if old, ok := o.Get("metadata"); ok && jsonedit.IsObject(old) {
		var err error
		if meta, err = jsonedit.ParseObject(old); err != nil {
			return nil, fmt.Errorf("history file: metadata: %w", err)
		}
	}
	members := make([]jsonedit.Member, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := jsonedit.Check(values[key]); err != nil {
			return nil, fmt.Errorf("new metadata %q: %w", key, err)
		}
		members = append(members, jsonedit.Member{Key: key, Raw: jsonedit.Canonical(values[key])})
	}
	meta.SetAll(members)
	return meta.Bytes(), nil
}
