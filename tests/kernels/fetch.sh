#!/bin/sh
# fetch.sh SUITE DIRECTORY: the kernel of another Debian suite, into DIRECTORY: vmlinuz, modules/, busybox, version.
#
# The packages come from the sources of this system, with the suite's name replaced, through separate lists and caches:
# those of the system are neither used nor changed, and root is not needed.
set -eu

suite=$1
directory=$2
# The modules that the guest needs to reach its file system, and the tests for interfaces and filters. A module that is
# built into a kernel has no file and is skipped.
modules="virtio_pci 9pnet_virtio 9p overlay veth bridge dummy sch_ingress cls_bpf act_bpf"

release=$(. /etc/os-release && echo "$VERSION_CODENAME")
rm -rf "$directory"
mkdir -p "$directory/work"
work=$(realpath "$directory/work")
mkdir -p "$work/sources" "$work/lists/partial" "$work/cache/archives/partial" "$work/root" "$directory/modules"

for source in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    if grep -qsw "$release" "$source"; then
        sed "s/\b$release\b/$suite/g" "$source" >"$work/sources/$(basename "$source")"
    fi
done

own() {
    tool=$1
    shift
    # The Release file of a suite that no longer changes is out of date, but its signature is still valid.
    "$tool" -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$work/sources" \
        -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" \
        -o Acquire::Check-Valid-Until=false -o Acquire::Retries=3 -o Acquire::Languages=none \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Sandbox::User=root "$@"
}

# A part of the suite may have moved away; the rest may still have a kernel.
own apt-get update || echo "$suite can't be read as a whole" >&2
package=$(own apt-cache show --no-all-versions linux-image-amd64 2>/dev/null |
    sed -n 's/^Depends: \(linux-image-[^ ,]*\).*/\1/p')
[ -n "$package" ] || { echo "no kernel found in $suite" >&2; exit 1; }
(cd "$work/cache" && own apt-get download "$package" busybox-static)
for file in "$work"/cache/*.deb; do
    dpkg-deb -x "$file" "$work/root"
done
[ -e "$work/root/lib" ] || ln -s usr/lib "$work/root/lib"

version=$(ls "$work/root/lib/modules")
find "$work/root" -name busybox -type f -perm /1 -exec cp {} "$directory/busybox" \;
cp "$work/root/boot/vmlinuz-$version" "$directory/vmlinuz"
"$directory/busybox" depmod -b "$work/root" "$version"
# modules.dep has lines `module: its dependencies`, the most basic last. The files' numbers are the order of loading.
n=10
for module in $modules; do
    line=$(grep -E "/$module\.ko[.a-z]*:" "$work/root/lib/modules/$version/modules.dep" | tr -d ':') || continue
    for file in $(printf '%s\n' $line | tac); do
        name=$(basename "$file" | sed 's/\.ko.*//')
        [ -e "$directory/modules/"*"-$name.ko" ] && continue
        case $file in
        *.xz) "$directory/busybox" xzcat "$work/root/lib/modules/$version/$file" ;;
        *) cat "$work/root/lib/modules/$version/$file" ;;
        esac >"$directory/modules/$n-$name.ko"
        n=$((n + 1))
    done
done
rm -r "$work"
# The version is written last: a directory that has it is complete.
echo "$version" >"$directory/version"
