#!/bin/sh
# build.sh TAG [BINARY]: builds the container image with podman, or with the command in PODMAN. Call it on Debian or in
# a Debian container, because the image gets the system's clang and headers. WITHOUT_COMPILER=1 leaves the compiler out.
set -eu
cd "$(dirname "$0")/../.."
binary=${2:-${CARGO_TARGET_DIR:-target}/release/twinprobe}
context=${CONTEXT:-target/image}
mkdir -p "$context"
sh deploy/image/rootfs.sh "$context/rootfs" "$binary"
# shellcheck disable=SC2086 # a command with its options
${PODMAN:-podman} build --quiet --file deploy/Containerfile --tag "$1" "$context"
