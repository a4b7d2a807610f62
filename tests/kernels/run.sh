#!/bin/sh
# Runs the core of the kernel tests on other kernels, under qemu with software emulation: run.sh [SUITE...]
set -eu
cd "$(dirname "$0")/../.."
PATH="$PATH:/usr/sbin:/sbin"
kernels=${CARGO_TARGET_DIR:-target}/kernels
here=tests/kernels

