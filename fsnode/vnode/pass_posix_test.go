package vnode

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

// posixFails says why a case of go-fuse's suite is not run: "both" on the
// mount and on the plain directory, "control" on the plain directory only. All
// others pass on both, in each variant of the mount.
//
// XAttr and XAttrLarge skip themselves on the mount, which has no extended
// attributes.
var posixFails = map[string]struct{ where, why string }{
	"FcntlFlockLocksFile": {"both", "expects two descriptors of one process to conflict, which POSIX record locks never do"},
	"OpenSymlinkRace":     {"control", "takes following a symlink to /etc/passwd on the same disk for an attack"},
}

// TestPassPosix runs go-fuse's suite on a mounted tree and on a plain
// directory.
func TestPassPosix(t *testing.T) {
	var names []string
	for name := range posixtest.All {
		names = append(names, name)
	}
	slices.Sort(names)
	onEach(t, 2*time.Minute, func(t *testing.T, dir string) {
		for _, name := range names {
			t.Run(name, func(t *testing.T) {
				if f := posixFails[name]; f.where == "both" || f.where == "control" && !mounted(dir) {
					t.Skip(f.why)
				}
				sub := filepath.Join(dir, name)
				if err := os.Mkdir(sub, 0o755); err != nil {
					t.Fatal(err)
				}
				posixtest.All[name](t, sub)
				if err := os.RemoveAll(sub); err != nil {
					t.Error(err)
				}
			})
		}
	})
}
