package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sessionfs/sessionfs/store"
)

// BenchmarkStart opens a root as a mount does and lists its sessions: with no
// cache, as the first mount of a user, and with that of the mount before. Bound
// for all of a mount of 10,000 sessions: 250 ms.
func BenchmarkStart(b *testing.B) {
	const n = 10000
	root := benchSessions(b, n)
	time.Sleep(settled)
	caches := map[string]string{"cold": "", "warm": b.TempDir()}
	for _, cache := range []string{"cold", "warm"} {
		for _, mode := range []string{"rw", "ro"} {
			b.Run(fmt.Sprintf("%s/%s/%d", mode, cache, n), func(b *testing.B) {
				b.ReportAllocs()
				opt := store.Options{Root: root, Watch: true, CacheDir: caches[cache], ReadOnly: mode == "ro"}
				if mode == "rw" {
					opt.Sweep, opt.Reconcile = true, store.ReconcileAuto
				}
				var cpu, wall time.Duration
				for range b.N {
					b.StartTimer()
					began, used := time.Now(), cpuTime()
					s := benchOpen(b, opt)
					rows, err := s.ListSessions(context.Background(), store.ListQuery{IncludeArchived: true, AsOpened: true})
					must(b, err)
					wall, cpu = wall+time.Since(began), cpu+cpuTime()-used
					b.StopTimer()
					if len(rows) != n {
						b.Fatalf("%d sessions", len(rows))
					}
					must(b, s.Close())
				}
				b.ReportMetric(float64(wall.Milliseconds())/float64(b.N), "ms")
				b.ReportMetric(float64(cpu.Milliseconds())/float64(b.N), "cpu-ms")
			})
		}
	}
}
