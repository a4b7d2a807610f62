#!/bin/sh
# Makes a second host on this machine to talk to: the network namespace `far`, and a cable to it.
#
#   this machine: near0 192.0.2.1 <---> 192.0.2.2, 192.0.2.3 far0 :far
#
# IPv6 is off on both ends, so that nothing but your own packets is counted. `ip netns del far` removes all of it.
set -e
ip netns add far
ip link add near0 type veth peer name far0 netns far
ip link set near0 addrgenmode none up
ip address add 192.0.2.1/24 dev near0
ip -n far link set far0 addrgenmode none up
ip -n far address add 192.0.2.2/24 dev far0
ip -n far address add 192.0.2.3/24 dev far0
