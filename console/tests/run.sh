#!/bin/bash
# run.sh [ARGUMENT...]: tests the console in Chromium against the built daemon, with packets on a veth pair. Playwright
# gets the arguments. The browser and the daemon are in a network namespace of their own. The script removes all that it
# has made.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"
if [ "$(id -u)" -ne 0 ]; then
    exec sudo -E bash tests/run.sh "$@"
fi
export TWINPROBE="${TWINPROBE:-${CARGO_TARGET_DIR:-../target}/release/twinprobe}"
export CONSOLE_ID="tpw-$$"
client="$CONSOLE_ID-client"
server="$CONSOLE_ID-server"
export CONSOLE_CLIENT="$client"

clean_up() {
    status=$?
    trap - EXIT
    ip netns del "$client" 2>/dev/null || true
    ip netns del "$server" 2>/dev/null || true
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

ip netns add "$client"
ip netns add "$server"
ip -n "$client" link add client0 type veth peer name server0 netns "$server"
set_up() {
    ip netns exec "$1" sysctl -qw net.ipv6.conf.all.disable_ipv6=1
    ip -n "$1" link set lo up
    ip -n "$1" link set "$2" up
}
set_up "$client" client0
set_up "$server" server0
for address in 192.0.2.1 192.0.2.11 192.0.2.12; do
    ip -n "$client" address add "$address/24" dev client0
done
ip -n "$server" address add 192.0.2.2/24 dev server0
# nsenter, because `ip netns exec` mounts /sys anew and hides the BPF file system.
nsenter --net="/run/netns/$server" npx playwright test "$@"
