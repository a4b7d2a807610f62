#!/bin/bash
# The whole way in a minute: a daemon, a probe pushed to it, packets both ways, exact metrics in three formats.
#
#   client:client0 192.0.2.1 <---> 192.0.2.2 server0:server    (network namespaces; the daemon is in `server`)
#
# The client sends TCP SYNs from 256 addresses and real pings. The server answers each SYN with a RST and each ping
# with a reply, so that both directions have something to count. Everything made here is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"

if [ "${1:-}" != --built ]; then
    cargo build --release -p twinprobe -p twinprobe-tests
fi
if [ "$(id -u)" -ne 0 ]; then
    exec sudo -E bash tests/demo.sh --built
fi

bin="${CARGO_TARGET_DIR:-target}/release"
id="tp-$$"
client="$id-client"
server="$id-server"
bpffs="/sys/fs/bpf/twinprobe-$id"
dir=$(mktemp -d -t twinprobe-demo-XXXXXX)
daemon=""

clean_up() {
    status=$?
    trap - EXIT
    if [ -n "$daemon" ] && kill -TERM "$daemon" 2>/dev/null; then
        wait "$daemon" || true
    fi
    if [ "$status" -ne 0 ] && [ -f "$dir/log" ]; then
        echo "--- log of the daemon" >&2
        cat "$dir/log" >&2
    fi
    ip netns del "$client" 2>/dev/null || true
    ip netns del "$server" 2>/dev/null || true
    rm -rf "$dir" "$bpffs"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

step() {
    printf '\n== %s\n' "$*"
}

step "Two namespaces and a veth pair"
ip netns add "$client"
ip netns add "$server"
ip -n "$client" link add client0 type veth peer name server0 netns "$server"
ip -n "$client" address add 192.0.2.1/24 dev client0
ip -n "$server" address add 192.0.2.2/24 dev server0
for end in "$client client0" "$server server0"; do
    set -- $end
    ip netns exec "$1" sysctl -qw net.ipv6.conf.all.disable_ipv6=1
    ip -n "$1" link set lo up
    ip -n "$1" link set "$2" up
done
# The SYNs' sources, so that there is somewhere to send answers to.
ip -n "$server" route add 198.18.0.0/15 via 192.0.2.1
mac=$(ip netns exec "$server" cat /sys/class/net/server0/address)
ip -br -n "$server" link show dev server0

step "twinprobe serve"
# nsenter, not `ip netns exec`: that one mounts /sys anew and hides the BPF file system.
nsenter --net="/run/netns/$server" "$bin/twinprobe" serve --listen "unix:$dir/sock" --state-dir "$dir/state" \
    --bpffs "$bpffs" --detach-on-exit 2>"$dir/log" &
daemon=$!
for _ in $(seq 100); do
    grep -q 'listening on' "$dir/log" && break
    kill -0 "$daemon"
    sleep 0.1
done
grep 'listening on' "$dir/log"
export TWINPROBE_SERVER="unix:$dir/sock"

step "twinprobe apply -f probes/packet-counter/packet-counter.json --interface server0"
"$bin/twinprobe" apply -f probes/packet-counter/packet-counter.json --interface server0
"$bin/twinprobe" list

for format in table json xml; do
    step "Traffic: 10 pings and 100,000 SYNs"
    ip netns exec "$client" ping -q -c 10 -i 0.01 -W 1 192.0.2.2 | sed -n 's/.*packets transmitted/pings:&/p'
    "$bin/traffic" --netns "$client" --interface client0 --count 100000 --destination 192.0.2.2 \
        --destination-mac "$mac"
    step "twinprobe metrics packet-counter -o $format"
    "$bin/twinprobe" metrics packet-counter -o "$format" | tee "$dir/metrics.$format"
done
if [ -f api/metrics.xsd ]; then
    xmllint --noout --schema api/metrics.xsd "$dir/metrics.xml" 2>"$dir/xmllint" || { cat "$dir/xmllint" >&2; exit 1; }
    step "The XML is valid by api/metrics.xsd"
fi

step "twinprobe delete packet-counter"
"$bin/twinprobe" delete packet-counter
step "Done; everything is removed again"
