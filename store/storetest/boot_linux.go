package storetest

import (
	"time"

	"golang.org/x/sys/unix"
)

// beforeBoot is a time before this machine's last start.
func beforeBoot() time.Time {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return time.Now().Add(-365 * 24 * time.Hour)
	}
	return time.Now().Add(-time.Duration(info.Uptime)*time.Second - 3*time.Hour)
}
