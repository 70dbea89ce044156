package store

import (
	"math"
	"time"

	"github.com/sessionfs/sessionfs/dag"
	"github.com/sessionfs/sessionfs/store/internal/jsonedit"
)

// meta is a session's meta.json as read. Missing, unreadable and invalid read
// as the empty object (reference 2.3); err tells why, for problems.txt and to
// refuse writes over a file that could not be understood.
type meta struct {
	raw     []byte
	obj     *jsonedit.Object // never nil
	missing bool
	err     error
}

// parseMeta reads meta.json's bytes; raw nil means there is no such file.
func parseMeta(raw []byte, readErr error) meta {
	m := meta{raw: raw, obj: jsonedit.NewObject(), missing: raw == nil && readErr == nil, err: readErr}
	if raw == nil || readErr != nil {
		return m
	}
	obj, err := jsonedit.ParseObject(raw)
	if err != nil {
		m.err = err
		return m
	}
	m.obj = obj
	return m
}

// rawHead is the head as meta.json has it: head_id, else the legacy alias
// last_node_id when head_id is falsy (reference 13, "Head source").
func (m meta) rawHead() string {
	if h := m.obj.Str("head_id"); h != "" {
		return h
	}
	return m.obj.Str("last_node_id")
}

// head is rawHead with the sentinel ROOT read as "no head", as it is for
// display and for chaining (reference 15, row 20).
func (m meta) head() string {
	if h := m.rawHead(); h != dag.RootID {
		return h
	}
	return ""
}

// status is the session's status, "idle" when absent (reference 10.2).
func (m meta) status() string {
	if st := m.obj.Str("status"); st != "" {
		return st
	}
	return statusIdle
}

// The session statuses of reference 10.2.
const (
	statusIdle        = "idle"
	statusRunning     = "running"
	statusNeedsInput  = "needs_input"
	statusDone        = "done"
	statusFailed      = "failed"
	statusInterrupted = "interrupted"
	statusCancelling  = "cancelling"
	statusCancelled   = "cancelled"
)

// activeStatus reports whether a persisted status means that a run is active
// (reference 7.2: running, and the two that are also in the middle of a turn).
func activeStatus(st string) bool {
	return st == statusRunning || st == statusNeedsInput || st == statusCancelling
}

// seconds turns seconds since the epoch into a time; ok is false for values
// that no session can have had (before 1971, after the year 9999, NaN).
func seconds(f float64) (time.Time, bool) {
	if math.IsNaN(f) || f < 365*24*3600 || f > 253402300799 {
		return time.Time{}, false
	}
	sec, frac := math.Modf(f)
	return time.Unix(int64(sec), int64(frac*1e9)), true
}

// epoch turns a time into seconds since the epoch, as meta.json holds them:
// whole microseconds, which a float64 still distinguishes.
func epoch(t time.Time) float64 {
	return float64(t.UnixMicro()) / 1e6
}
