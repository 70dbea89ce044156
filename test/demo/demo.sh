#!/usr/bin/env bash
# The main job on a sample store, by real commands: "make demo". Every result
# is checked, so that this is a test as well; it may be run again and again.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

die() { printf 'make demo: %s\n' "$*" >&2; exit 1; }

GO=${GO:-go}
command -v "$GO" >/dev/null || die "Go is missing: install it from https://go.dev/dl/ (go.mod names the version)"
[ -e /dev/fuse ] || die "FUSE is missing: load the fuse module (modprobe fuse), or start the container with --device /dev/fuse --cap-add SYS_ADMIN"

top=$PWD
demo=$top/demo
mnt=$demo/mnt
# The demo keeps its logs and leftovers to itself.
export XDG_STATE_HOME=$demo/state SESSIONFS_STORE=$demo/store
export PATH=$top/bin:$PATH
make --no-print-directory build GO="$GO" || die "the build failed"

mkdir -p "$demo" || die "cannot write to $demo"
if grep -qF " $mnt fuse" /proc/mounts; then
	sessionfs umount "$mnt" 2>/dev/null || sessionfs umount --lazy "$mnt" || die "the last demo's mount cannot be taken away"
fi
mkdir -p "$mnt"
if [ ! -d "$SESSIONFS_STORE" ]; then
	trap 'rm -rf "$SESSIONFS_STORE"; exit 1' INT TERM HUP # half a sample is no sample
	sessionfs sample-store "$SESSIONFS_STORE" || { rm -rf "$SESSIONFS_STORE"; die "the sample store could not be written"; }
	trap - INT TERM HUP
fi
sessionfs mount --background "$mnt" || die "the mount failed"

failed=0
out=
status=0
bold= colour= plain=
[ ! -t 1 ] || [ -n "${NO_COLOR:-}" ] || { bold=$'\033[1m' colour=$'\033[36m' plain=$'\033[0m'; }

# run CMD prints a command, runs it in the current directory and prints what
# it said. Its output and status are kept for the checks that follow. It runs
# in this shell, so that "exec 3>ctl" and "cd" last.
run() {
	printf '%s$ %s%s\n' "$bold" "$1" "$plain"
	eval "$1" >"$demo/out" 2>&1
	status=$?
	out=$(cat "$demo/out")
	[ -z "$out" ] || printf '%s\n' "$out"
}
wrong() {
	printf '  ^ wrong: %s\n' "$*" >&2
	failed=$((failed + 1))
}
ok() { [ "$status" = 0 ] || wrong "the exit status is $status"; }
refused() { [ "$status" != 0 ] || wrong "this should have been refused"; }
is() { [ "$out" = "$1" ] || wrong "expected '$1'"; }
has() { case $out in *"$1"*) ;; *) wrong "expected to find '$1'" ;; esac; }
lacks() { case $out in *"$1"*) wrong "did not expect '$1'" ;; esac; }
# shows waits until a file of the mount has what another process wrote into the
# store: it comes within a tenth of a second, but not with the next call.
shows() {
	local i
	for i in $(seq 100); do
		[ "$(cat "$1")" != "$2" ] || return 0
		sleep 0.05
	done
}
note() { printf '\n%s# %s%s\n' "$colour" "$*" "$plain"; }

maples=c93d5e18_reply
food=7e20b6f4_reply
rain=1d88a3c0_reply
session=$mnt/sessions/local_demo
# Where the last demo, or somebody who looked around, left the sample session
# is not where this one begins: a name moves along with its branch.
for branch in "maples $maples" "food $food"; do
	sessionfs branch local_demo rm "${branch% *}" 2>/dev/null
	sessionfs branch local_demo name "${branch#* }" "${branch% *}" || die "the sample store was changed; 'make clean' removes it"
done
sleep 0.2 # what the verbs above wrote shows through the mount by then
echo "$maples" >"$session/head_id" || die "the sample store was changed; 'make clean' removes it"

note "A store of chat sessions is a tree of files"
run "cd demo/mnt; ls"; ok; has sessions; has archived
run "ls sessions archived"; ok; has local_demo; has local_zh; has local_old
run "sessionfs ls --archived"; ok; has "Two days in Kyoto"; has 京都; has "(archived)"

note "A session: the active branch as text, all branches, the head"
run "cd sessions/local_demo; ls"; ok; has messages; has append; has head_id
run "cat head_id"; ok; is "$maples"
run "readlink head"; ok; has "nodes/"; has "$maples"
run "ls messages"; ok; has 000004-assistant; lacks 000005
run "cat messages/*"; ok; has "maple leaves"; has "Tofuku-ji"
run "ls branch"; ok; has maples; has food

note "Move the head: write it, link it, rename a node onto it"
run "echo food > head_id"; ok
run "cat head_id"; ok; is "$food"
run "cat head"; ok; has Pontocho
run "ln -sfn branch/maples head"; ok
run "cat head_id"; ok; is "$maples"
run "tail -n 1 transcript.md"; ok; has Tofuku-ji
run "mv nodes/*-$rain.md head"; ok
run "cat head_id"; ok; is "$rain"
run "cat head"; ok; has Sanjusangen-do
run "ls nodes/*-$rain.md"; ok

note "Append a message"
run "echo 'Which bus goes there?' > append/user"; ok
run "cat head"; ok; is "Which bus goes there?"
run "ls messages"; ok; has 000005-user
appended=$(cat head_id)
[ "$appended" != "$rain" ] || wrong "the head did not advance"

note "Search every message of every branch, in every session"
run "grep -r umbrella ../*/nodes"; ok; has "$rain"
run "grep -rl 枫树 .."; ok; has local_zh
run "cat ../local_tools/nodes/*-c-*.md"; ok; has parser
run "ls ../local_files/attachments"; ok; has minutes.txt

note "While a run is active, the head stays where it is"
run "exec 3>ctl; echo begin >&3"; ok
run "cat fields/status"; ok; is running
run "echo food > head_id"; refused; has busy
run "mv nodes/*-$rain.md head"; refused; has busy
run "sessionfs head local_demo food"; refused; has "[run_active]"
[ "$status" = 5 ] || wrong "expected the exit status 5, got $status"
run "tail -n 1 ../../.sessionfs/errors"; ok; has run_active
run "cat head_id"; ok; is "$appended"
run "echo end >&3; exec 3>&-"; ok
run "sessionfs head local_demo food"; ok; is "$food"
shows head_id "$food"
run "cat head_id"; ok; is "$food"

cd "$top" || exit 1
rm -f "$demo/out"
[ "$failed" = 0 ] || die "$failed results are wrong"
cat <<END

# It is still mounted: look around in demo/mnt
# Take it away with:  bin/sessionfs umount demo/mnt
END
