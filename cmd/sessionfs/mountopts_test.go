package main

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"
)

func TestMountOptions(t *testing.T) {
	for _, tt := range []struct {
		name   string
		lists  []string
		want   mountOptions
		passed []string
		bad    bool
	}{
		{name: "none"},
		{name: "own words", lists: []string{"ro,allow_other", "nonempty"}, want: mountOptions{readOnly: true, allowOther: true, nonEmpty: true}},
		{name: "passed on", lists: []string{"fsname=a b,nosuid", "noexec"}, passed: []string{"fsname=a b", "nosuid", "noexec"}},
		{name: "fstab words", lists: []string{"defaults,noauto,user,_netdev,x-systemd.automount,rw,"}},
		{name: "unknown", lists: []string{"ro,frob"}, bad: true},
		{name: "fsname without a name", lists: []string{"fsname="}, bad: true},
		{name: "suid is not ours to give", lists: []string{"suid"}, bad: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opt := mountOptions{options: tt.lists}
			err := opt.parse(&cobra.Command{Use: "mount"})
			if (err != nil) != tt.bad {
				t.Fatalf("got error %v, want bad %v", err, tt.bad)
			}
			if tt.bad {
				if exitStatus(err) != exitUsage {
					t.Errorf("status %d, want %d", exitStatus(err), exitUsage)
				}
				return
			}
			if opt.readOnly != tt.want.readOnly || opt.allowOther != tt.want.allowOther || opt.nonEmpty != tt.want.nonEmpty {
				t.Errorf("got %+v, want %+v", opt, tt.want)
			}
			if !slices.Equal(opt.passed, tt.passed) {
				t.Errorf("passed on %q, want %q", opt.passed, tt.passed)
			}
		})
	}
}

// TestDetachedArgs checks that a background process gets the same options.
func TestDetachedArgs(t *testing.T) {
	in := mountOptions{options: []string{"ro,allow_other,nonempty,nosuid,fsname=x"}}
	if err := in.parse(&cobra.Command{Use: "mount"}); err != nil {
		t.Fatal(err)
	}
	cmd := newMountCommand(&app{})
	if err := cmd.ParseFlags(in.args()); err != nil {
		t.Fatal(err)
	}
	var out mountOptions
	out.readOnly, _ = cmd.Flags().GetBool("read-only")
	out.allowOther, _ = cmd.Flags().GetBool("allow-other")
	out.options, _ = cmd.Flags().GetStringArray("options")
	if err := out.parse(cmd); err != nil {
		t.Fatal(err)
	}
	if !out.readOnly || !out.allowOther || !out.nonEmpty || !slices.Equal(out.passed, in.passed) {
		t.Errorf("got %+v from %q, want %+v", out, in.args(), in)
	}
}
