package life

import (
	_ "embed"
	"os"
	"os/exec"
	"testing"

	"github.com/sessionfs/sessionfs/test/harness"
)

// usersScript has the functions that the scripts of this file begin with.
//
//go:embed testdata/users.sh
var usersScript string

// private runs a script as root in a mount namespace of its own, so that it
// may put a device, a configuration and a helper where programs look for them,
// and nothing of it is left. $1 is the binary and $2 a store to copy; /mnt is
// an empty file system that everybody may enter. The script says what is
// wrong on its standard output. It needs the programs.
func private(t *testing.T, script string, programs ...string) {
	t.Helper()
	harness.RequireFUSE(t)
	if os.Geteuid() != 0 {
		harness.Missing(t, "root, who alone can be another user")
	}
	for _, program := range append(programs, "unshare", "setpriv") {
		if _, err := exec.LookPath(program); err != nil {
			harness.Missing(t, program)
		}
	}
	r := harness.Command(t, "/", nil, "unshare", "--mount", "--propagation", "private",
		"bash", "-c", usersScript+"\n"+script, "bash", harness.Binary(t), harness.Golden(t, "chat_branches"))
	if r.Code != 0 || r.Out != "" {
		t.Errorf("exit status %d\n%s%s", r.Code, r.Out, r.Err)
	}
}

// TestOrdinaryUser: a user mounts with fusermount3, works, is refused an
// unmount of a busy mount with a clear message, and unmounts. Others, and root
// too, stay out.
func TestOrdinaryUser(t *testing.T) {
	private(t, `
check 0 '' as 65534 sessionfs mount --background /mnt/mnt
info 'rw,nosuid,nodev,' 'user_id=65534,group_id=65534'
check 0 '^65534 700$' as 65534 stat -c '%u %a' /mnt/mnt/sessions $S
check 0 '' as 65534 sh -c 'echo hi > $S/append/user && [ "$(cat $S/head)" = hi ] && mv $S/nodes/0001-* $S/head && ls -lR $S'
check 2 'Permission denied' as 65533 ls /mnt/mnt
check 2 'Permission denied' ls /mnt/mnt
check 5 'the mount is in use$|^hint: leave the directory' as 65534 sh -c 'cd $S && sessionfs umount /mnt/mnt'
check 0 '' as 65534 sh -c 'cd $S && sessionfs umount --lazy /mnt/mnt'
gone
check 0 '' as 65534 sessionfs mount --background /mnt/mnt
check 1 '^sessionfs: umount: /mnt/mnt: ' as 65533 sessionfs umount /mnt/mnt
check 0 '' as 65534 ls /mnt/mnt
check 0 '' as 65534 sessionfs umount /mnt/mnt
gone
`, "fusermount3")
}

// TestUserAllowOther: an ordinary user may let others in only where the
// machine's owner allows it, and is told so.
func TestUserAllowOther(t *testing.T) {
	private(t, `
for way in --background --read-only; do
	check 9 '^sessionfs: mount: |^hint: --allow-other needs the line user_allow_other in /etc/fuse.conf' as 65534 sessionfs mount $way --allow-other /mnt/mnt
done
gone
conf user_allow_other
check 0 '' as 65534 sessionfs mount --background --allow-other /mnt/mnt
info 'rw,nosuid,nodev,' default_permissions allow_other
check 0 '' ls /mnt/mnt/sessions
check 2 'Permission denied' as 65533 ls /mnt/mnt
check 0 '' as 65534 sessionfs umount /mnt/mnt
gone
`, "fusermount3")
}

// TestAllowOther: in root's mount of somebody's store the kernel lets users in
// as owners and modes say: the owner of the store, and not to a session of
// somebody else's; others nowhere; to a real file whoever its mode allows.
func TestAllowOther(t *testing.T) {
	private(t, `
O=/mnt/mnt/sessions/`+otherID+`
W=/mnt/store/`+nested+`/workdir/attachments
chown -R 65533:65533 /mnt/store/`+otherID+`
check 0 '' sessionfs mount --background --store /mnt/store --allow-other /mnt/mnt
info 'rw,nosuid,nodev,' default_permissions allow_other
check 0 '' as 65534 sh -c 'ls -lR $S > /dev/null && echo mine > $S/append/user && [ "$(cat $S/head)" = mine ]'
check 2 'Permission denied' as 65534 sh -c 'echo x > $S/transcript.md'
check 1 'Permission denied' as 65534 cat $O/head_id # ls -l sessions opens none: now its owner is known
check 2 'Permission denied' as 65534 ls $O
check 2 'Permission denied' as 65534 sh -c "echo x > $O/head_id"
check 2 'Permission denied' as 65533 ls $O # who may not pass sessions/
check 2 'Permission denied' as 65532 ls /mnt/mnt
check 0 '' as 65534 sh -c 'echo a > $S/attachments/a && chmod 600 $S/attachments/a && mkdir $S/attachments/d'
owner 65534 $W/a
owner 65534 $W/d
chown 65533 $W/a
check 1 'Permission denied' as 65534 cat $S/attachments/a
chmod 644 $W/a
check 0 '^a$' as 65534 cat $S/attachments/a
check 2 'Permission denied' as 65534 sh -c 'echo b >> $S/attachments/a'
check 0 '' sessionfs umount /mnt/mnt
gone
`)
}

// TestFstab: a line of fstab mounts for root, and for a user who may; mount(8)
// finds the helper by the type's name.
func TestFstab(t *testing.T) {
	private(t, `
helper
line '/mnt/store /mnt/mnt fuse.sessionfs ro,noauto,nofail,noexec,x-systemd.automount 0 0'
check 0 '' mount /mnt/mnt
info 'nosuid,nodev,noexec,' ' fuse.sessionfs /mnt/store ro,'
check 0 '' ls /mnt/mnt/sessions
check 32 'already' mount /mnt/mnt
check 0 '' umount /mnt/mnt
gone
check 0 '' mount -t fuse.sessionfs -o rw /mnt/store /mnt/mnt
info ' rw,nosuid,nodev,' ' fuse.sessionfs /mnt/store '
check 0 '' sessionfs umount /mnt/mnt
gone
check 1 'unknown mount option "frobnicate"' mount -t fuse.sessionfs -o frobnicate /mnt/store /mnt/mnt
check 32 '^sessionfs: ' mount -t fuse.sessionfs /mnt/nosuch /mnt/mnt
gone
line '/mnt/store /mnt/mnt fuse.sessionfs noauto,user 0 0'
check 0 '' as 65534 mount /mnt/mnt
info ' rw,nosuid,nodev,' user_id=65534
check 0 '' as 65534 sh -c 'echo hi > $S/append/user && [ "$(cat $S/head)" = hi ]'
check 0 '' as 65534 sessionfs umount /mnt/mnt
gone
`, "fusermount3")
}

// TestNoHelper: an ordinary user on a machine without fusermount3 is told in
// one line what to install.
func TestNoHelper(t *testing.T) {
	private(t, `
for dir in /bin /usr/bin /usr/local/bin; do
	for f in $dir/fusermount3 $dir/fusermount; do [ ! -e $f ] || mount --bind /dev/null "$(readlink -f $f)"; done
done
check 9 '^sessionfs: mount: fusermount3 is not installed, and only root can mount without it$|^hint: install the package fuse3$' as 65534 sessionfs mount /mnt/mnt
gone
`)
}
