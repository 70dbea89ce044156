# Functions for scripts that mount as other users: see private in
# users_test.go, which gives $1, the binary, and $2, a store.
set -u
mount -t tmpfs -o mode=755 none /mnt || exit 1
mkdir -p /mnt/bin /mnt/mnt /mnt/dev /mnt/store
cp "$1" /mnt/bin/sessionfs && cp -a "$2/." /mnt/store && chown -R 65534:65534 /mnt/store /mnt/mnt || exit 1
PATH=/mnt/bin:$PATH
export S=/mnt/mnt/sessions/local_nested_dd1d18bf

# The device as every system with udev has it.
mknod -m 666 /mnt/dev/fuse c 10 229 && mount --bind /mnt/dev/fuse /dev/fuse || exit 1

# conf LINE.. is fuse.conf; at first it is empty.
conf() { printf '%s\n' "$@" > /mnt/dev/fuse.conf; }
conf ''
[ ! -e /etc/fuse.conf ] || mount --bind /mnt/dev/fuse.conf /etc/fuse.conf || exit 1

# The users that the scripts speak of have names.
cp /etc/passwd /mnt/dev/passwd
for uid in 65532 65533; do echo "user$uid:x:$uid:$uid::/mnt/home/$uid:/bin/sh" >> /mnt/dev/passwd; done
mount --bind /mnt/dev/passwd /etc/passwd || exit 1

# line TEXT is fstab.
line() { printf '%s\n' "$1" > /mnt/dev/fstab; mount --bind /mnt/dev/fstab /etc/fstab; }

# helper puts the program where mount(8) looks for helpers.
helper() {
	local sbin
	sbin=$(readlink -f /sbin)
	mkdir /mnt/dev/sbin /mnt/dev/old && mount --bind "$sbin" /mnt/dev/old && ln -s /mnt/dev/old/* /mnt/dev/sbin &&
		ln -sf /mnt/bin/sessionfs /mnt/dev/sbin/mount.fuse.sessionfs && mount --bind /mnt/dev/sbin "$sbin"
}

# as UID COMMAND.. runs a command as a user who has a home and nothing else.
as() {
	local uid=$1
	shift
	mkdir -p "/mnt/home/$uid" && chown "$uid" "/mnt/home/$uid"
	HOME=/mnt/home/$uid XDG_STATE_HOME=/mnt/home/$uid SESSIONFS_STORE=/mnt/store \
		setpriv --reuid "$uid" --regid "$uid" --clear-groups -- "$@"
}

# check STATUS PATTERN COMMAND.. runs a command and compares its exit status and
# what it says; of an empty pattern it may say anything. Lines that a pattern
# parted by a "|" names must all be there.
check() {
	local want=$1 patterns=$2 got said pattern
	shift 2
	said=$("$@" 2>&1 < /dev/null)
	got=$?
	[ "$got" = "$want" ] || echo "$*: exit status $got, want $want: $said"
	while IFS= read -r -d '|' pattern; do
		grep -q -e "$pattern" <<< "$said" || echo "$*: no '$pattern' in: $said"
	done <<< "$patterns|"
}

# owner UID PATH compares an owner.
owner() {
	[ "$(stat -c %u "$2")" = "$1" ] || echo "$2 belongs to $(stat -c %u "$2"), want $1"
}

# info PATTERN.. looks for words in the mount's line of the mount table.
info() {
	local line pattern
	line=$(grep ' /mnt/mnt ' /proc/self/mountinfo) || echo "nothing is mounted"
	for pattern in "$@"; do
		case $line in *"$pattern"*) ;; *) echo "no '$pattern' in: $line" ;; esac
	done
}

# gone waits until nothing is mounted.
gone() {
	local i
	for i in $(seq 200); do
		grep -q ' /mnt/mnt ' /proc/self/mountinfo || return 0
		sleep 0.05
	done
	echo "still there: $(grep ' /mnt/mnt ' /proc/self/mountinfo)"
}
