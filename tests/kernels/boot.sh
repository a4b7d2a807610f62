#!/bin/sh
# boot.sh ARCHITECTURE DIRECTORY TESTS: boots the kernel in DIRECTORY (fetch.sh) and runs the script TESTS there, as
# root, on this machine's files. DIRECTORY/console gets the kernel's messages, DIRECTORY/result the tests' output.
#
# The guest has one processor, because emulated processors that wait for each other are slow. For x86-64 its model is
# the plainest one. For arm64 it has the atomic instructions of servers.
set -eu

architecture=$1
directory=$2
tests=$3
# A guest without output for this long hangs: a test prints its name when it begins and its result when it ends, and no
# test takes longer than half a minute. The whole run has no limit, because its duration depends on the machine.
silent_seconds=${TWINPROBE_SILENT_SECONDS:-600}

initrd=$directory/initrd
rm -rf "$initrd" "$initrd.cpio"
mkdir "$initrd"
cp -r "$directory/busybox" "$directory/modules" "$initrd"
cp "$(dirname "$0")/init" "$initrd/init"
cp "$tests" "$initrd/tests"
chmod +x "$initrd/init"
(cd "$initrd" && find . | ../busybox-here cpio -o -H newc 2>/dev/null) >"$initrd.cpio"

case $architecture in
amd64)
    # The network card has no cable. Its driver has LRO, which no other device of the tests has.
    set -- qemu-system-x86_64 -cpu qemu64 -serial "file:$directory/console" -serial "file:$directory/result" \
        -device vmxnet3,romfile=
    console=ttyS0 result=ttyS1
    ;;
arm64)
    # The machine `virt` has only one serial line.
    set -- qemu-system-aarch64 -machine virt -cpu neoverse-n1 -serial "file:$directory/console" \
        -chardev "file,id=result,path=$directory/result" -device pci-serial,chardev=result
    console=ttyAMA0 result=ttyS0
    ;;
esac
# Parameters that the kernel does not know become variables of the guest's first process.
parameters="console=$console quiet panic=-1 oops=panic result=$result"
# The options of directories that the guest sees.
shared=security_model=none,readonly=on,multidevs=remap
if [ -e "$directory/userland" ]; then
    set -- "$@" -virtfs "local,path=$directory/userland,mount_tag=userland,$shared"
    parameters="$parameters userland=yes"
fi

trap 'exit 1' INT TERM

boot() {
    : >"$directory/console"
    : >"$directory/result"
    "$@" -accel tcg,tb-size=256 -smp 1 -m 1024 -nodefaults -no-user-config -display none -no-reboot \
        -kernel "$directory/vmlinuz" -initrd "$initrd.cpio" -append "$parameters" \
        -virtfs "local,path=/,mount_tag=host,$shared" </dev/null &
    qemu=$!
    trap 'kill -KILL "$qemu" 2>/dev/null || true' EXIT
    said=0
    silent=0
    while kill -0 "$qemu" 2>/dev/null; do
        sleep 1
        silent=$((silent + 1))
        says=$(cat "$directory/console" "$directory/result" | wc -c)
        if [ "$says" -ne "$said" ]; then
            said=$says
            silent=0
        elif [ "$silent" -ge "$silent_seconds" ]; then
            echo "$directory: ended, as it said nothing for $silent_seconds s; the last it said:" >&2
            tail -n 5 "$directory/console" "$directory/result" >&2
            kill -KILL "$qemu"
            break
        fi
    done
    wait "$qemu" || true
    trap - EXIT
    # The result of a guest that was killed lacks the line "ended".
    grep -q '^booted ' "$directory/result"
}

# Emulation may fail to start on a busy machine, so the boot is tried twice. Failed tests are not repeated.
boot "$@" || boot "$@" || { echo "$directory: the kernel did not boot, see $directory/console" >&2; exit 1; }
