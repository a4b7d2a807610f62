#!/bin/sh
# boot.sh DIRECTORY TESTS: boots the kernel in DIRECTORY (fetch.sh) and runs the script TESTS there, as root, on this
# machine's files. Leaves what the kernel said in DIRECTORY/console and what the tests said in DIRECTORY/result.
#
# One processor, as emulated ones that wait for each other are slow, and of the plainest kind.
set -eu

directory=$1
tests=$2
boot_seconds=90
all_seconds=400

initrd=$directory/initrd
rm -rf "$initrd" "$initrd.cpio"
mkdir "$initrd"
cp -r "$directory/busybox" "$directory/modules" "$initrd"
cp "$(dirname "$0")/init" "$initrd/init"
cp "$tests" "$initrd/tests"
chmod +x "$initrd/init"
(cd "$initrd" && find . | ./busybox cpio -o -H newc 2>/dev/null) >"$initrd.cpio"

trap 'exit 1' INT TERM

boot() {
    : >"$directory/result"
    timeout -k 5 "$all_seconds" qemu-system-x86_64 -accel tcg,tb-size=256 -cpu qemu64 -smp 1 -m 1024 \
        -nodefaults -no-user-config -display none -no-reboot \
        -kernel "$directory/vmlinuz" -initrd "$initrd.cpio" -append "console=ttyS0 quiet panic=-1 oops=panic" \
        -serial "file:$directory/console" -serial "file:$directory/result" \
        -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap </dev/null &
    qemu=$!
    trap 'kill "$qemu" 2>/dev/null || true' EXIT
    waited=0
    until grep -q '^booted ' "$directory/result"; do
        if [ "$waited" -ge "$boot_seconds" ] || ! kill -0 "$qemu" 2>/dev/null; then
            kill "$qemu" 2>/dev/null || true
            wait "$qemu" || true
            return 1
        fi
        sleep 1
        waited=$((waited + 1))
    done
    # A time-out shows in the result, which has no end then.
    wait "$qemu" || true
}

# Emulation may fail to start on a machine that is busy; what the tests say is final.
boot || boot || { echo "$directory: the kernel did not boot, see $directory/console" >&2; exit 1; }
