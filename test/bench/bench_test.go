package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestMain lets a copy of the test be the program's copy with few watches.
func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == watchRole {
		os.Exit(watchMain(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		p    float64
		want float64
	}{
		{[]float64{3}, 50, 3}, {[]float64{4, 1, 3}, 50, 3}, {[]float64{4, 1, 3, 2}, 50, 2.5},
		{[]float64{1, 2, 3, 4, 5}, 100, 5}, {[]float64{1, 2, 3, 4, 5}, 0, 1}, {[]float64{0, 10}, 99, 9.9},
	} {
		before := append([]float64(nil), c.in...)
		if got := percentile(c.in, c.p); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("percentile(%v, %v) = %v, want %v", c.in, c.p, got, c.want)
		}
		for i := range before {
			if c.in[i] != before[i] {
				t.Errorf("percentile sorted its argument: %v, was %v", c.in, before)
			}
		}
	}
	if got := median(nil); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v", got)
	}
	// Of values that were measured together, not of the medians: 2, 1 and 10.
	if got := ratio([]float64{2, 3, 10}, []float64{1, 3, 1}); got != 2 {
		t.Errorf("ratio = %v, want 2", got)
	}
}

func TestNumber(t *testing.T) {
	for in, want := range map[float64]string{0: "0", 0.0123: "0.012", 0.25: "0.25", 1.3: "1.30", 5: "5", 45.67: "45.7", 123.4: "123", math.NaN(): "?"} {
		if got := number(in); got != want {
			t.Errorf("number(%v) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[float64]string{2: "2 s", 0.0125: "12.5 ms", 0.0000045: "4.50 us"} {
		if got := scaled(in); got != want {
			t.Errorf("scaled(%v) = %q, want %q", in, got, want)
		}
	}
}

// TestTable: what is short, and what the table and the JSON say of it.
func TestTable(t *testing.T) {
	r := report{Seconds: 3, Figures: []figure{
		{Name: "a/at the bound", Unit: "x", Bound: 1.5, Value: 1.5, Note: "one, other"},
		{Name: "a/above", Unit: "x", Bound: 1.5, Value: 1.51},
		{Name: "a/let pass", Unit: "x", Bound: 1.5, Value: 1.51, Slack: 0.01},
		{Name: "b/enough", Unit: "%", Bound: 90, AtLeast: true, Value: 95},
		{Name: "b/too little", Unit: "%", Bound: 90, AtLeast: true, Value: 89},
		{Name: "c/free", Unit: "ms", None: true, Value: 7},
		{Name: "c/left out", Bound: 1, Value: 9, Skipped: "no FUSE here"},
		{Name: "c/nothing", Unit: "ms", Bound: 1, Value: math.NaN()},
	}}
	var names []string
	for _, f := range r.short() {
		names = append(names, f.Name)
	}
	if got := strings.Join(names, ", "); got != "a/above, b/too little, c/nothing" {
		t.Errorf("short are %s", got)
	}
	var b bytes.Buffer
	r.print(&b)
	for _, want := range []string{
		`a/at the bound +x +<= 1.50 +1.50 +ok +one, other`, `a/above +x +<= 1.50 +1.51 +SHORT\n`, `b/enough +% +>= 90 +95 +ok\n`,
		`c/free +ms +7 +-\n`, `c/left out +skipped +no FUSE here\n`, `8 figures in 3 s, 3 fall short:\n`, `  b/too little: 89 %, bound >= 90\n`,
	} {
		if !regexp.MustCompile(want).MatchString(b.String()) {
			t.Errorf("the table has no %q:\n%s", want, b.String())
		}
	}
}

// TestMarkdown: a section a group, and no line that ends a table too early.
func TestMarkdown(t *testing.T) {
	r := report{Reps: 3, Machine: map[string]string{}, Figures: []figure{
		{Name: "a/one", Unit: "x", Bound: 1.5, Value: 1.51, Note: "this, that"}, {Name: "a/two", Unit: "MB", None: true, Value: 2}, {Name: "b/three", Skipped: "why"},
	}}
	var b bytes.Buffer
	r.printMarkdown(&b)
	want := "\n| a | bound | measured | | |\n| --- | --- | --- | --- | --- |\n| one | ≤ 1.50 | 1.51 x | SHORT | this, that |\n| two |  | 2 MB | - |  |\n" +
		"\n| b | bound | measured | | |\n| --- | --- | --- | --- | --- |\n| three |  |  | skipped | why |\n"
	if !strings.HasSuffix(b.String(), want) {
		t.Errorf("the table is\n%s\nwant at its end\n%s", b.String(), want)
	}
}

func TestParseCounts(t *testing.T) {
	c := parseCounts(`# TYPE sessionfs_request_seconds histogram
sessionfs_request_seconds_bucket{op="read",le="0.1"} 9
sessionfs_request_seconds_count{op="read"} 7
sessionfs_request_seconds_sum{op="read"} 0.5
sessionfs_request_seconds_count{op="getattr"} 12
sessionfs_sessions 3
`)
	if c.total() != 19 || c.total("read", "open") != 7 || c.String() != "getattr 12, read 7" {
		t.Errorf("the counts are %v: %d, %d", c, c.total(), c.total("read", "open"))
	}
}

// TestInterleave: the arms take turns, and what came first is not measured.
func TestInterleave(t *testing.T) {
	var order strings.Builder
	n := 0
	mark := func(name string) arm {
		return arm{name, func() (time.Duration, error) {
			n++
			order.WriteString(name)
			return time.Duration(n) * time.Second, nil
		}}
	}
	s := &suite{ctx: context.Background()}
	raw, err := s.interleave(2, 1, mark("a"), mark("b"))
	if err != nil {
		t.Fatal(err)
	}
	if order.String() != "abbaab" || raw["a"][0] != 4 || raw["a"][1] != 5 || raw["b"][0] != 3 || len(raw["b"]) != 2 {
		t.Errorf("the order is %s, the values %v", order.String(), raw)
	}
}

// tinySizes are for a look whether everything works; they measure nothing.
var tinySizes = sizes{
	quick: true, reps: 1, limit: time.Hour,
	sessions: 8, messages: 5, big: 30, loop: 5, many: 20, huge: 30, nodes: 50, hugeNodes: 60, baseScale: 10,
	commits: []commitSize{{10, 1}}, turns: 4, turnsOn: 4, pairs: 4, foreign: 200 * time.Millisecond, known: 100,
}

// TestSmoke runs whole groups on next to nothing: every figure is there, the
// JSON holds it, and nothing is left behind. SESSIONFS_BENCH_ONLY chooses other
// groups than the cheapest.
func TestSmoke(t *testing.T) {
	only := os.Getenv("SESSIONFS_BENCH_ONLY")
	if only == "" {
		only = "^(open|durable|move)/"
	}
	s, err := newSuite(t.Context(), config{sizes: tinySizes, only: regexp.MustCompile(only), dir: t.TempDir(), limit: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := s.runGroups(); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range s.rep.Figures {
		t.Log(f.Name, number(f.Value), f.Unit, f.Skipped, f.Note)
		names[f.Name] = true
		if f.Skipped == "" && math.IsNaN(f.Value) {
			t.Errorf("%s has no value", f.Name)
		}
	}
	if only == "^(open|durable|move)/" {
		for _, want := range []string{"open/cold, 50 nodes, no index cache", "open/cold, 50 nodes, index cache", "open/branch of 50 messages again", "durable/append", "durable/head move"} {
			if !names[want] {
				t.Errorf("no figure %q", want)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "out.json")
	if err := s.rep.writeJSON(path); err != nil {
		t.Fatal(err)
	}
	var read report
	if b, err := os.ReadFile(path); err != nil || json.Unmarshal(b, &read) != nil || len(read.Figures) != len(s.rep.Figures) {
		t.Errorf("the JSON has %d figures of %d, %v", len(read.Figures), len(s.rep.Figures), err)
	}
	s.close()
	if _, err := os.Stat(s.base); !os.IsNotExist(err) {
		t.Errorf("%s is left, %v", s.base, err)
	}
}
