#!/usr/bin/env bash
# Everything that must hold before a change goes in: "make test" and .ci/run.
# "all.sh lint" stops before the tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
GO=${GO:-go}

die() { printf 'make test: %s\n' "$*" >&2; exit 1; }
say() { printf '== %s\n' "$*"; }

command -v "$GO" >/dev/null || die "Go is missing: install it from https://go.dev/dl/ (go.mod names the version)"

lint() {
	say "gofmt"
	local bad
	bad=$(find . -name '*.go' -not -path './.git/*' -not -path './demo/*' -print0 | xargs -0 gofmt -l)
	[ -z "$bad" ] || die "gofmt would change:"$'\n'"$bad"
	say "go vet"
	"$GO" vet ./...
	say "staticcheck"
	"$GO" tool staticcheck ./...
}

# The programs that tests need beside a plain system's, each with the Debian
# package that has it. The race detector needs the C compiler.
needs=(cc:gcc vim:vim nano:nano emacs:emacs-nox ed:ed perl:perl patch:patch rsync:rsync busybox:busybox git:git python3:python3 script:bsdutils make:make dpkg-deb:dpkg fusermount3:fuse3 unshare:util-linux)

install_tools() {
	local missing=() packages=() pair
	for pair in "${needs[@]}"; do
		command -v "${pair%%:*}" >/dev/null && continue
		missing+=("${pair%%:*}")
		packages+=("${pair#*:}")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		say "installing ${packages[*]}"
		[ "${packages[0]}" != gcc ] || packages+=(libc6-dev)
		if { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "${packages[@]}"; } >/dev/null 2>&1 </dev/null; then
			return 0
		fi
	fi
	say "missing, what needs them is left out: ${missing[*]}"
}

lint
[ "${1:-}" != lint ] || exit 0
install_tools

# The race detector needs a C compiler; without one the tests still run.
race=(-race)
if ! command -v cc >/dev/null; then
	race=()
	say "no C compiler (cc): testing without the race detector"
fi

# A program built with the race detector sleeps a second before it exits, and
# the scripts start some thousand of them.
export GORACE="${GORACE:-atexit_sleep_ms=0}"

# Everything that the tests leave would lie here.
TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/sessionfs-all-XXXXXX")
chmod 711 "$TMPDIR" # a test runs the program as another user
export TMPDIR
leftovers() {
	local mounts
	mounts=$(awk -v dir="$TMPDIR/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo)
	printf '%s\n' "$mounts" | while read -r m; do
		[ -z "$m" ] || { printf 'mount left: %s\n' "$m"; umount -l "$m"; }
	done
	find "$TMPDIR" -mindepth 1 -maxdepth 1 -printf 'left in TMPDIR: %f\n'
	local exe
	for exe in /proc/[0-9]*/exe; do
		case $(readlink "$exe" 2>/dev/null) in
		"$TMPDIR"/*) printf 'process left: %s\n' "$(basename "$(dirname "$exe")")" ;;
		esac
	done
}
trap 'rm -rf --one-file-system "$TMPDIR"' EXIT

# Mounted suites run one package at a time: two of them on two cores only
# slow one another down, and their limits of time would mean less. They are
# never taken from the test cache.
say "go test"
mounted='/sessionfs/(test|fsnode)(/|$)'
packages=$("$GO" list ./...)
status=0
# shellcheck disable=SC2046 # package paths have no blanks
"$GO" test "${race[@]}" -timeout 10m $(grep -Ev "$mounted" <<<"$packages") || status=$?
if grep -qE "$mounted" <<<"$packages"; then
	# shellcheck disable=SC2046
	"$GO" test "${race[@]}" -count=1 -p 1 -timeout 40m $(grep -E "$mounted" <<<"$packages") || status=$?
fi

# Emacs compiles its own libraries in the background, in files of its own.
rm -f "$TMPDIR"/emacs-async-comp-*
left=$(leftovers)
[ -z "$left" ] || { printf '%s\n' "$left" >&2; die "the tests left something behind"; }
[ "$status" = 0 ] || die "some tests failed"
say "all good"
