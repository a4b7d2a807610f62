#!/bin/sh
# fetch.sh SUITE ARCHITECTURE DIRECTORY: fetches the kernel of a Debian suite into DIRECTORY: vmlinuz, modules/,
# busybox, version; busybox-here, for this machine. For another architecture also userland/, with the commands
# of the tests.
# fetch.sh SUITE ARCHITECTURE DIRECTORY loader: fetches only xdp-loader of the suite, with its libraries: root/; the
# script xdp-loader, which runs it; version.
#
# The packages come from the sources of this system, with the suite's name replaced, through separate lists and caches:
# those of the system are neither used nor changed, and root is not needed.
set -eu

suite=$1
architecture=$2
directory=$3
# The modules that the guest needs to reach its file system, and the tests for interfaces and filters. A module that is
# built into a kernel has no file and is skipped.
modules="virtio_pci 9pnet_virtio 9p overlay veth bridge dummy sch_ingress cls_bpf act_bpf tun wireguard ipip ip_gre ip6_gre ip6_tunnel vxlan geneve sit ppp_generic vmxnet3"
# The commands of the tests, and the headers that a daemon needs.
userland="bash coreutils dash ethtool iproute2 linux-libc-dev mount util-linux"

here=$(dpkg --print-architecture)
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
rm -rf "$directory"
mkdir -p "$directory/work"
work=$(realpath "$directory/work")
mkdir -p "$work/sources" "$work/lists/partial" "$work/cache/archives/partial" "$work/root" "$directory/modules"
: >"$work/status"

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
        -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o Dir::State::status="$work/status" \
        -o APT::Architecture="$architecture" -o APT::Architectures::="$architecture" -o APT::Architectures::="$here" \
        -o Acquire::Check-Valid-Until=false -o Acquire::Retries=3 -o Acquire::Languages=none \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Sandbox::User=root "$@"
}

# unpack ROOT PACKAGE...: downloads the packages, with the newest versions, and unpacks them below ROOT.
unpack() {
    root=$1
    shift
    (cd "$work/cache" && own apt-get download "$@")
    for file in "$work"/cache/*.deb; do
        dpkg-deb -x "$file" "$root"
        rm "$file"
    done
}

# busybox ROOT: prints the path of the busybox below ROOT.
busybox() {
    find "$1" -name busybox -type f -perm /1
}

# A part of the suite may have moved away; the rest may still have a kernel.
own apt-get update || echo "$suite can't be read as a whole" >&2
if [ "${4:-}" = loader ]; then
    packages=$(own apt-get -s --no-install-recommends install xdp-tools | sed -n 's/^Inst \([^ ]*\).*/\1/p')
    # shellcheck disable=SC2086 # a list of packages
    unpack "$directory/root" $packages
    root=$(realpath "$directory/root")
    libraries=$(dirname "$(find "$root" -name 'libxdp.so.1')")
    cat >"$directory/xdp-loader" <<EOF
#!/bin/sh
export LIBXDP_OBJECT_PATH='$libraries/bpf'
exec '$(find "$root" -name 'ld-linux*.so.?' | head -n 1)' --library-path '$libraries' '$root/usr/sbin/xdp-loader' "\$@"
EOF
    chmod +x "$directory/xdp-loader"
    own apt-cache show --no-all-versions xdp-tools | sed -n 's/^Version: //p' >"$work/version"
    [ -s "$work/version" ] && [ -x "$root/usr/sbin/xdp-loader" ]
    mv "$work/version" "$directory/version"
    rm -r "$work"
    exit
fi
package=$(own apt-cache show --no-all-versions "linux-image-$architecture" 2>/dev/null |
    sed -n 's/^Depends: \(linux-image-[^ ,]*\).*/\1/p')
[ -n "$package" ] || { echo "no kernel found in $suite" >&2; exit 1; }
unpack "$work/root" "$package" "busybox-static:$architecture"
[ -e "$work/root/lib" ] || ln -s usr/lib "$work/root/lib"
cp "$(busybox "$work/root")" "$directory/busybox"
unpack "$work/tools" "busybox-static:$here"
cp "$(busybox "$work/tools")" "$directory/busybox-here"

version=$(ls "$work/root/lib/modules")
cp "$work/root/boot/vmlinuz-$version" "$directory/vmlinuz"
"$directory/busybox-here" depmod -b "$work/root" "$version"
# modules.dep has lines `module: its dependencies`, the most basic last. The files' numbers are the order of loading.
n=10
for module in $modules; do
    line=$(grep -E "/$module\.ko[.a-z]*:" "$work/root/lib/modules/$version/modules.dep" | tr -d ':') || continue
    for file in $(printf '%s\n' $line | tac); do
        name=$(basename "$file" | sed 's/\.ko.*//')
        [ -e "$directory/modules/"*"-$name.ko" ] && continue
        case $file in
        *.xz) "$directory/busybox-here" xzcat "$work/root/lib/modules/$version/$file" ;;
        *) cat "$work/root/lib/modules/$version/$file" ;;
        esac >"$directory/modules/$n-$name.ko"
        n=$((n + 1))
    done
done

if [ "$architecture" != "$here" ]; then
    # Only simulates the installation on an empty system, to list its packages.
    # shellcheck disable=SC2086 # a list of packages
    packages=$(own apt-get -s --no-install-recommends install $userland | sed -n 's/^Inst \([^ ]*\).*/\1/p')
    # shellcheck disable=SC2086 # a list of packages
    unpack "$directory/userland" $packages
    # Moves bin, lib and sbin into usr, as on installed systems.
    for name in bin lib sbin; do
        [ -L "$directory/userland/$name" ] && continue
        cp -a "$directory/userland/$name/." "$directory/userland/usr/$name"
        rm -r "$directory/userland/$name"
        ln -s "usr/$name" "$directory/userland/$name"
    done
fi
rm -r "$work"
# The version is written last: a directory that has it is complete.
echo "$version" >"$directory/version"
