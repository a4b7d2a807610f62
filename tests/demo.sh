#!/bin/bash
# A demo in a minute: a daemon, a probe pushed to it, packets both ways, exact metrics in three formats.
#
#   client:client0 192.0.2.1 <---> 192.0.2.2 server0:server    (network namespaces; the daemon is in `server`)
#
# The client sends TCP SYNs from 256 addresses and real pings. The server answers each SYN with a RST and each ping
# with a reply, so that both directions have something to count. Each window is compared with the packets sent: ingress
# with the client's own count, egress with the statistics of the interface. The demo fails if they differ. Everything
# made here is removed at the end.
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
# Permanent neighbour entries prevent ARP requests: the only packets are SYNs, pings and the answers to them.
mac() {
    nsenter --net="/run/netns/$1" ip -br link show dev "$2" | awk '{ print $3 }'
}
ip -n "$client" neighbour replace 192.0.2.2 lladdr "$(mac "$server" server0)" dev client0 nud permanent
ip -n "$server" neighbour replace 192.0.2.1 lladdr "$(mac "$client" client0)" dev server0 nud permanent
# A route to the sources of the SYNs lets the server answer.
ip -n "$server" route add 198.18.0.0/15 via 192.0.2.1
ip -br -n "$server" link show dev server0

step "twinprobe serve"
# nsenter is used because `ip netns exec` mounts /sys anew and hides the BPF file system.
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

# left_server: the packets that passed the TC egress hook of server0, by the statistics of the interface: those that
# left and those that found no room at the other end.
left_server() {
    nsenter --net="/run/netns/$server" cat /proc/net/dev | awk -F: '$1 ~ /server0/ { split($2, n, " "); print n[10] + n[12] }'
}

# counted SEQ DIRECTION: the packets of one direction in a window.
counted() {
    "$bin/twinprobe" windows packet-counter --get "$1" -o table |
        awk -v direction="$2" '/^(in|e)gress / { in_it = $1 == direction }
            in_it && NF == 3 && $2 ~ /^[0-9]+$/ { sum += $2 } END { print sum + 0 }'
}

# compare TEXT SENT COUNTED: fails if the two numbers differ.
compare() {
    if [ "$2" -ne "$3" ]; then
        echo "$1: $2 packets, counted $3: DIFFERENT" >&2
        return 1
    fi
    echo "$1: $2 packets, counted $3"
}

window=0
left=$(left_server)
for format in table json xml; do
    window=$((window + 1))
    step "Traffic: 100,000 SYNs and 10 pings"
    # The option --paced keeps a slow machine from losing packets between the sender and the interface that counts.
    syns=$("$bin/traffic" --netns "$client" --interface client0 --count 100000 --paced --destination 192.0.2.2 \
        --destination-mac "$(mac "$server" server0)")
    echo "SYNs: $syns"
    # The server answers in order: when the last ping is answered, every packet before it is answered too.
    pings=$(ip netns exec "$client" ping -q -c 10 -i 0.01 -W 30 192.0.2.2 | sed -n 's/ packets transmitted/&/p')
    echo "pings: $pings"
    step "twinprobe metrics packet-counter -o $format"
    "$bin/twinprobe" metrics packet-counter -o "$format" | tee "$dir/metrics.$format"
    step "Window $window: what was sent, and what was counted"
    left_before=$left
    left=$(left_server)
    compare "to the server" $((${syns%% *} + ${pings%% *})) "$(counted $window ingress)"
    compare "from the server" $((left - left_before)) "$(counted $window egress)"
done
if [ -f api/metrics.xsd ]; then
    xmllint --noout --schema api/metrics.xsd "$dir/metrics.xml" 2>"$dir/xmllint" || { cat "$dir/xmllint" >&2; exit 1; }
    step "The XML is valid by api/metrics.xsd"
fi

step "twinprobe delete packet-counter"
"$bin/twinprobe" delete packet-counter
step "Done; everything is removed again"
