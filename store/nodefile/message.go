package nodefile

import (
	"fmt"
	"math"

	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// attachFunction is the metadata.function of an attach pointer (reference 2.6).
const attachFunction = "attach"

// FromMessage turns a message dict into the node that the peer would store for
// it (reference 2.11). now, in seconds since the epoch, is the time of a message
// without a timestamp, newID makes the id of one without an id. Seq is left to
// the caller. The error says which member is unusable; nothing is dropped
// silently but session_id, which the store knows.
func FromMessage(msg *jsonedit.Object, now float64, newID func() string) (Spec, error) {
	s := Spec{Metadata: jsonedit.NewObject(), CreatedAt: now}
	m := reader{msg: msg}
	s.ID = m.text("id")
	role := m.text("role")
	s.Predecessor = m.text("predecessor")
	if m.err == nil {
		m.err = s.setTime(msg)
	}
	if m.err == nil && role == "" {
		m.err = fmt.Errorf("message: role is missing")
	}
	if m.err != nil {
		return Spec{}, m.err
	}
	if s.ID == "" {
		s.ID = newID()
	}
	if !ValidID(s.ID) {
		return Spec{}, fmt.Errorf("message: id %q cannot be part of a file name", s.ID)
	}
	switch role {
	case "user":
		s.fromUser(&m)
	case "tool":
		s.fromTool(&m)
	default:
		s.fromReply(&m, role)
	}
	if m.err != nil {
		return Spec{}, m.err
	}
	return s, nil
}

// reader reads a message's members and remembers the first that has the wrong
// type.
type reader struct {
	msg *jsonedit.Object
	err error
}

// text returns a string member, "" when it is absent or false in Python.
func (m *reader) text(key string) string {
	raw, _ := m.msg.Get(key)
	if !jsonedit.Truthy(raw) {
		return ""
	}
	s, ok := jsonedit.String(raw)
	if !ok && m.err == nil {
		m.err = fmt.Errorf("message: %s is not a string", key)
	}
	return s
}

// content returns the raw content, an empty string for what is false in Python.
func (m *reader) content() []byte {
	raw, _ := m.msg.Get("content")
	if !jsonedit.Truthy(raw) {
		return []byte(`""`)
	}
	return raw
}

// setTime takes the message's timestamp unless it is missing or zero.
func (s *Spec) setTime(msg *jsonedit.Object) error {
	raw, _ := msg.Get("timestamp")
	if !jsonedit.Truthy(raw) {
		return nil
	}
	t, ok := jsonedit.Number(raw)
	if !ok || math.IsNaN(t) || math.IsInf(t, 0) {
		return fmt.Errorf("message: timestamp is not a number of seconds")
	}
	s.CreatedAt = t
	if _, ok := jsonedit.Int(raw); ok {
		s.CreatedRaw = raw
	}
	return nil
}

func (s *Spec) fromUser(m *reader) {
	s.Role, s.Output = roleUser, m.content()
	s.addMetadata(m.msg)
	s.mergeExtra(m.msg)
}

func (s *Spec) fromReply(m *reader, role string) {
	s.Role, s.Output = roleLLM, m.content()
	s.Name = m.text("token_model")
	s.Caller = m.text("caller")
	if s.Caller == "" && m.msg.Str("function") == attachFunction {
		s.Caller = s.Predecessor
	}
	s.addMetadata(m.msg, "token_model")
	s.mergeExtra(m.msg)
	if role == "system" {
		s.Metadata.Set("role", jsonedit.EncodeString(role))
	}
}

func (s *Spec) fromTool(m *reader) {
	extra, ok := extraOf(m.msg)
	if !ok {
		extra = jsonedit.NewObject()
	}
	rawUse, _ := extra.Get("tool_use")
	use, err := jsonedit.ParseObject(rawUse)
	if err != nil {
		use = jsonedit.NewObject()
	}
	s.Role = roleCode
	s.Output, _ = m.msg.Get("content")
	if s.Output == nil {
		s.Output = []byte(`""`)
	}
	s.Name = firstOf(use.Str("name"), m.text("function"))
	s.Input = []byte("{}")
	if args, _ := use.Get("arguments"); jsonedit.Truthy(args) {
		s.Input = args
	}
	s.Caller = firstOf(use.Str("caller"), m.text("caller"), s.Predecessor)
	s.Predecessor = "" // a call hangs on its caller, not in the chain
	s.addMetadata(m.msg, "function", "caller")
	s.keepToolExtra(m.msg, extra, ok)
	id := firstOf(use.Str("tool_call_id"), m.msg.Str("tool_call_id"), s.ID)
	s.Metadata.Set("tool_call_id", jsonedit.EncodeString(id))
}

// keepToolExtra stores what extra holds beside tool_use; an extra that is no
// object is kept as it came.
func (s *Spec) keepToolExtra(msg, extra *jsonedit.Object, isObject bool) {
	if raw, _ := msg.Get("extra"); !isObject {
		if jsonedit.Truthy(raw) {
			s.Metadata.Set("extra", raw)
		}
		return
	}
	extra.Delete("tool_use")
	if extra.Len() > 0 {
		s.Metadata.Set("extra", extra.Bytes())
	}
}

// addMetadata stores every member that is no field of the node.
func (s *Spec) addMetadata(msg *jsonedit.Object, fields ...string) {
	var members []jsonedit.Member
	for key, raw := range msg.All() {
		switch key {
		case "id", "session_id", "role", "content", "predecessor", "timestamp", "extra":
			continue
		case "caller": // a field or not: an empty one says nothing
			if !jsonedit.Truthy(raw) {
				continue
			}
		}
		if !contains(fields, key) {
			members = append(members, jsonedit.Member{Key: key, Raw: raw})
		}
	}
	s.Metadata.SetAll(members)
}

// mergeExtra stores the members of extra that metadata has not; an extra that
// is no object is kept as it came.
func (s *Spec) mergeExtra(msg *jsonedit.Object) {
	extra, ok := extraOf(msg)
	if !ok {
		if raw, _ := msg.Get("extra"); jsonedit.Truthy(raw) {
			s.Metadata.Set("extra", raw)
		}
		return
	}
	var members []jsonedit.Member
	for key, raw := range extra.All() {
		if !s.Metadata.Has(key) {
			members = append(members, jsonedit.Member{Key: key, Raw: raw})
		}
	}
	s.Metadata.SetAll(members)
}

// extraOf returns a message's extra, which is an object or the JSON of one.
func extraOf(msg *jsonedit.Object) (*jsonedit.Object, bool) {
	raw, _ := msg.Get("extra")
	if text, ok := jsonedit.String(raw); ok {
		raw = []byte(text)
	}
	extra, err := jsonedit.ParseObject(raw)
	return extra, err == nil
}

func firstOf(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}
