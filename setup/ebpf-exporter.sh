#!/bin/sh
# ebpf-exporter.sh DIRECTORY: installs Cloudflare's ebpf_exporter into DIRECTORY/bin, unless it is there. Go builds it
# from the module proxy. The script does not change the system. Fails with the reason on stderr.
set -eu
mkdir -p "$1/bin"
cd "$1"
directory=$PWD
version=v2.5.1
module=github.com/cloudflare/ebpf_exporter/v2
# The libbpf that this version needs; Debian 12 has an older one. The crate libbpf-sys has its source.
libbpf=1.5.1
# The Go that is fetched if the installed one is too old.
go=go1.23.12

[ -x bin/ebpf_exporter ] && exit
PATH="$PATH:/usr/local/go/bin"
rm -rf build
mkdir -p build/libbpf/src build/go
trap 'rm -rf "$directory/build"' EXIT
cd build

printf '[package]\nname = "libbpf"\nversion = "0.0.0"\n[workspace]\n[dependencies]\nlibbpf-sys = "=%s"\n' "$libbpf" >libbpf/Cargo.toml
: >libbpf/src/lib.rs
(cd libbpf && cargo vendor --quiet crates >/dev/null)
make --silent -C libbpf/crates/libbpf-sys/libbpf/src BUILD_STATIC_ONLY=1 DESTDIR="$PWD/libbpf/installed" LIBSUBDIR=lib \
    install install_uapi_headers >/dev/null

export GOPATH="$PWD/go/path" GOCACHE="$PWD/go/cache" GOFLAGS=-modcacherw GOTOOLCHAIN=local
# directory_of MODULE@VERSION: prints the directory of the unpacked module.
directory_of() {
    (cd go && go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
}
# Debian 12's Go is too old for the module, but can fetch a newer one as a module.
if ! go version | grep -Eq 'go1\.(2[3-9]|[3-9][0-9])'; then
    newer=$(directory_of "golang.org/toolchain@v0.0.1-$go.linux-$(dpkg --print-architecture)")
    [ -n "$newer" ] || { echo "the module proxy has no $go" >&2; exit 1; }
    # Modules have no executable files.
    find "$newer/bin" "$newer/pkg/tool" -type f -exec chmod +x {} +
    PATH="$newer/bin:$PATH"
fi
source=$(directory_of "$module@$version")
[ -n "$source" ] || { echo "the module proxy has no $module $version" >&2; exit 1; }
cp -r "$source" source
cd source
CGO_CFLAGS="-I$PWD/../libbpf/installed/usr/include" CGO_LDFLAGS="$PWD/../libbpf/installed/usr/lib/libbpf.a -lelf -lz" \
    go build -o "$directory/bin/ebpf_exporter" ./cmd/ebpf_exporter
