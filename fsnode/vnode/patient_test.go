package vnode

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

func TestPendingSignals(t *testing.T) {
	status := "Name:\tx\nSigQ:\t0/15000\nSigPnd:\t0000000000000002\nShdPnd:\t0000000000400000\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001000\n"
	if got := pendingSignals([]byte(status)); got != 0x400002 || got&stopSignals != 1<<(syscall.SIGINT-1) {
		t.Errorf("pending %x", got)
	}
	ignored := status + "SigIgn:\t0000000000000002\n"
	if pendingSignals([]byte(ignored))&stopSignals != 0 {
		t.Error("an ignored signal counts")
	}
}

func TestPatientOutlivesOtherSignals(t *testing.T) {
	cancel := make(chan struct{})
	ctx, stop := patient(&fuse.Context{Caller: fuse.Caller{Pid: uint32(os.Getpid())}, Cancel: cancel})
	defer stop()
	close(cancel) // as for SIGURG: nothing that asks this process to stop is waiting
	select {
	case <-ctx.Done():
		t.Error("the request was given up")
	case <-time.After(3 * patientPoll):
	}
	if c, ok := fuse.FromContext(ctx); !ok || c.Pid != uint32(os.Getpid()) {
		t.Error("the caller is lost")
	}
}

func TestPatientEndsWithItsProcess(t *testing.T) {
	cancel := make(chan struct{})
	ctx, stop := patient(&fuse.Context{Caller: fuse.Caller{Pid: 1<<31 - 2}, Cancel: cancel})
	defer stop()
	close(cancel)
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
		t.Error("a request of a process that is gone waits on")
	}
	if ctx.Err() != context.Canceled {
		t.Error(ctx.Err())
	}
}
