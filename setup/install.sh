#!/bin/sh
# Installs what building, testing and the demo need on Debian and its kin, beside Rust and make. Installs only what is
# missing; calls neither apt nor rustup when all is there.
set -eu

# Where Debian keeps tools that an ordinary user's PATH leaves out.
PATH="$PATH:/usr/sbin:/sbin"

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

need_command clang clang                 # compiles probes
need_file /usr/include/bpf/bpf_helpers.h libbpf-dev
need_file /usr/include/linux/bpf.h linux-libc-dev
need_command cc gcc libc6-dev            # links Rust programs
need_command ip iproute2                 # namespaces and veth pairs of the tests
need_command tc iproute2
need_command ethtool ethtool             # GRO on veth
need_command xmllint libxml2-utils       # validates XML answers
need_command bpftool bpftool             # a second opinion on what is loaded
need_command nsenter util-linux          # the demo's daemon in its namespace
need_command mount mount
need_command ps procps
need_command curl curl                   # the demo's and the documentation's HTTP client
need_command ping iputils-ping
need_file /etc/ssl/certs/ca-certificates.crt ca-certificates
if [ "$(uname -m)" = x86_64 ]; then
    need_command qemu-system-x86_64 qemu-system-x86 # other kernels, for tests/kernels
fi
# The reference parser of OpenMetrics comes from PyPI, into an environment below target/.
python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3 python3-venv python3-pip"

if [ -n "$missing" ]; then
    packages=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "missing, to be installed by hand (Debian's names): $packages" >&2
        exit 1
    fi
    sudo=""
    [ "$(id -u)" -eq 0 ] || sudo="sudo"
    echo "installing $packages"
    $sudo apt-get -o Acquire::Retries=3 -qq update
    # shellcheck disable=SC2086 # a list of packages
    $sudo env DEBIAN_FRONTEND=noninteractive \
        apt-get -o Acquire::Retries=3 -qq install --no-install-recommends -y $packages
fi

if ! command -v cargo >/dev/null 2>&1; then
    echo "no cargo: install Rust first, see https://rustup.rs" >&2
    exit 1
fi
for component in clippy rustfmt; do
    if ! cargo "$(echo $component | sed s/rustfmt/fmt/)" --version >/dev/null 2>&1; then
        rustup component add $component
    fi
done
