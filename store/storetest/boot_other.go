//go:build !linux

package storetest

import "time"

// beforeBoot is a time before this machine's last start, most likely.
func beforeBoot() time.Time { return time.Now().Add(-365 * 24 * time.Hour) }
