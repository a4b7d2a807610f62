# go.sh: puts a recent Go on PATH. Scripts that build with Go source this file in their target directory. Debian 12's Go
# is too old, but fetches a newer one as a module, into toolchain/. Without Go, the script ends with the reason.

# The Go that is fetched if the installed one is too old, and its digest from the checksum database.
go=go1.26.0

PATH="$PATH:/usr/local/go/bin"
command -v go >/dev/null || { echo "${0##*/}: Go is missing; on Debian: apt-get install golang-go" >&2; exit 1; }
export CGO_ENABLED=0 GOTOOLCHAIN=local
if ! go version | grep -Eq 'go1\.(2[6-9]|[3-9][0-9])'; then
    newer=$(go mod download -json "golang.org/toolchain@v0.0.1-$go.linux-$(dpkg --print-architecture)" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
    [ -n "$newer" ] || { echo "${0##*/}: the module proxy has no $go" >&2; exit 1; }
    # Modules have no executable files, and files in the module cache are read-only.
    rm -rf toolchain
    cp -r "$newer" toolchain
    chmod -R u+w toolchain
    find toolchain/bin toolchain/pkg/tool -type f -exec chmod +x {} +
    PATH="$PWD/toolchain/bin:$PATH"
fi
