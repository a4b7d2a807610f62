#!/bin/sh
# build.sh OUTPUT [OPTION...]: writes the Debian package of the binary that is built already to OUTPUT. The options are those
# of cargo-deb, for example --profile dev.
set -eu
output=$1
shift
cd "$(dirname "$0")/../.."
case " $* " in *" --profile dev "*) profile=debug ;; *) profile=release ;; esac
binary=${CARGO_TARGET_DIR:-target}/$profile/twinprobe

# The binary writes its manual pages and completions.
rm -rf target/deb
mkdir -p target/deb/man target/deb/completions
"$binary" man target/deb/man
"$binary" completions bash >target/deb/completions/twinprobe
"$binary" completions zsh >target/deb/completions/_twinprobe
"$binary" completions fish >target/deb/completions/twinprobe.fish
gzip -9n target/deb/man/*

cargo deb --no-build --quiet --package twinprobe --output "$output" "$@"
