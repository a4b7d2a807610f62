#!/bin/sh
# rootfs.sh DIRECTORY BINARY: copies the files of the image from this system, a Debian with clang, libbpf-dev and
# linux-libc-dev: the daemon, clang with its libraries, the headers that eBPF C includes, and the commands of the
# chart's init containers. `WITHOUT_COMPILER=1` leaves the compiler out, for objects that were compiled elsewhere.
set -eu
root=$1 binary=$2
rm -rf "$root"
mkdir -p "$root/usr/bin" "$root/etc" "$root/proc" "$root/sys/fs/bpf" "$root/dev" "$root/tmp" "$root/run/twinprobe" \
    "$root/var/lib/twinprobe" "$root/usr/share/sbom"
chmod 1777 "$root/tmp"
chmod 0700 "$root/run/twinprobe" "$root/var/lib/twinprobe"
# /bin, /lib and so on are links into /usr, as in Debian.
for name in bin lib lib64 sbin; do
    mkdir -p "$root/usr/$name"
    ln -s "usr/$name" "$root/$name"
done
printf 'root:x:0:0:root:/:/bin/sh\ntwinprobe:x:65532:65532::/:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\ntwinprobe:x:65532:\n' >"$root/etc/group"

# copy PATH...: copies files with the links that lead to them.
copy() {
    for path in "$@"; do
        while [ -L "$path" ]; do
            directory=$(realpath "$(dirname "$path")")
            mkdir -p "$root$directory"
            cp -P "$directory/$(basename "$path")" "$root$directory/"
            target=$(readlink "$path")
            case $target in /*) path=$target ;; *) path=$directory/$target ;; esac
        done
        path=$(realpath "$path")
        mkdir -p "$root$(dirname "$path")"
        [ -e "$root$path" ] || cp -pR "$path" "$root$path"
    done
}

# libraries FILE...: copies the shared libraries of programs, and the dynamic loader.
libraries() {
    # shellcheck disable=SC2046 # paths without spaces
    copy $(ldd "$@" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*/\1/p' | sort -u)
}

for command in sh cp mv mount mountpoint; do
    path=$(command -v "$command")
    copy "$path"
    libraries "$path"
done
if [ -z "${WITHOUT_COMPILER:-}" ]; then
    clang=$(command -v clang)
    copy "$clang"
    libraries "$clang"
    # The compiler's own headers, except those about a processor's instructions.
    copy "$(clang -print-resource-dir)"/include/std*.h "$(clang -print-resource-dir)"/include/limits.h
    # eBPF programs can't use libc. So the image has only the headers of the kernel's interfaces and of libbpf.
    copy /usr/include/linux /usr/include/asm-generic "/usr/include/$(clang -print-multiarch 2>/dev/null || gcc -print-multiarch)/asm" \
        /usr/include/bpf
fi
# The authorities of TLS: for receivers of a stream, of notifications of rules, and for other daemons.
copy /etc/ssl/certs/ca-certificates.crt
# The sender of windows, the operator and the agent of a node are in the same image, so that a node fetches only one.
cp "$binary" "$root/usr/bin/twinprobe"
for name in twinprobe-stream twinprobe-operator; do
    cp "$(dirname "$binary")/$name" "$root/usr/bin/$name"
done
libraries "$root"/usr/bin/twinprobe*
strip --strip-debug "$root"/usr/bin/twinprobe*
python3 "$(dirname "$0")/sbom.py" "$root" >"$root/usr/share/sbom/twinprobe.cdx.json"
