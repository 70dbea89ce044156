package vnode

import (
	"bytes"
	"context"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// patientPoll is how often a process that was interrupted once is asked
// whether it is meant to end: the kernel tells of the first signal only.
const patientPoll = 50 * time.Millisecond

// patient returns a context for a change that a request asks for. The
// kernel cancels a request for any signal that its process gets, and programs
// get signals all the time that mean nothing (Go's own scheduler sends them);
// this context ends only when one is waiting that asks the process to stop.
// stop must be called when the request has been answered.
func patient(ctx context.Context) (out context.Context, stop func()) {
	out, stop = context.WithCancel(context.WithoutCancel(ctx))
	c, ok := ctx.(*fuse.Context)
	if !ok || c.Cancel == nil {
		return out, stop
	}
	go func() {
		select {
		case <-c.Cancel:
		case <-out.Done():
			return
		}
		t := time.NewTicker(patientPoll)
		defer t.Stop()
		for !askedToStop(c.Pid) {
			select {
			case <-t.C:
			case <-out.Done():
				return
			}
		}
		stop()
	}()
	return out, stop
}

// stopSignals are the signals that ask a process to give up what it waits for.
const stopSignals = 1<<(syscall.SIGHUP-1) | 1<<(syscall.SIGINT-1) | 1<<(syscall.SIGQUIT-1) |
	1<<(syscall.SIGKILL-1) | 1<<(syscall.SIGALRM-1) | 1<<(syscall.SIGTERM-1)

// askedToStop reports whether such a signal waits for a process. One that
// cannot be asked has ended.
func askedToStop(pid uint32) bool {
	b, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(pid), 10) + "/status")
	if err != nil {
		return true
	}
	return pendingSignals(b)&stopSignals != 0
}

// pendingSignals reads the signals that wait for a thread, from
// proc_pid_status(5); those that it ignores or blocks do not count.
func pendingSignals(status []byte) (set uint64) {
	var off uint64
	for line := range bytes.Lines(status) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64)
		if err != nil {
			continue
		}
		switch string(key) {
		case "SigPnd", "ShdPnd":
			set |= n
		case "SigBlk", "SigIgn":
			off |= n
		}
	}
	return set &^ off
}
