package main

import (
	"os"
	"testing"
	"time"
)

func TestRecordIsHeldUntilRemoved(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	if !waitServed("/mnt/x", time.Minute) {
		t.Error("a mountpoint without a record is waited for")
	}
	r, err := writeRecord("/mnt/x", "/store", "")
	if err != nil {
		t.Fatal(err)
	}
	if waitServed("/mnt/x", 50*time.Millisecond) {
		t.Error("a held record is not waited for")
	}
	if waitServed("/mnt/y", 50*time.Millisecond) == false {
		t.Error("another mountpoint's record is waited for")
	}
	go func() {
		time.Sleep(50 * time.Millisecond)
		r.remove()
	}()
	if !waitServed("/mnt/x", 10*time.Second) {
		t.Error("a removed record is still waited for")
	}
	if _, err := os.Stat(r.path); !os.IsNotExist(err) {
		t.Errorf("the record is left: %v", err)
	}
}

func TestRecordWaitsForTheServerBefore(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	before, err := writeRecord("/mnt/x", "/store", "")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(100 * time.Millisecond)
		before.remove()
	}()
	after, err := writeRecord("/mnt/x", "/store", "")
	if err != nil {
		t.Fatal(err)
	}
	defer after.remove()
	if waitServed("/mnt/x", 50*time.Millisecond) {
		t.Error("the second record is not held")
	}
}
