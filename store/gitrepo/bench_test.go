package gitrepo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkTurnCommit commits a turn (meta.json and two new files), against
// `git add -A; git commit` of the same in a repository of the same size: the
// metric "x-git" is the ratio of the medians, ns/op that of ours. Bounds: 0.10,
// 0.12, 0.20 without syncing, 0.35 with.
func BenchmarkTurnCommit(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		for _, sync := range []SyncMode{SyncOff, SyncBatch} {
			name := map[SyncMode]string{SyncOff: "off", SyncBatch: "batch"}[sync]
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) { benchTurns(b, n, sync) })
		}
	}
}

func benchTurns(b *testing.B, n int, sync SyncMode) {
	ours, theirs := filepath.Join(b.TempDir(), "ours"), filepath.Join(b.TempDir(), "theirs")
	opt := Options{Sync: sync, Env: func(string) string { return "" }}
	for _, dir := range []string{ours, theirs} {
		if err := Init(context.Background(), dir, opt); err != nil {
			b.Fatal(err)
		}
		for i := range n {
			benchFile(b, dir, i)
		}
		benchGit(b, dir)
	}
	r, err := Open(ours, opt)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	var git, us, gitCPU, usCPU []time.Duration
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		b.StopTimer()
		for _, dir := range []string{ours, theirs} {
			benchFile(b, dir, n+2*i)
			benchFile(b, dir, n+2*i+1)
			benchWrite(b, filepath.Join(dir, "meta.json"), fmt.Sprintf("{\n  \"id\": \"s\",\n  \"updated_at\": %d.5\n}", i))
		}
		began, cpu := time.Now(), benchCPU(unix.RUSAGE_CHILDREN)
		benchGit(b, theirs)
		git, gitCPU = append(git, time.Since(began)), append(gitCPU, benchCPU(unix.RUSAGE_CHILDREN)-cpu)
		b.StartTimer()
		began, cpu = time.Now(), benchCPU(unix.RUSAGE_SELF)
		if _, changed, err := r.CommitAll(context.Background(), "turn: something"); err != nil || !changed {
			b.Fatal(changed, err)
		}
		us, usCPU = append(us, time.Since(began)), append(usCPU, benchCPU(unix.RUSAGE_SELF)-cpu)
	}
	b.StopTimer()
	for _, d := range [][]time.Duration{git, us, gitCPU, usCPU} {
		slices.Sort(d)
	}
	g, u := git[len(git)/2], us[len(us)/2]
	b.ReportMetric(float64(usCPU[len(us)/2]), "work-cpu-ns")
	b.ReportMetric(float64(usCPU[len(us)/2])/float64(max(gitCPU[len(git)/2], 1)), "x-git-cpu")
	b.ReportMetric(float64(g), "git-ns")
	b.ReportMetric(float64(u), "work-ns")
	b.ReportMetric(float64(u)/float64(g), "x-git")
}

// benchCPU is the processor time of this process or of its children: on a busy
// machine it says more than the clock.
func benchCPU(who int) time.Duration {
	var u unix.Rusage
	if unix.Getrusage(who, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func benchWrite(b *testing.B, path, text string) {
	b.Helper()
	if err := os.WriteFile(path+".t", []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	if err := os.Rename(path+".t", path); err != nil {
		b.Fatal(err)
	}
}

func benchFile(b *testing.B, dir string, i int) {
	b.Helper()
	path := filepath.Join(dir, "history", fmt.Sprintf("%04d-u-%012x.json", i, 0xabc000000000+i))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		b.Fatal(err)
	}
	benchWrite(b, path, fmt.Sprintf(`{"id": "%012x", "seq": %d, "output": %q}`, 0xabc000000000+i, i, strings.Repeat(fmt.Sprintf("text %d ", i), 180)))
}

// benchGit commits everything with the git binary.
func benchGit(b *testing.B, dir string) {
	b.Helper()
	for _, args := range [][]string{{"add", "-A"}, {"-c", "gc.auto=0", "commit", "-q", "-m", "turn"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
}
