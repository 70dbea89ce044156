package conformance

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tally counts the comparisons of a store and fails the test for each that
// is not equal. What is skipped is counted by its reason: nothing recorded is
// passed over in silence.
type tally struct {
	t       *testing.T
	n, same int
	skipped map[string]int
}

func newTally(t *testing.T) *tally { return &tally{t: t, skipped: map[string]int{}} }

// check compares one answer.
func (y *tally) check(what string, got, want any) bool {
	y.t.Helper()
	y.n++
	if equal(got, want) {
		y.same++
		return true
	}
	diff := cmp.Diff(want, got)
	if len(diff) > 3000 {
		diff = diff[:3000] + "…"
	}
	y.t.Errorf("%s differs (-want +got):\n%s", what, diff)
	return false
}

// checkThat counts a comparison that was made elsewhere.
func (y *tally) checkThat(ok bool, format string, args ...any) {
	y.t.Helper()
	y.n++
	if ok {
		y.same++
		return
	}
	y.t.Errorf(format, args...)
}

// checkIDs compares ids in order, written out or summed up.
func (y *tally) checkIDs(what string, got []string, want idList) {
	y.t.Helper()
	if want.Count == nil {
		y.check(what, slices.Concat([]string{}, got), slices.Concat([]string{}, want.IDs))
		return
	}
	first, last := want.First, want.Last
	if len(got) >= max(len(first), len(last)) {
		y.check(what+": first ids", got[:len(first)], first)
		y.check(what+": last ids", got[len(got)-len(last):], last)
	}
	y.check(what+": number of ids", len(got), *want.Count)
	y.check(what+": sha256 of the ids", sum([]byte(strings.Join(got, "\n"))), want.SHA256)
}

// skip counts an answer that is not compared.
func (y *tally) skip(reason string, n int) {
	y.skipped[reason] += n
}

func (y *tally) add(o *tally) {
	y.n += o.n
	y.same += o.same
	for reason, n := range o.skipped {
		y.skipped[reason] += n
	}
}

// String is the line that is logged for a store and for all of them.
func (y *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d comparisons, %d equal", y.n, y.same)
	for _, reason := range slices.Sorted(maps.Keys(y.skipped)) {
		fmt.Fprintf(&b, "; skipped %d: %s", y.skipped[reason], reason)
	}
	return b.String()
}

func equal(a, b any) bool { return cmp.Equal(a, b) }

// sum is the hexadecimal SHA-256 of b.
func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
