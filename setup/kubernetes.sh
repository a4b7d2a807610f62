#!/bin/sh
# kubernetes.sh DIRECTORY: installs kube-apiserver and etcd into DIRECTORY/bin, unless they are there. Go builds them
# once from the module proxy, in 15 minutes of processor time. setup/kubernetes has the modules, with the digest of each
# source in go.sum. The script does not change the system. Debian 12's Go is too old, but fetches a newer one as a
# module. Fails with the reason on stderr.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/bin"
cd "$1"
directory=$PWD

[ -x bin/kube-apiserver ] && [ -x bin/etcd ] && exit
. "$here/go.sh"

# build MODULE PACKAGE NAME LDFLAGS: an existing file is complete.
build() {
    [ -x "bin/$3" ] && return
    (cd "$here/kubernetes/$1" && go build -mod=readonly -trimpath -ldflags "-s -w $4" -o "$directory/bin/.$3" "$2")
    mv "bin/.$3" "bin/$3"
}

build etcd go.etcd.io/etcd/server/v3 etcd ""
# Without its version the server calls itself v0.0.0, and clients complain.
version=$(sed -n 's#^require k8s.io/kubernetes v##p' "$here/kubernetes/apiserver/go.mod")
variables=k8s.io/component-base/version
build apiserver k8s.io/kubernetes/cmd/kube-apiserver kube-apiserver \
    "-X $variables.gitVersion=v$version -X $variables.gitMajor=${version%%.*} -X $variables.gitMinor=$(echo "$version" | cut -d. -f2)"
