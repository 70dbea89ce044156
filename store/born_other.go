//go:build !linux

package store

import "time"

// cameAfter reports whether a directory may have come to its path after a
// moment. Here nobody knows when it was made.
func cameAfter(string, time.Time) bool { return true }
