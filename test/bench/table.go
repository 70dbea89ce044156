package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// figure is one line of the table.
type figure struct {
	Name  string  `json:"name"` // group/what
	Unit  string  `json:"unit"` // "x" for a ratio
	Bound float64 `json:"bound"`
	// AtLeast turns the bound round. None means that the figure has no bound
	// and only explains another.
	AtLeast bool `json:"at_least,omitempty"`
	// Slack is the part of the bound that may be exceeded.
	Slack float64 `json:"slack,omitempty"`
	None  bool    `json:"no_bound,omitempty"`
	Value float64 `json:"value"`
	// Note says in a few words what was compared.
	Note string `json:"note,omitempty"`
	// Skipped says why there is no value, "" when there is one.
	Skipped string `json:"skipped,omitempty"`
	// Raw are the values behind it: seconds, unless the name says otherwise.
	Raw map[string][]float64 `json:"raw,omitempty"`
}

// ok reports whether the bound is kept.
func (f figure) ok() bool {
	if f.None || f.Skipped != "" {
		return true
	}
	if f.AtLeast {
		return f.Value >= f.Bound
	}
	return f.Value <= f.Bound*(1+f.Slack) // not a number is short
}

// verdict is the last word of a line.
func (f figure) verdict() string {
	switch {
	case f.Skipped != "":
		return "skipped"
	case f.None:
		return "-"
	case f.ok():
		return "ok"
	}
	return "SHORT"
}

func (f figure) bound() string {
	if f.None || f.Skipped != "" {
		return ""
	}
	sign := "<= "
	if f.AtLeast {
		sign = ">= "
	}
	return sign + number(f.Bound)
}

// report collects figures in the order in which they were measured.
type report struct {
	Began   time.Time         `json:"began"`
	Machine map[string]string `json:"machine"`
	Quick   bool              `json:"quick"`
	Reps    int               `json:"reps"`
	Figures []figure          `json:"figures"`
	Seconds float64           `json:"seconds"`
}

// short lists the figures that fall short.
func (r *report) short() []figure {
	var out []figure
	for _, f := range r.Figures {
		if !f.ok() {
			out = append(out, f)
		}
	}
	return out
}

// print writes the table and, at its end, what falls short.
func (r *report) print(w io.Writer) {
	width := len("figure")
	for _, f := range r.Figures {
		width = max(width, len(f.Name))
	}
	fmt.Fprintf(w, "\n%-*s  %-5s %12s %12s  %-7s  %s\n", width, "figure", "unit", "bound", "measured", "", "what was compared")
	for _, f := range r.Figures {
		value, note := number(f.Value), f.Note
		if f.Skipped != "" {
			value, note = "", f.Skipped
		}
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%-*s  %-5s %12s %12s  %-7s  %s", width, f.Name, f.Unit, f.bound(), value, f.verdict(), note), " "))
	}
	short := r.short()
	fmt.Fprintf(w, "\n%d figures in %.0f s, %d fall short", len(r.Figures), r.Seconds, len(short))
	if len(short) == 0 {
		fmt.Fprintln(w, ".")
		return
	}
	fmt.Fprintln(w, ":")
	for _, f := range short {
		fmt.Fprintf(w, "  %s: %s %s, bound %s\n", f.Name, number(f.Value), f.Unit, f.bound())
	}
}

// printMarkdown writes the table as docs/performance.md has it, a section a
// group.
func (r *report) printMarkdown(w io.Writer) {
	fmt.Fprintf(w, "%s: %s CPUs, Linux %s, %s, Go %s, Git %s; %d repetitions.\n", r.Began.Format(time.DateOnly), r.Machine["cpus"],
		r.Machine["kernel"], r.Machine["filesystem"], strings.TrimPrefix(r.Machine["go"], "go"), r.Machine["git"], r.Reps)
	last := ""
	for _, f := range r.Figures {
		group, what, _ := strings.Cut(f.Name, "/")
		if group != last {
			fmt.Fprintf(w, "\n| %s | bound | measured | | |\n| --- | --- | --- | --- | --- |\n", group)
			last = group
		}
		value, note := strings.TrimSpace(number(f.Value)+" "+f.Unit), f.Note
		if f.Skipped != "" {
			value, note = "", f.Skipped
		}
		cells := []string{what, strings.NewReplacer("<=", "≤", ">=", "≥").Replace(f.bound()), value, f.verdict(), note}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
}

func (r *report) writeJSON(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// number prints a value with three significant digits, and no exponent.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "?"
	case a >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// median of no values is not a number.
func median(x []float64) float64 { return percentile(x, 50) }

// percentile interpolates between the two nearest values.
func percentile(x []float64, p float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(x))
	at := p / 100 * float64(len(s)-1)
	i := int(at)
	if i+1 >= len(s) {
		return s[len(s)-1]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}

// ratio is the median of the ratios of values that were measured together.
func ratio(a, b []float64) float64 {
	n := min(len(a), len(b))
	out := make([]float64, n)
	for i := range n {
		out[i] = a[i] / b[i]
	}
	return median(out)
}

// withFindings adds the first few findings to a note.
func withFindings(note string, findings []string) string {
	return strings.Join(append([]string{note}, findings[:min(3, len(findings))]...), "; ")
}

// scaled is a duration in seconds as a person reads it.
func scaled(sec float64) string {
	switch {
	case math.IsNaN(sec):
		return "?"
	case sec >= 1:
		return number(sec) + " s"
	case sec >= 1e-3:
		return number(sec*1e3) + " ms"
	}
	return number(sec*1e6) + " us"
}
