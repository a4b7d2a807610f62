#!/bin/bash
# A demo in a minute: a daemon, probes pushed to it, packets, exact windows, also through a kill -9.
#
#   client:client0 192.0.2.1 <---> 192.0.2.2 server0:server    (network namespaces; the daemon is in `server`)
#
# First the client sends TCP SYNs from 256 addresses and pings. The server answers each SYN with a RST and each ping
# with a reply, so that both directions have something to count. The demo compares the counts with the sent packets:
# ingress with the client's own count, egress with the statistics of the interface. The demo fails if they differ. Then
# clients talk to servers, so that the console has something to show. With KEEP=1 they continue for an hour, or until
# Ctrl-C. At the end the demo removes all that it made.
#
#   demo.sh [--built]    --built: the binaries are in DEMO_BIN, by default where a build leaves them
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"

if [ "${1:-}" != --built ]; then
    cargo build --bin twinprobe --bin traffic
fi
bin="${DEMO_BIN:-${CARGO_TARGET_DIR:-target}/debug}"
keep="${KEEP:-}"
if [ "$(id -u)" -ne 0 ]; then
    exec sudo env PATH="$PATH" TMPDIR="${TMPDIR:-/tmp}" DEMO_BIN="$bin" KEEP="$keep" bash tests/demo.sh --built
fi

# The longest time for which `KEEP=1` continues the demo, in seconds.
longest=3600
unset TWINPROBE_TOKEN

id="tp-$$"
client="$id-client"
server="$id-server"
bpffs="/sys/fs/bpf/twinprobe-$id"
dir=$(mktemp -d -t twinprobe-demo-XXXXXX)
# The background processes of this script, the daemon among them.
others=()
daemon=""
kept=""

