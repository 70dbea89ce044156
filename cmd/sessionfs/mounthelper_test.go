package main

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestHelperArgs(t *testing.T) {
	for _, tt := range []struct {
		args string
		want string
		fake bool
		bad  bool
	}{
		{args: "/srv/store /mnt", want: "mount --background --store /srv/store -- /mnt"},
		{args: "none /mnt -o rw", want: "mount --background -o rw -- /mnt"},
		{args: "sessionfs /mnt -n -v -t fuse.sessionfs", want: "mount --background -- /mnt"},
		{args: "/s /mnt -o rw,noexec,nosuid,nodev,user=me", want: "mount --background --store /s -o rw -o noexec -o nosuid -o nodev -- /mnt"},
		{args: "/s /mnt -o ro,allow_other,commits=tree", want: "mount --background --store /s -o ro -o allow_other -o commits=tree -- /mnt"},
		{args: "/s /mnt -o suid,dev,exec", want: "mount --background --store /s -- /mnt"},
		{args: "/s /mnt -o frob", want: "mount --background --store /s -o frob -- /mnt"},
		{args: "/s /mnt -s -o frob,ro", want: "mount --background --store /s -o ro -- /mnt"},
		{args: "/s /mnt -f", want: "mount --background --store /s -- /mnt", fake: true},
		{args: "/s", bad: true},
		{args: "/s /mnt -o", bad: true},
		{args: "/s /mnt -N /proc/1/ns/mnt", bad: true},
		{args: "/s /mnt --what", bad: true},
		{args: "/s /mnt /more", bad: true},
	} {
		line, fake, err := helperArgs(strings.Fields(tt.args))
		if (err != nil) != tt.bad || !tt.bad && (strings.Join(line, " ") != tt.want || fake != tt.fake) {
			t.Errorf("%s: %q, %v, %v; want %q, %v", tt.args, line, fake, err, tt.want, tt.fake)
		}
	}
}

func TestHelperStatus(t *testing.T) {
	var stderr bytes.Buffer
	if got := start([]string{"/sbin/mount.fuse.sessionfs", "/only/one"}, nil, io.Discard, &stderr); got != helperUsage {
		t.Errorf("status %d, want %d", got, helperUsage)
	}
	if !strings.HasPrefix(stderr.String(), "mount.fuse.sessionfs: usage: ") {
		t.Errorf("said %q", stderr.String())
	}
	if got := start([]string{"mount.sessionfs", "-f", "/a", "/b"}, nil, io.Discard, io.Discard); got != exitOK {
		t.Errorf("a fake mount: status %d", got)
	}
}

func TestNotifier(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for _, name := range []string{path, "@sessionfs-test-" + filepath.Base(t.TempDir())} {
		addr := &net.UnixAddr{Name: strings.Replace(name, "@", "\x00", 1), Net: "unixgram"}
		conn, err := net.ListenUnixgram("unixgram", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("NOTIFY_SOCKET", name)
		n := newNotifier()
		if again := newNotifier(); again.socket != "" {
			t.Error("the name is still in the environment")
		}
		n.tell(slog.New(slog.DiscardHandler), notifyReady, "STATUS=x")
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 100)
		k, err := conn.Read(buf)
		if err != nil || string(buf[:k]) != "READY=1\nSTATUS=x" {
			t.Errorf("%q, %v", buf[:k], err)
		}
		conn.Close()
	}
	var log bytes.Buffer
	notifier{filepath.Join(t.TempDir(), "nobody")}.tell(slog.New(slog.NewTextHandler(&log, nil)), notifyReady)
	if !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("log %q", log.String())
	}
	notifier{}.tell(nil, notifyReady)
}

func TestCommitsOption(t *testing.T) {
	for list, want := range map[string]bool{"commits=tree": true, "commits=text": false, "commits=tree,commits=text": false} {
		o := mountOptions{options: []string{list}}
		if err := o.parse(newMountCommand(&app{})); err != nil || o.commitTrees != want {
			t.Errorf("%s: %v, %v", list, o.commitTrees, err)
		}
		if want && !slices.Contains(o.args(), "commits=tree") {
			t.Errorf("a detached process gets %q", o.args())
		}
	}
	o := mountOptions{options: []string{"commits=both"}}
	if err := o.parse(newMountCommand(&app{})); exitStatus(err) != exitUsage {
		t.Errorf("commits=both: %v", err)
	}
}
