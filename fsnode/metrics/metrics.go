// Package metrics counts and times what a mount does, and writes the figures
// as OpenMetrics text. Counting takes no lock that is held for longer than a
// few instructions.
package metrics

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// bounds are the upper ends of a histogram's buckets, in seconds; the last
// bucket has none.
var bounds = [...]float64{0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5}

// Counters are counters of one name, told apart by the value of one label. The
// zero value is ready for use.
type Counters struct{ m sync.Map } // string -> *atomic.Uint64

// Add adds n to the counter of a label's value.
func (c *Counters) Add(value string, n uint64) {
	if n == 0 {
		return
	}
	v, ok := c.m.Load(value)
	if !ok {
		v, _ = c.m.LoadOrStore(value, new(atomic.Uint64))
	}
	v.(*atomic.Uint64).Add(n)
}

// Get returns the counter of a label's value.
func (c *Counters) Get(value string) uint64 {
	if v, ok := c.m.Load(value); ok {
		return v.(*atomic.Uint64).Load()
	}
	return 0
}

// Histograms are histograms of durations of one name, told apart by the value
// of one label. The zero value is ready for use.
type Histograms struct{ m sync.Map } // string -> *histogram

type histogram struct {
	buckets [len(bounds) + 1]atomic.Uint64
	sum     atomic.Int64 // ns
}

// Observe counts a duration.
func (h *Histograms) Observe(value string, d time.Duration) {
	v, ok := h.m.Load(value)
	if !ok {
		v, _ = h.m.LoadOrStore(value, new(histogram))
	}
	one := v.(*histogram)
	i, _ := slices.BinarySearch(bounds[:], d.Seconds())
	one.buckets[i].Add(1)
	one.sum.Add(int64(d))
}

// Count returns how many durations were counted for a label's value.
func (h *Histograms) Count(value string) (n uint64) {
	if v, ok := h.m.Load(value); ok {
		for i := range v.(*histogram).buckets {
			n += v.(*histogram).buckets[i].Load()
		}
	}
	return n
}

// Text is an exposition being written.
type Text struct{ b bytes.Buffer }

// Counters writes counters; the name is without "_total".
func (t *Text) Counters(name, help, label string, c *Counters) {
	t.head(name, "counter", "", help)
	for _, value := range keys(&c.m) {
		fmt.Fprintf(&t.b, "%s_total{%s=\"%s\"} %d\n", name, label, escape(value), c.Get(value))
	}
}

// Histograms writes histograms of durations; the name ends in "_seconds".
func (t *Text) Histograms(name, help, label string, h *Histograms) {
	t.head(name, "histogram", "seconds", help)
	for _, value := range keys(&h.m) {
		v, _ := h.m.Load(value)
		one, labels := v.(*histogram), fmt.Sprintf("%s=\"%s\"", label, escape(value))
		sum := time.Duration(one.sum.Load())
		var n uint64
		for i := range one.buckets {
			n += one.buckets[i].Load()
			end := "+Inf"
			if i < len(bounds) {
				end = canonical(bounds[i])
			}
			fmt.Fprintf(&t.b, "%s_bucket{%s,le=\"%s\"} %d\n", name, labels, end, n)
		}
		fmt.Fprintf(&t.b, "%s_count{%s} %d\n%s_sum{%s} %s\n", name, labels, n, name, labels,
			strconv.FormatFloat(sum.Seconds(), 'f', 6, 64))
	}
}

// canonical writes a bucket's end as OpenMetrics wants it: always with a
// fraction, so that "1" and "1.0" do not become two series.
func canonical(end float64) string {
	s := strconv.FormatFloat(end, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// Gauge writes a value of this moment.
func (t *Text) Gauge(name, help string, value int64) {
	t.head(name, "gauge", "", help)
	fmt.Fprintf(&t.b, "%s %d\n", name, value)
}

// Bytes ends the exposition and returns it.
func (t *Text) Bytes() []byte {
	t.b.WriteString("# EOF\n")
	return t.b.Bytes()
}

func (t *Text) head(name, kind, unit, help string) {
	fmt.Fprintf(&t.b, "# TYPE %s %s\n", name, kind)
	if unit != "" {
		fmt.Fprintf(&t.b, "# UNIT %s %s\n", name, unit)
	}
	fmt.Fprintf(&t.b, "# HELP %s %s\n", name, escape(help))
}

func keys(m *sync.Map) []string {
	var out []string
	m.Range(func(k, _ any) bool {
		out = append(out, k.(string))
		return true
	})
	slices.Sort(out)
	return out
}

// escape writes what a label's value or a help text may not hold.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(s)
}
