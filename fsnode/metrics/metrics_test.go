package metrics

import (
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestText(t *testing.T) {
	var c Counters
	c.Add("b", 2)
	c.Add("a\"\n\\", 1)
	c.Add("b", 3)
	c.Add("never", 0)
	var h Histograms
	for _, d := range []time.Duration{0, 100 * time.Microsecond, 2 * time.Millisecond, time.Minute} {
		h.Observe("read", d)
	}
	var text Text
	text.Counters("x_things", "How many \"things\".", "kind", &c)
	text.Histograms("x_read_seconds", "How long.", "op", &h)
	text.Gauge("x_now", "Now.", -3)
	got := string(text.Bytes())
	want := `# TYPE x_things counter
# HELP x_things How many \"things\".
x_things_total{kind="a\"\n\\"} 1
x_things_total{kind="b"} 5
# TYPE x_read_seconds histogram
# UNIT x_read_seconds seconds
# HELP x_read_seconds How long.
x_read_seconds_bucket{op="read",le="0.0001"} 2
x_read_seconds_bucket{op="read",le="0.0005"} 2
x_read_seconds_bucket{op="read",le="0.001"} 2
x_read_seconds_bucket{op="read",le="0.005"} 3
x_read_seconds_bucket{op="read",le="0.01"} 3
x_read_seconds_bucket{op="read",le="0.05"} 3
x_read_seconds_bucket{op="read",le="0.1"} 3
x_read_seconds_bucket{op="read",le="0.5"} 3
x_read_seconds_bucket{op="read",le="1.0"} 3
x_read_seconds_bucket{op="read",le="5.0"} 3
x_read_seconds_bucket{op="read",le="+Inf"} 4
x_read_seconds_count{op="read"} 4
x_read_seconds_sum{op="read"} 60.002100
# TYPE x_now gauge
# HELP x_now Now.
x_now -3
# EOF
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestParallel: every count arrives, and a text written meanwhile is whole.
func TestParallel(t *testing.T) {
	var c Counters
	var h Histograms
	var wg sync.WaitGroup
	line := regexp.MustCompile(`^(# .*|[a-z_]+(\{[^}]*\})? -?[0-9.]+)$`)
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 1000 {
				c.Add("x", 1)
				h.Observe("y", time.Millisecond)
			}
		}()
	}
	for range 50 {
		var text Text
		text.Counters("c", "c", "k", &c)
		text.Histograms("h_seconds", "h", "k", &h)
		for l := range strings.Lines(string(text.Bytes())) {
			if !line.MatchString(strings.TrimSuffix(l, "\n")) {
				t.Fatalf("line %q", l)
			}
		}
	}
	wg.Wait()
	if c.Get("x") != 8000 || h.Count("y") != 8000 {
		t.Errorf("%d and %d of 8000", c.Get("x"), h.Count("y"))
	}
}
