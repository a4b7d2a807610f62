#!/bin/sh
# boot.sh DIRECTORY TESTS: boots the kernel in DIRECTORY (fetch.sh) and runs the script TESTS there, as root, on this
# machine's files. Leaves the kernel's messages in DIRECTORY/console and the tests' output in DIRECTORY/result.
#
# The guest has one processor of the plainest kind: emulated processors that wait for each other are slow.
set -eu

directory=$1
tests=$2
# A guest without output for this long hangs: a test prints its name when it begins and its result when it ends, and no
# test takes longer than half a minute. The whole run has no limit, because its duration depends on the machine.
silent_seconds=${TWINPROBE_SILENT_SECONDS:-300}

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
    : >"$directory/console"
    : >"$directory/result"
    qemu-system-x86_64 -accel tcg,tb-size=256 -cpu qemu64 -smp 1 -m 1024 \
        -nodefaults -no-user-config -display none -no-reboot \
        -kernel "$directory/vmlinuz" -initrd "$initrd.cpio" -append "console=ttyS0 quiet panic=-1 oops=panic" \
        -serial "file:$directory/console" -serial "file:$directory/result" \
        -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap </dev/null &
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
            echo "$directory: ended, as it said nothing for $silent_seconds s" >&2
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
boot || boot || { echo "$directory: the kernel did not boot, see $directory/console" >&2; exit 1; }
