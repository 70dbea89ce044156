package main

import (
	"os"
	"regexp"
	"testing"
	"time"
)

// BenchmarkMount is one call on a mounted store, with the requests that the
// kernel sends for it: go test ./test/bench -run ^$ -bench Mount -benchmem.
// Allocations are those of the caller; the server has a process of its own.
func BenchmarkMount(b *testing.B) {
	for _, mode := range []struct {
		name  string
		flags []string
	}{{"rw", nil}, {"ro", []string{"--read-only"}}} {
		b.Run(mode.name, func(b *testing.B) { benchmarkMount(b, mode.flags) })
	}
}

func benchmarkMount(b *testing.B, flags []string) {
	for _, name := range []string{"HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "SESSIONFS_STORE"} {
		b.Setenv(name, os.Getenv(name)) // newSuite sets them for good
	}
	size := tinySizes
	size.sessions, size.big = 20, 500
	s, err := newSuite(b.Context(), config{sizes: size, only: regexp.MustCompile(""), dir: b.TempDir(), limit: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	defer s.close()
	if s.noFUSE != "" {
		b.Skip("no FUSE: " + s.noFUSE)
	}
	store, err := s.chats()
	if err != nil {
		b.Fatal(err)
	}
	d, err := s.mount(store, flags...)
	if err != nil {
		b.Fatal(err)
	}
	p := mountPlaces(d)
	n := 0
	calls := []struct {
		name string
		do   func() error
	}{
		{"read a reply", func() error { return readWhole(p.reply) }},
		{"read a user's message", func() error { return readWhole(p.question) }},
		{"lstat", func() error { return lstat(p.reply) }},
		{"lstat a missing name", func() error { return noEntry(p.missing) }},
		{"readlink head", func() error { return readlink(p.link) }},
		{"list 500 messages", func() error { _, err := os.ReadDir(p.big); return err }},
		{"echo into head_id", func() error {
			n++
			return echoInto(d.session(smallID(4), "head_id"), nodeID(smallID(4), 1+n%2)+"\n")
		}},
	}
	if len(flags) > 0 {
		calls = calls[:len(calls)-1]
	}
	for _, call := range calls {
		b.Run(call.name, func(b *testing.B) { benchmarkCall(b, d, call.do) })
	}
}

func benchmarkCall(b *testing.B, d *daemon, call func() error) {
	b.ReportAllocs()
	for range warmPasses {
		if err := call(); err != nil {
			b.Fatal(err)
		}
	}
	before, err := d.settled()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := call(); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	after, err := d.settled()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(after.total()-before.total())/float64(b.N), "requests/op")
}
