package recipes

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// TestP01Sizes: a file that said it had no bytes could be read by cat and came
// out empty of cp, tar and git; here every way to read a file gives as many
// bytes as its stat says, and the same.
func TestP01Sizes(t *testing.T) {
	need(t, "git", "python3", "busybox", "tar")
	for _, golden := range walked {
		m := start(t, golden)
		n := 0
		err := filepath.WalkDir(m.Dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || n > 400 || e.Name() == "metrics" {
				return err // metrics is another text at each open: see TestMetricsFile
			}
			n++
			checkSizes(t, path)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if n < 40 {
			t.Errorf("%s: only %d files", golden, n)
		}
		for _, tool := range []string{
			`find . -type f -exec sh -c 'for f; do [ "$(cat "$f" | wc -c)" = "$(stat -c %s "$f")" ] || echo "$f"; done' sh {} +`,
			`find nodes messages history -type f > "$1.names"; mkdir "$1.d"; xargs -a "$1.names" cp --parents -t "$1.d"; git hash-object --stdin-paths < "$1.names" > "$1.sums"; (cd "$1.d" && git hash-object --stdin-paths < "$1.names") | cmp - "$1.sums"`,
			`find nodes fields transcript.md meta.json graph.txt ctl -type f -exec sh -c 'for f; do for c in "tail -c +1" "dd bs=4k status=none" "busybox cat"; do $c < "$f" | cmp -s - "$f" || echo "$c: $f"; done; done' sh {} +`,
			`for f in nodes/* transcript.md; do [ "$(tac "$f" | wc -c)" = "$(wc -c < "$f")" ] || echo "tac: $f"; done`,
			`find . -type f -exec python3 -c 'import os, shutil, sys
for f in sys.argv[2:]:
    shutil.copyfile(f, sys.argv[1])
    if open(f, "rb").read() != open(sys.argv[1], "rb").read(): print("shutil.copyfile:", f)
    with open(f, "rb") as i, open(sys.argv[1], "wb") as o:
        n = 0
        while k := os.sendfile(o.fileno(), i.fileno(), n, 1 << 20): n += k
    if n != os.stat(f).st_size: print("sendfile:", f, n)' "$1" {} +`,
			`tar -cf - . 2>&1 | tar -tvf - > /dev/null`,
		} {
			id := names(t, m.Path("sessions"))[0]
			if r := harness.Shell(t, m.Session(id), tool, filepath.Join(t.TempDir(), "copy")); r.Out != "" || r.Err != "" {
				t.Errorf("%s in %s: %s %s", tool, golden, r.Out, r.Err)
			}
		}
		m.Stop()
	}
}

func checkSizes(t *testing.T, path string) {
	t.Helper()
	want := read(t, path)
	f, err := os.Open(path)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || st.Size() != int64(len(want)) {
		t.Errorf("%s: fstat says %d, %v; it has %d bytes", path, st.Size(), err, len(want))
	}
	if st, err := os.Lstat(path); err != nil || st.Size() != int64(len(want)) {
		t.Errorf("%s: lstat says %d, %v; it has %d bytes", path, st.Size(), err, len(want))
	}
	if len(want) > 0 {
		b, err := syscall.Mmap(int(f.Fd()), 0, len(want), syscall.PROT_READ, syscall.MAP_PRIVATE)
		if err != nil || string(b) != want {
			t.Errorf("%s: mmap: %v", path, err)
		}
		if err == nil {
			_ = syscall.Munmap(b)
		}
	}
	var copied bytes.Buffer
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.Copy(pw, f) // splice or sendfile, as the runtime likes
		_ = pw.Close()
	}()
	if _, err := io.Copy(&copied, pr); err != nil || copied.String() != want {
		t.Errorf("%s: copied to a pipe: %d bytes, %v", path, copied.Len(), err)
	}
	_ = pr.Close()
	half := make([]byte, len(want))
	if n, err := f.ReadAt(half[:len(want)/2], int64(len(want)/3)); err != nil || string(half[:n]) != want[len(want)/3:len(want)/3+len(want)/2] {
		t.Errorf("%s: pread in the middle: %d, %v", path, n, err)
	}
}
