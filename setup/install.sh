#!/bin/sh
# install.sh [--demo] [--arm64] [--bench] [COMMAND...]: installs the packages for building, testing and the demo on
# Debian and its derivatives, then runs COMMAND. --demo: only the packages for the demo. --arm64: also those for
# `make test-arm64`. --bench: also other projects' programs that `make bench` measures. If nothing is missing, it calls
# neither apt nor rustup.
set -eu
cd "$(dirname "$0")/.."

demo=""
arm64=""
bench=""
while true; do
    case ${1:-} in
    --demo) demo=yes ;;
    --arm64) arm64=yes ;;
    --bench) bench=yes ;;
    *) break ;;
    esac
    shift
done

# Debian keeps some tools where an ordinary user's PATH does not look.
PATH="$PATH:/usr/sbin:/sbin"
export PATH

missing=""

# need_command COMMAND PACKAGE...
need_command() {
    command=$1
    shift
    command -v "$command" >/dev/null 2>&1 || missing="$missing $*"
}

# need_file FILE PACKAGE
need_file() {
    [ -e "$1" ] || missing="$missing $2"
}

# For the build and the demo.
need_command make make                   # runs the rest
need_command clang clang                 # compiles probes
need_file /usr/include/bpf/bpf_helpers.h libbpf-dev
need_file /usr/include/linux/bpf.h linux-libc-dev
need_command cc gcc libc6-dev            # links Rust programs
need_command ip iproute2                 # namespaces and veth pairs
need_command nsenter util-linux          # the demo's daemon in its namespace
need_command mount mount
need_command ps procps
need_command sysctl procps               # the demo's namespaces
need_command ping iputils-ping
need_command openssl openssl             # certificates of the demo and the console's tests
need_command curl curl                   # the demo's and the documentation's HTTP client
need_command node nodejs                 # the demo's clients and servers, and builds the console
need_file /etc/ssl/certs/ca-certificates.crt ca-certificates
if [ -z "$demo" ]; then
    need_command npm npm                 # builds the console
    need_command llvm-strip llvm         # objects as bpf2go makes them
    # Objects of a second compiler: another version than that of the package clang.
    count=0
    for version in 13 14 15 16 17 18 19 20 21; do
        command -v "clang-$version" >/dev/null 2>&1 && count=$((count + 1))
    done
    if [ "$count" -lt 2 ]; then
        for version in 19 17 16 15; do
            if ! command -v "clang-$version" >/dev/null 2>&1 && apt-cache show "clang-$version" >/dev/null 2>&1; then
                missing="$missing clang-$version"
                break
            fi
        done
    fi
    need_command tc iproute2
    need_command ethtool ethtool         # GRO on veth
    need_command xmllint libxml2-utils   # validates answers in XML
    need_command bpftool bpftool         # a second opinion on loaded programs and maps
    need_command xdp-loader xdp-tools    # another owner of XDP hooks
    need_command tshark tshark           # a second opinion on captures
    need_command nfcapd nfdump           # collectors of IPFIX
    need_file /usr/lib/python3/dist-packages/ipfix/__init__.py python3-ipfix
    # A receiver of streams. Debian has its server outside of PATH.
    [ -n "$(ls /usr/lib/postgresql/*/bin/postgres 2>/dev/null)" ] || missing="$missing postgresql"
    need_command psql postgresql-client
    # The client of Kafka is built with OpenSSL; its server comes from Maven, its reader is kcat.
    need_command pkg-config pkg-config
    need_file /usr/include/openssl/ssl.h libssl-dev
    need_command java default-jre-headless
    need_command mvn maven
    need_command kcat kcat
    # Receivers of samples; Go builds the third, a collector of OpenTelemetry.
    need_command prometheus prometheus
    need_command victoria-metrics victoria-metrics
    command -v go >/dev/null 2>&1 || [ -x /usr/local/go/bin/go ] || missing="$missing golang-go"
    need_command dnsmasq dnsmasq-base    # answers reverse DNS
    need_command podman podman           # runs the container image
    need_command runc runc
    need_command dh debhelper            # the Debian package
    need_command jq jq                   # the commands of the documentation
    need_command chromium chromium       # the browser for the console's tests
    need_command luajit luajit           # runs the script for MoonGen
    need_command mkfs.ext4 e2fsprogs     # file systems on a disk that loses writes
    need_command mkfs.xfs xfsprogs
    need_command mkfs.btrfs btrfs-progs
    need_file /usr/share/lua/5.1/argparse.lua lua-argparse
    if [ "$(uname -m)" = x86_64 ]; then
        need_command qemu-system-x86_64 qemu-system-x86 # other kernels, for tests/kernels
    fi
    # The tests take tools from PyPI into environments below target/.
    python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3 python3-venv python3-pip"
