package conformance

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

// number is a JSON number as Python reads it: an integer keeps its digits, so
// that 1 and 1.0 differ and nothing is rounded.
type number struct {
	Int   string // decimal digits of an integer, "" for a float
	Float float64
}

// Equal compares numbers of the same kind; NaN equals NaN. go-cmp calls it.
func (n number) Equal(o number) bool {
	if n.Int != o.Int {
		return false
	}
	return n.Int != "" || n.Float == o.Float || math.IsNaN(n.Float) && math.IsNaN(o.Float)
}

// pyDecode reads Python's JSON dialect: NaN and the infinities, numbers of
// any size, lone surrogates (kept in the form of WTF-8), duplicate keys of
// which the last wins. Objects become map[string]any, arrays []any.
func pyDecode(b []byte) (any, error) {
	if !utf8.Valid(b) {
		return nil, errors.New("not UTF-8")
	}
	d := &decoder{s: string(b)}
	v, err := d.value(0)
	if err != nil {
		return nil, fmt.Errorf("at byte %d: %w", d.i, err)
	}
	if d.space(); d.i != len(d.s) {
		return nil, fmt.Errorf("at byte %d: more than one value", d.i)
	}
	return v, nil
}

type decoder struct {
	s string
	i int
}

var errSyntax = errors.New("syntax error")

func (d *decoder) space() {
	for d.i < len(d.s) && strings.IndexByte(" \t\r\n", d.s[d.i]) >= 0 {
		d.i++
	}
}

func (d *decoder) eat(word string) bool {
	if !strings.HasPrefix(d.s[d.i:], word) {
		return false
	}
	d.i += len(word)
	return true
}

func (d *decoder) value(depth int) (any, error) {
	d.space()
	if d.i == len(d.s) || depth > 2000 {
		return nil, errSyntax
	}
	switch c := d.s[d.i]; {
	case c == '{':
		return d.object(depth)
	case c == '[':
		return d.array(depth)
	case c == '"':
		return d.str()
	case d.eat("null"):
		return nil, nil
	case d.eat("true"):
		return true, nil
	case d.eat("false"):
		return false, nil
	case d.eat("NaN"):
		return number{Float: math.NaN()}, nil
	case d.eat("Infinity"):
		return number{Float: math.Inf(1)}, nil
	case d.eat("-Infinity"):
		return number{Float: math.Inf(-1)}, nil
	}
	return d.number()
}

func (d *decoder) object(depth int) (any, error) {
	d.i++
	m := map[string]any{}
	for d.space(); !d.eat("}"); d.space() {
		if len(m) > 0 && !d.eat(",") {
			return nil, errSyntax
		}
		d.space()
		if d.i == len(d.s) || d.s[d.i] != '"' {
			return nil, errSyntax
		}
		key, err := d.str()
		if err != nil {
			return nil, err
		}
		if d.space(); !d.eat(":") {
			return nil, errSyntax
		}
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		m[key] = v
	}
	return m, nil
}

func (d *decoder) array(depth int) (any, error) {
	d.i++
	a := []any{}
	for d.space(); !d.eat("]"); d.space() {
		if len(a) > 0 && !d.eat(",") {
			return nil, errSyntax
		}
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		a = append(a, v)
	}
	return a, nil
}

func (d *decoder) number() (any, error) {
	start := d.i
	for d.i < len(d.s) && strings.IndexByte("+-.0123456789eE", d.s[d.i]) >= 0 {
		d.i++
	}
	text := d.s[start:d.i]
	if !strings.ContainsAny(text, ".eE") {
		n, ok := new(big.Int).SetString(text, 10)
		if !ok || text[0] == '+' {
			return nil, errSyntax
		}
		return number{Int: n.String()}, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return nil, errSyntax
	}
	return number{Float: f}, nil
}

func (d *decoder) str() (string, error) {
	d.i++
	var out []byte
	for d.i < len(d.s) {
		c := d.s[d.i]
		d.i++
		switch {
		case c == '"':
			return string(out), nil
		case c < 0x20:
			return "", errSyntax
		case c != '\\':
			out = append(out, c)
		default:
			var err error
			if out, err = d.escape(out); err != nil {
				return "", err
			}
		}
	}
	return "", errSyntax
}

