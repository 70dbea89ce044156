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
// is not equal. Nothing recorded is passed over: where the right answer is not
// the recorded one, the comparison is with the right one and counted by its
// reason besides.
type tally struct {
	t       *testing.T
	n, same int
	differ  map[difference]int
}

func newTally(t *testing.T) *tally { return &tally{t: t, differ: map[difference]int{}} }

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

// differs counts the comparisons that f makes under the difference that is
// the reason for them.
func (c *check) differs(why difference, f func()) {
	c.t.Helper()
	if statedDifferences[why] == "" {
		c.t.Errorf("a difference that is not stated: %s", why)
	}
	before := c.y.n
	f()
	c.y.differ[why] += c.y.n - before
}

func (y *tally) add(o *tally) {
	y.n += o.n
	y.same += o.same
	for why, n := range o.differ {
		y.differ[why] += n
	}
}

// String is the line that is logged for a store and for all of them.
func (y *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d comparisons, %d equal", y.n, y.same)
	for _, why := range slices.Sorted(maps.Keys(y.differ)) {
		fmt.Fprintf(&b, "; %d of them by rule: %s", y.differ[why], why)
	}
	return b.String()
}

func equal(a, b any) bool { return cmp.Equal(a, b) }

// sum is the hexadecimal SHA-256 of b.
func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