fi
if [ -n "$arm64" ]; then
    need_command qemu-system-aarch64 qemu-system-arm
    need_command aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
    need_file /usr/aarch64-linux-gnu/include/asm/types.h libc6-dev-arm64-cross
fi
if [ -n "$bench" ]; then
    /usr/bin/python3 -c 'import bcc' 2>/dev/null || missing="$missing python3-bpfcc"
    # BCC compiles with headers of a kernel: the running one's, or Debian's.
    [ -e "/lib/modules/$(uname -r)/build" ] || [ -n "$(ls -d /usr/src/linux-headers-*-common 2>/dev/null)" ] ||
        missing="$missing linux-headers-$(dpkg --print-architecture)"
    need_command bpftrace bpftrace
    need_command softflowd softflowd
    need_command pmacctd pmacct
    need_command nfpcapd nfdump
    need_file /usr/include/libelf.h libelf-dev # ebpf_exporter
    need_file /usr/include/zlib.h zlib1g-dev
fi

# rust_is_there: succeeds if the Rust on PATH is new enough and has the components that `make check` calls. The demo
# needs no components.
rust_needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
rust_is_there() {
    version=$(rustc --version 2>/dev/null | cut -d ' ' -f 2)
    [ "$(printf '%s\n' "$rust_needed" "$version" | sort -V | head -n 1)" = "$rust_needed" ] || return 1
    [ -z "$demo" ] || return 0
    for component in clippy fmt; do
        cargo "$component" --version >/dev/null 2>&1 || rustup component add clippy rustfmt 2>/dev/null || return 1
    done
}

# A Rust that rustup has installed for this user also counts if it is not on PATH.
rustup_bin="${CARGO_HOME:-$HOME/.cargo}/bin"
rust_missing=""
rust_on_path=yes
if ! rust_is_there; then
    PATH="$rustup_bin:$PATH"
    if rust_is_there; then rust_on_path=""; else rust_missing=Rust; fi
fi

is_root() { [ "$(id -u)" -eq 0 ]; }
has_sudo() { command -v sudo >/dev/null 2>&1; }

as_root() {
    if is_root; then
        "$@"
    elif has_sudo; then
        sudo "$@"
    else
        echo "packages are missing ($missing $rust_missing): run this as root, or install sudo" >&2
        exit 1
    fi
}

# install_packages PACKAGE...: fails if the installation would remove another package.
install_packages() {
    echo "installing $*"
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -o Acquire::Retries=3 -qq install --no-install-recommends --no-remove -y "$@"
}

# Installs Rust from Debian if Debian's is new enough. Debian has two sets of packages; the second one, for building
# browsers, is newer.
rust_from_debian() {
    if [ -n "$demo" ]; then
        set -- "cargo rustc" "cargo-web rustc-web"
    else
        set -- "cargo rustc rust-clippy rustfmt" "cargo-web rustc-web rust-web-clippy rustfmt-web"
    fi
    for packages in "$@"; do
        offered=$(apt-cache show --no-all-versions "${packages%% *}" 2>/dev/null | sed -n 's/^Version: //p')
        if [ -n "$offered" ] && dpkg --compare-versions "$offered" ge "$rust_needed"; then
            # shellcheck disable=SC2086 # a list of packages
            install_packages $packages && return
        fi
    done
    return 1
}