func (d *decoder) escape(out []byte) ([]byte, error) {
	if d.i == len(d.s) {
		return nil, errSyntax
	}
	c := d.s[d.i]
	d.i++
	if k := strings.IndexByte(`"\/bfnrt`, c); k >= 0 {
		return append(out, "\"\\/\b\f\n\r\t"[k]), nil
	}
	if c != 'u' {
		return nil, errSyntax
	}
	r, err := d.hex()
	if err != nil {
		return nil, err
	}
	if utf16.IsSurrogate(r) && d.eat(`\u`) {
		low, err := d.hex()
		if err != nil {
			return nil, err
		}
		if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
			return utf8.AppendRune(out, both), nil
		}
		return appendUnit(appendUnit(out, r), low), nil
	}
	return appendUnit(out, r), nil
}

func (d *decoder) hex() (rune, error) {
	if d.i+4 > len(d.s) {
		return 0, errSyntax
	}
	n, err := strconv.ParseUint(d.s[d.i:d.i+4], 16, 16)
	d.i += 4
	return rune(n), err
}

// appendUnit appends a UTF-16 unit, a lone surrogate as three bytes that are
// not UTF-8 and so equal nothing else.
func appendUnit(out []byte, r rune) []byte {
	if utf16.IsSurrogate(r) {
		return append(out, byte(0xE0|r>>12), byte(0x80|r>>6&0x3F), byte(0x80|r&0x3F))
	}
	return utf8.AppendRune(out, r)
}

// pyObject decodes an object; nil when b is not one.
func pyObject(b []byte) map[string]any {
	v, err := pyDecode(b)
	m, _ := v.(map[string]any)
	if err != nil {
		return nil
	}
	return m
}

// recorded turns a value of expected.json into what pyDecode gives: numbers
// that JSON cannot write are recorded as {"$float": name}.
func recorded(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if name, ok := v["$float"].(string); ok && len(v) == 1 {
			f, err := strconv.ParseFloat(name, 64)
			if err == nil {
				return number{Float: f}
			}
		}
		for k := range v {
			v[k] = recorded(v[k])
		}
	case []any:
		for i := range v {
			v[i] = recorded(v[i])
		}
	}
	return v
}

// truthy is Python's truth of a decoded value.
func truthy(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case number:
		return v.Int != "" && v.Int != "0" || v.Int == "" && v.Float != 0
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return true
}

// seconds is a number as a float; 0 for anything else.
func seconds(v any) float64 {
	n, ok := v.(number)
	if !ok {
		return 0
	}
	if n.Int == "" {
		return n.Float
	}
	f, _ := strconv.ParseFloat(n.Int, 64)
	return f
}

func TestPyDecode(t *testing.T) {
	good := map[string]any{
		`{"a": 1, "a": 2}`:           map[string]any{"a": number{Int: "2"}},
		`[NaN, -Infinity, 1e400]`:    []any{number{Float: math.NaN()}, number{Float: math.Inf(-1)}, number{Float: math.Inf(1)}},
		`123456789012345678901234`:   number{Int: "123456789012345678901234"},
		`1.0`:                        number{Float: 1},
		`"\ud83d\ude00"`:             "😀",
		`"\ud83d"`:                   "\xed\xa0\xbd",
		"\"\\u00e9\\n\"":             "é\n",
		` [ ] `:                      []any{},
		`{"$float": "nan", "b": {}}`: map[string]any{"$float": "nan", "b": map[string]any{}},
	}
	for in, want := range good {
		got, err := pyDecode([]byte(in))
		if err != nil || !equal(got, want) {
			t.Errorf("pyDecode(%s) = %#v, %v; want %#v", in, got, err, want)
		}
	}
	for _, in := range []string{``, `{`, `[1 2]`, `{"a" 1}`, `"a`, `{"a": }`, `+1`, `nul`, `1 2`, "\"\x01\"", "\"\xff\"", `"\x"`} {
		if v, err := pyDecode([]byte(in)); err == nil {
			t.Errorf("pyDecode(%q) = %#v, want an error", in, v)
		}
	}
	if got := recorded(map[string]any{"$float": "nan"}); !equal(got, number{Float: math.NaN()}) {
		t.Errorf("recorded NaN = %#v", got)
	}
	if slices.Contains([]bool{truthy(nil), truthy(""), truthy(number{Int: "0"}), truthy([]any{})}, true) {
		t.Error("an empty value is true")
	}
}
