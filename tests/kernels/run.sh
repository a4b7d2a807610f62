#!/bin/sh
# run.sh [amd64|arm64] [SUITE...]: runs the core tests on the kernels of these suites of the file `kernels`, all by
# default, for x86-64 or arm64. A test without success in the output has failed. Several may run at the same time.
set -eu
cd "$(dirname "$0")/../.."
here=tests/kernels

if [ "$(uname -m)" != x86_64 ]; then
    echo "test-kernels: SKIPPED, it needs an x86-64 machine" >&2
    exit 0
fi
architecture=amd64
case ${1:-} in
amd64 | arm64)
    architecture=$1
    shift
    ;;
esac

# executable NAME KIND CARGO-ARGUMENTS...: prints the test executable of this target.
executable() {
    target="\"kind\":\[\"$2\"\][^}]*\"name\":\"$1\""
    shift 2
    ${CARGO:-cargo} test --no-run --message-format=json-render-diagnostics "$@" |
        sed -n "/$target/{/\"profile\":{[^}]*\"test\":true/s/.*\"executable\":\"\([^\"]*\)\".*/\1/p}"
}
# executables CARGO-ARGUMENTS...: builds all test executables that are needed.
executables() {
    unit=$(executable twinprobe_kernel lib --lib "$@")
    compiler=$(executable twinprobe_compiler lib --lib "$@")
    core=$(executable core test --test core "$@")
    built=$(dirname "$(dirname "$core")")
}
# The arguments are those of `make test`, so that nothing is built twice.
executables
binary=${TWINPROBE_BIN:-$built/twinprobe}
kernels=$(dirname "$built")/kernels
record=record
if [ "$architecture" = arm64 ]; then
    kernels=$kernels/arm64
    record="record-arm64"
fi
mkdir -p "$kernels"

# Compiling in the emulated machine is slow. So the tests that compile run here first, and record the objects for the
# guest. They load programs into this machine's kernel, as root.
as_root=""
[ "$(id -u)" -eq 0 ] || as_root="sudo -E"
clang=$(command -v "${TWINPROBE_CLANG:-clang}") || { echo "no clang" >&2; exit 1; }
prepare() {
    if ! $as_root env TWINPROBE_BIN="$binary" PATH="$kernels/clang/bin:$PATH" \
        "$built/prepared-clang" $record "$kernels/clang" "$clang" \
        "$core" --test-threads=1 \
        >"$kernels/here.txt" 2>&1; then
        cat "$kernels/here.txt" >&2
        echo "the core tests fail on this machine's own kernel" >&2
        return 1
    fi
}
# The first of several runs records. The recording serves the same executables.
(
    flock 9
    recorded=$(stat -c '%n %y' "$core" "$binary" "$built/prepared-clang" "$clang")
    if [ "$recorded" != "$(cat "$kernels/recorded" 2>/dev/null)" ]; then
        rm -f "$kernels/recorded"
        prepare
        echo "$recorded" >"$kernels/recorded"
    fi
) 9>"$kernels/lock"

# Skips tests that need no kernel (plans, the analysis, the dispatcher's interpreter, files), tests that only take long
# in the guest (speed, a million entries, trials of compiled programs, which the core tests also make), and a race
# that needs two processors. `make soak` runs the tests that only repeat others: all sizes, kills, time limits.
filter="--skip ::timed --skip ::soak --skip plan:: --skip admit:: --skip attach::dispatcher::program --skip bind::calls --skip bind::prints"
filter="$filter --skip speed --skip million --skip trial::cost --skip maps_that_change --skip while_it_grows"
if [ "${TWINPROBE_SCALE:-}" != full ]; then
    filter="$filter --skip odd_sizes --skip all_sizes --skip large_queues --skip journal::tests::killed --skip net::patience"
    filter="$filter --skip load::deadline --skip load::both --skip the_maps_in_maps_are_read --skip many_maps"
