#!/usr/bin/env bash
# Builds the Debian package out of what "make install" installs. Run it through
# "make deb". The same sources, version and SOURCE_DATE_EPOCH give the same
# bytes, whoever builds where.
#
#   build.sh                 reads BIN VERSION SOURCE_DATE_EPOCH MAINTAINER OUT
#   build.sh --version TEXT  prints the package version for git describe's TEXT
set -euo pipefail
umask 022
export LC_ALL=C TZ=UTC
: "${SOURCE_DATE_EPOCH:?is not set: run make deb}"
export SOURCE_DATE_EPOCH

die() { printf 'make deb: %s\n' "$*" >&2; exit 1; }

# What git describe says, as dpkg sorts it: v1.2.0-rc1 < v1.2.0 < v1.2.0-3-gabc.
# Without a tag there is a commit alone; its time sorts, and below any release.
debian_version() {
	local v=$1 after='' dirty=''
	case $v in *-dirty) dirty=+dirty v=${v%-dirty} ;; esac
	if [[ $v =~ ^(.+)-([0-9]+)-(g[0-9a-f]+)$ ]]; then
		v=${BASH_REMATCH[1]} after=+${BASH_REMATCH[2]}.${BASH_REMATCH[3]}
	fi
	if [[ ! $v =~ ^v?[0-9] || $v =~ ^[0-9a-f]{7,40}$ ]]; then
		v=0~$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d.%H%M%S).$v
	else
		v=${v#v}
		case $v in *-*) v=${v%%-*}~${v#*-} ;; esac
	fi
	v=${v//[^A-Za-z0-9.+~]/.}
	printf '%s%s%s-1\n' "$v" "$after" "$dirty"
}

if [ "${1:-}" = --version ]; then
	debian_version "$2"
	exit
fi
: "${BIN:?}" "${VERSION:?}" "${MAINTAINER:?}" "${OUT:?}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
command -v dpkg-deb >/dev/null || die "dpkg-deb is missing (Debian and Ubuntu: package dpkg; elsewhere often dpkg too)"

# The binary knows for what machine it is.
goarch=$("$BIN" version --json | sed 's/.*"arch":"\([^"]*\)".*/\1/')
case $goarch in
386) arch=i386 ;;
arm) arch=armhf ;;
ppc64le) arch=ppc64el ;;
loong64) arch=loong64 ;;
mipsle) arch=mipsel ;;
*) arch=$goarch ;;
esac
version=$(debian_version "$VERSION")

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
make -s install BIN="$BIN" DESTDIR="$stage" PREFIX=/usr MOUNTDIR=/usr/sbin UNITDIR=/usr/lib/systemd/user ZSHDIR=/usr/share/zsh/vendor-completions

# Debian's ways: compressed pages, relative links, everything under doc/.
man=$stage/usr/share/man doc=$stage/usr/share/doc/sessionfs
gzip -9n "$man/man1/sessionfs.1"
mkdir -p "$man/man8" "$doc/docs"
for name in mount.sessionfs mount.fuse.sessionfs; do
	ln -sf ../bin/sessionfs "$stage/usr/sbin/$name"
	ln -s ../man1/sessionfs.1.gz "$man/man8/$name.8.gz"
done
install -m 0644 README.md "$doc/README.md"
install -m 0644 docs/*.md "$doc/docs/"
rm -f "$doc/docs/sessionfs.1.md" # the man page
gzip -9n <CHANGELOG.md >"$doc/changelog.gz"
gzip -9n >"$doc/changelog.Debian.gz" <<EOF
sessionfs ($version) unstable; urgency=medium

  * Packaged by "make deb" from $VERSION.

 -- $MAINTAINER  $(date -R -u -d "@$SOURCE_DATE_EPOCH")
EOF
{
	printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n'
	printf 'Upstream-Name: sessionfs\nSource: https://github.com/sessionfs/sessionfs\n\n'
	printf 'Files: *\nCopyright: %s\nLicense: Expat\n' "$(sed -n 's/^Copyright (c) //p' LICENSE)"
	sed -n '/^Permission is hereby/,$p' LICENSE | sed 's/^$/./; s/^/ /'
} >"$doc/copyright"

mkdir -p "$stage/usr/share/lintian/overrides"
cat >"$stage/usr/share/lintian/overrides/sessionfs" <<'EOF'
# A Go program without C has no library to link with.
sessionfs: statically-linked-binary [usr/bin/sessionfs]
# The package is the project's own, not an upload to Debian.
sessionfs: initial-upload-closes-no-bugs [usr/share/doc/sessionfs/changelog.Debian.gz:1]
EOF

control=$stage/DEBIAN
mkdir "$control"
(cd "$stage" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$control/md5sums"
# Rounded up for each file, as Debian counts it: it does not depend on the disk.
size=$(find "$stage/usr" \( -type f -printf '%s\n' -o -printf '1\n' \) | awk '{ n += int(($1 + 1023) / 1024) } END { print n }')
cat >"$control/control" <<EOF
Package: sessionfs
Version: $version
Architecture: $arch
Maintainer: $MAINTAINER
Installed-Size: $size
Recommends: fuse3
Suggests: graphviz
Section: utils
Priority: optional
Homepage: https://github.com/sessionfs/sessionfs
Description: mount AI chat sessions as a filesystem
 sessionfs shows a store of AI chat sessions as a tree of files: messages as
 text, branches as directories, and the active head as a symbolic link that
 can be moved. The same operations are commands, whether the store is mounted
 or not. The store is a directory with a Git repository for each session, in
 the format of OpenProgram, and both may use it at once.
 .
 The package fuse3 lets users other than root mount.
EOF
chmod 644 "$control"/* "$doc"/copyright
find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

mkdir -p "$OUT"
# One package lies there, so that "apt install ./bin/sessionfs_*.deb" is clear.
rm -f "$OUT"/sessionfs_*_"$arch".deb
# One thread and one compressor: another number or kind gives other bytes.
DPKG_DEB_THREADS_MAX=1 dpkg-deb --root-owner-group -Zxz --build "$stage" "$OUT/sessionfs_${version}_$arch.deb" >/dev/null
printf '%s\n' "$OUT/sessionfs_${version}_$arch.deb"
