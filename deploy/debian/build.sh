#!/bin/sh
# build.sh OUTPUT [BINARY [OPTION...]]: writes the Debian package of BINARY and the twinprobe-stream beside it to
# OUTPUT, with debhelper. Both must be built already. The options are those of dpkg-deb: -Zgzip -z1 makes a larger
# package, but is faster.
set -eu
cd "$(dirname "$0")/../.."
root=$PWD
output=$(realpath "$1")
shift
binary=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/release/twinprobe}")
[ $# -eq 0 ] || shift

# debhelper works in a directory debian/ of its own. The package's files are below debian/twinprobe.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/debian"
cd "$root/deploy/debian"
cp control copyright default install postinst postrm prerm ../twinprobe.service "$work/debian"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | tr - '~')
maintainer=$(sed -n 's/^Maintainer: //p' control)
cd "$work"
# debhelper reads the version here only. The package has CHANGELOG.md instead.
cat >debian/changelog <<END
twinprobe ($version-1) unstable; urgency=medium

  * See CHANGELOG.md.

 -- $maintainer  $(date -R)
END

# dpkg-deb needs no root to write root as the owner. This script sets the variable in place of dpkg-buildpackage.
export DEB_RULES_REQUIRES_ROOT=no

share=debian/twinprobe/usr/share
install -D "$binary" debian/twinprobe/usr/bin/twinprobe
# twinprobe-stream is beside the binary.
install -D "$(dirname "$binary")/twinprobe-stream" debian/twinprobe/usr/bin/twinprobe-stream
install -D "$root/probes/README.md" $share/doc/twinprobe/probes.md
# The binary writes its manual pages and completions.
mkdir -p $share/man/man1 $share/bash-completion/completions $share/zsh/vendor-completions $share/fish/vendor_completions.d
"$binary" man $share/man/man1
"$binary" completions bash >$share/bash-completion/completions/twinprobe
"$binary" completions zsh >$share/zsh/vendor-completions/_twinprobe
"$binary" completions fish >$share/fish/vendor_completions.d/twinprobe.fish

dh_install --sourcedir="$root"
dh_installdocs
dh_installinit # etc/default/twinprobe
# Enables and starts the unit. An upgrade only restarts it at the end, which is the default since compat 10.
dh_installsystemd
# Documentation is read in place, and its links name uncompressed files.
dh_compress --exclude=usr/share/doc
dh_fixperms
dh_strip --no-automatic-dbgsym
dh_shlibdeps
dh_installdeb
dh_gencontrol
dh_md5sums
dpkg-deb --root-owner-group "$@" --build debian/twinprobe "$output"