fi
# Parsing every header takes the emulated verifier longer than a daemon allows.
slow="--skip ::timed --skip ::soak --skip one_source_for_all_hooks"
# The guests for x86-64 have a network card with LRO.
lro=""
[ "$architecture" != amd64 ] || lro="export TWINPROBE_LRO=yes"
# shellcheck disable=SC2086 # a list of words
{ "$unit" $filter --list && "$compiler" confine --list && "$core" $slow --list; } | sed -n 's/: test$//p' >"$kernels/expected.$$"
expected=$kernels/expected.$$
trap 'rm -f "$expected"' EXIT

if [ "$architecture" = arm64 ]; then
    # Only x86-64 has the x32 ABI.
    sed -i /calls_by_the_numbers_of_another_abi/d "$expected"
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    cross="--target aarch64-unknown-linux-gnu -p twinprobe -p twinprobe-tests -p twinprobe-kernel -p twinprobe-compiler"
    # shellcheck disable=SC2086 # a list of words
    {
        # With a test selected, dependencies have the same features as in tests.
        ${CARGO:-cargo} build $cross --bin twinprobe --bin prepared-clang --test core
        executables $cross
    }
    binary=$built/twinprobe
    $as_root cp "$built/prepared-clang" "$kernels/clang/bin/clang"
fi

# libxdp's dispatcher takes probes on these kernels since its version 1.6, which Debian has since forky. Only x86-64
# guests have its loader and join a dispatcher.
loader=$kernels/xdp-tools/xdp-loader
if [ "$architecture" = amd64 ]; then
    (
        flock 9
        [ "$kernels/xdp-tools/version" -nt $here/fetch.sh ] || sh $here/fetch.sh forky amd64 "$kernels/xdp-tools" loader
    ) 9>"$kernels/lock"
fi

# one SUITE VERSION FEATURES: runs the tests on one kernel.
one() {
    directory=$kernels/$1
    [ "$directory/version" -nt $here/fetch.sh ] || sh $here/fetch.sh "$1" "$architecture" "$directory" || return 1
    case $(cat "$directory/version") in
    "$2".*) ;;
    *) echo "$1 has Linux $(cat "$directory/version"), not $2: remove $directory" >&2 && return 1 ;;
    esac
    cat >"$directory/tests" <<EOF
export PATH=/run/clang/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export TWINPROBE_BIN='$binary' TWINPROBE_EXPECT='$3' TWINPROBE_CLANG=/run/clang/bin/clang
export TWINPROBE_XDP_LOADER='$loader' TWINPROBE_LINUX='$2'
# The guests have modules for all kinds of links.
export TWINPROBE_ALL_LINKS=yes
$lro
# Every user can reach /run/clang, unlike the directory of the tests.
cp -r '$kernels/clang' /run/clang
'$unit' $filter --test-threads=1 --color=never
'$compiler' confine --test-threads=1 --color=never
'$core' $slow --test-threads=1 --color=never
EOF
    started=$(date +%s)
    sh $here/boot.sh "$architecture" "$directory" "$directory/tests" || return 1
    tr -d '\r' <"$directory/result" >"$directory/result.txt"
    failed=""
    while read -r test; do
        grep -qxF "test $test ... ok" "$directory/result.txt" || failed="$failed $test"
    done <"$expected"
    grep -qx ended "$directory/result.txt" || failed="$failed (it did not come to its end)"
    if [ -n "$failed" ]; then
        sed -n '/^failures:$/,$p' "$directory/result.txt" >&2
        echo "Linux $2: FAILED:$failed; see $directory/result.txt and $directory/console" >&2
        return 1
    fi
    echo "Linux $(cat "$directory/version"): $(wc -l <"$expected") tests ok, $(($(date +%s) - started)) s"
}

# The guests run at the same time, because each has one processor.
pids=""
while read -r suite of version features; do
    [ "$of" = "$architecture" ] || continue
    case " ${*:-$suite} " in *" $suite "*) ;; *) continue ;; esac
    one "$suite" "$version" "$features" &
    pids="$pids $!"
done <<EOF
$(grep -v '^#' $here/kernels)
EOF
[ -n "$pids" ] || { echo "no such suite in $here/kernels: $*" >&2; exit 1; }
status=0
for pid in $pids; do
    wait "$pid" || status=1
done
exit $status