# Installs Rust for this user only, below ~/.rustup and ~/.cargo. The digests below are those of rustup, which checks
# its own downloads.
rust_from_rustup() {
    rust_on_path=""
    set -- --profile minimal -c clippy -c rustfmt
    if command -v rustup >/dev/null 2>&1; then
        rustup toolchain install "$rust_needed" "$@"
        export RUSTUP_TOOLCHAIN="$rust_needed"
        return
    fi
    machine=$(uname -m)
    case $machine in
    x86_64) digest=20a06e644b0d9bd2fbdbfd52d42540bdde820ea7df86e92e533c073da0cdd43c ;;
    aarch64) digest=e3853c5a252fca15252d07cb23a1bdd9377a8c6f3efa01531109281ae47f841c ;;
    *) echo "install Rust $rust_needed or later first, see https://rustup.rs" >&2 && exit 1 ;;
    esac
    directory=$(mktemp -d)
    echo "installing Rust $rust_needed by rustup into $rustup_bin"
    curl --proto =https --retry 3 -sSfo "$directory/rustup-init" \
        "https://static.rust-lang.org/rustup/archive/1.28.2/$machine-unknown-linux-gnu/rustup-init"
    echo "$digest  $directory/rustup-init" | sha256sum --quiet -c -
    chmod +x "$directory/rustup-init"
    # SKIP_PATH_CHECK: an old Rust of the system does not stop the installation.
    RUSTUP_INIT_SKIP_PATH_CHECK=yes "$directory/rustup-init" -qy --no-modify-path --default-toolchain "$rust_needed" "$@"
    rm -r "$directory"
}

# Rust alone needs no root: rustup installs it for this user.
debian=""
if command -v apt-get >/dev/null 2>&1 && { [ -n "$missing" ] || is_root || has_sudo; }; then debian=yes; fi
if [ -n "$missing$rust_missing" ] && [ -n "$debian" ]; then
    as_root apt-get -o Acquire::Retries=3 -qq update
    if [ -n "$missing" ]; then
        # shellcheck disable=SC2046 # a list of packages
        install_packages $(printf '%s\n' $missing | sort -u)
    fi
elif [ -n "$missing" ]; then
    echo "missing, to be installed by hand (Debian's names): $missing" >&2
    exit 1
fi
if [ -n "$rust_missing" ]; then
    # A user with rustup does not get a second Rust from Debian.
    if [ -z "$debian" ] || command -v rustup >/dev/null 2>&1; then
        rust_from_rustup
    else
        rust_from_debian || rust_from_rustup
    fi
    rust_is_there || { echo "no Rust $rust_needed or later with clippy and rustfmt: see https://rustup.rs" >&2; exit 1; }
fi
if [ -n "$arm64" ]; then
    triple=aarch64-unknown-linux-gnu
    if [ ! -e "$(rustc --print target-libdir --target $triple)" ]; then
        # Rust from Debian has no rustup, nor the library of another architecture.
        command -v rustup >/dev/null 2>&1 || { echo "install Rust by rustup first: see https://rustup.rs" >&2; exit 1; }
        rustup target add $triple
    fi
fi

if [ -n "$bench" ]; then
    sh setup/ebpf-exporter.sh target/bench-tools || echo "ebpf_exporter is missing: the experiments say so" >&2
fi

if [ $# -gt 0 ]; then
    exec "$@"
fi
if [ -z "$rust_on_path" ]; then
    echo "Rust $rust_needed or later is there, but not the first on PATH: call ./demo or ./test" >&2
    exit 1
fi