clean_up() {
    status=$?
    trap - EXIT
    trap '' HUP INT TERM
    if [ "${#others[@]}" -gt 0 ]; then
        kill -TERM "${others[@]}" 2>/dev/null || true
        wait "${others[@]}" 2>/dev/null || true
    fi
    if [ -n "$kept" ]; then
        status=0
    elif [ "$status" -ne 0 ] && [ -f "$dir/log" ]; then
        echo "--- log of the daemon" >&2
        cat "$dir/log" >&2
    fi
    ip netns del "$client" 2>/dev/null || true
    ip netns del "$server" 2>/dev/null || true
    rm -rf "$dir" "$bpffs"
    if [ -n "$kept" ]; then
        echo "Everything is removed again."
    fi
    exit "$status"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

step() {
    printf '\n== %s\n' "$*"
}

# inside NAMESPACE COMMAND...: calls nsenter, because `ip netns exec` mounts /sys anew and hides the BPF file system.
inside() {
    nsenter --net="/run/netns/$1" "${@:2}"
}
# beside NAMESPACE COMMAND...: the same, in the background. `$!` is the process of COMMAND.
beside() {
    nsenter --net="/run/netns/$1" "${@:2}" &
    others+=($!)
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
    inside "$1" ip -br link show dev "$2" | awk '{ print $3 }'
}
server_mac=$(mac "$server" server0)
ip -n "$client" neighbour replace 192.0.2.2 lladdr "$server_mac" dev client0 nud permanent
ip -n "$server" neighbour replace 192.0.2.1 lladdr "$(mac "$client" client0)" dev server0 nud permanent
# Routes to the sources of the SYNs and to the clients let the server answer.
ip -n "$server" route add 198.18.0.0/15 via 192.0.2.1
ip -n "$server" route add 198.51.100.0/24 via 192.0.2.1
ip -n "$client" route add local 198.51.100.0/24 dev lo
ip -br -n "$server" link show dev server0

export TWINPROBE_SERVER="unix:$dir/sock"
# The console's user may deploy probes that observe. The command prints the token, and the line for the token file.
"$bin/twinprobe" token visitor operator >"$dir/token"
token=$(sed -n 1p "$dir/token")
(umask 077 && sed -n 2p "$dir/token" >"$dir/tokens")

# serve: starts the daemon and waits until it answers.
serve() {
    beside "$server" "$bin/twinprobe" serve --listen "unix:$dir/sock" --listen 127.0.0.1:9470 --tokens "$dir/tokens" \
        --state-dir "$dir/state" --bpffs "$bpffs" --node-name demo --detach-on-exit 2>"$dir/log"
    daemon=$!
    for _ in $(seq 600); do
        grep -q 'listening on 127' "$dir/log" && return
        kill -0 "$daemon"
        sleep 0.1
    done
    return 1
}

# The daemon warns that XDP does not see VLAN tags, because the other end of the pair keeps tags outside of packets. The
# client sends no tags.
apply() {
    local code=0
    "$bin/twinprobe" apply "$@" 2>"$dir/warnings" || code=$?
    grep -v 'numbers are approximate: XDP does not see VLAN tags' "$dir/warnings" >&2 || true
    return "$code"
}

step "twinprobe serve"
serve
grep 'listening on' "$dir/log"

step "twinprobe apply --probe packet-counter --interface server0"
apply --probe packet-counter --interface server0
"$bin/twinprobe" list

# syns COUNT: sends SYNs. The option --paced keeps a slow machine from losing packets between the sender and the
# interface that counts.
syns() {
    "$bin/traffic" --netns "$client" --interface client0 --count "$1" --paced --destination 192.0.2.2 \
        --destination-mac "$server_mac"
}

# pings: sends pings. The server answers in order: when the last ping is answered, every packet before it is answered.
pings() {
    ip netns exec "$client" ping -q -c 10 -i 0.01 -W 30 192.0.2.2 | sed -n 's/ packets transmitted/&/p'
}

# left_server: the packets that passed the TC egress hook of server0, by the statistics of the interface: sent packets
# and those without room at the other end.
left_server() {
    inside "$server" cat /proc/net/dev | awk -F: '$1 ~ /server0/ { split($2, n, " "); print n[10] + n[12] }'
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

step "Traffic: 100,000 SYNs and 10 pings"
left=$(left_server)
sent=$(syns 100000)
echo "SYNs: $sent"
echoes=$(pings)
echo "pings: $echoes"
left=$(($(left_server) - left))
step "twinprobe metrics packet-counter"
"$bin/twinprobe" metrics packet-counter
step "Window 1: what was sent, and what was counted"
compare "to the server" $((${sent%% *} + ${echoes%% *})) "$(counted 1 ingress)"
compare "from the server" "$left" "$(counted 1 egress)"

step "The same window as JSON: twinprobe windows packet-counter --get 1 -o json"
"$bin/twinprobe" windows packet-counter --get 1 -o json
"$bin/twinprobe" windows packet-counter --get 1 -o xml >"$dir/window.xml"
xmllint --noout --schema api/metrics.xsd "$dir/window.xml" 2>"$dir/xmllint" || { cat "$dir/xmllint" >&2; exit 1; }
echo "-o xml is valid by api/metrics.xsd"

step "A window every 250 ms, and a daemon that dies by kill -9 under traffic"
# The configuration of the library is a JSON object: the windows become its first field.
sed '1s/{/{"window": {"interval": "250ms", "retain": 1000},/' probes/packet-counter/packet-counter.json \
    >"$dir/packet-counter.json"
apply -f "$dir/packet-counter.json" --interface server0
(for _ in $(seq 20); do
    syns 20000
    sleep 0.1
done) >"$dir/sent" &
sender=$!
others+=("$sender")

# newest: the number of the newest window.
newest() {
    "$bin/twinprobe" windows packet-counter | awk '$1 ~ /^[0-9]+$/ { last = $1 } END { print last + 0 }'
}
until [ "$(newest)" -ge 3 ]; do
    sleep 0.05
done
# Without this, the shell would report the end of the job at some later moment.
disown "$daemon"
kill -KILL "$daemon"
while kill -0 "$daemon" 2>/dev/null; do
    sleep 0.02
done
echo "killed; the programs in the kernel continue to count"
sleep 1
serve
echo "started again"
wait "$sender"
sent=$(awk '{ sum += $1 } END { print sum }' "$dir/sent")
# The window with the last packet ends by its interval.
last=$(newest)
until [ "$(newest)" -gt "$last" ]; do
    sleep 0.05
done
sum=0
# A time has two columns: date, and time of the day.
while read -r seq _ begin _ end _; do
    packets=$(counted "$seq" ingress)
    sum=$((sum + packets))
    if [ "$packets" -gt 0 ]; then
        printf 'window %2s, %.12s to %.12s: %7s packets\n' "$seq" "$begin" "$end" "$packets"
    fi
done < <("$bin/twinprobe" windows packet-counter --after 1 | awk '$1 ~ /^[0-9]+$/')
compare "all windows" "$sent" "$sum"

step "Forty clients talk to a server: who are the loudest?"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=demo \
    -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
beside "$server" node tests/demo/servers.mjs "$dir/key.pem" "$dir/cert.pem"
apply --probe top-talkers --interface server0
inside "$client" node tests/demo/clients.mjs 3
"$bin/twinprobe" metrics top-talkers --sort bytes --top 8

if [ -z "$keep" ]; then
    step "Done; make demo KEEP=1 goes on, with the web console at http://127.0.0.1:9470/"
    exit
fi

step "The demo goes on"
kept=yes
# Ten minutes of windows make the console's charts.
for probe in packet-counter top-talkers tcp-flags; do
    sed '1s/{/{"window": {"interval": "2s", "retain": 300},/' "probes/$probe/$probe.json" >"$dir/$probe.json"
    apply -f "$dir/$probe.json" --interface server0
done
beside "$server" node tests/demo/door.mjs inside "$dir/console"
node tests/demo/door.mjs outside "$dir/console" >"$dir/port" &
others+=($!)
beside "$client" node tests/demo/clients.mjs "$longest"
beside "$client" ping -q -i 0.5 -w "$longest" -I 198.51.100.1 192.0.2.2 >/dev/null
# Floods of SYNs, each for 8 s, to a closed port.
flood() {
    # Also ends the process that the shell waits for.
    trap 'kill "$step" 2>/dev/null; exit' TERM
    while sleep 25 & step=$!; wait "$step"; do
        "$bin/traffic" --netns "$client" --interface client0 --rate 2000 --duration 8 --addresses 4096 --ports 4 \
            --destination 192.0.2.2 --destination-port 8080 --destination-mac "$server_mac" >/dev/null &
        step=$!
        wait "$step"
    done
}
flood &
others+=($!)
until [ -s "$dir/port" ] && [ -S "$dir/console" ]; do
    sleep 0.05
done
cat <<END

The console, in a browser of this machine:

    http://127.0.0.1:$(cat "$dir/port")/#token=$token

On the command line, as root:

    export TWINPROBE_SERVER=$TWINPROBE_SERVER
    $bin/twinprobe top
    $bin/twinprobe watch top-talkers --sort packets --top 10 --rate

Forty clients talk to a server; now and then there is a flood of SYNs. Ctrl-C ends everything and cleans up; after an hour
the demo does so by itself.
END
sleep "$longest" &
others+=($!)
wait $!
