#!/bin/sh
# Makes a second host on this machine to talk to: the network namespace `far`, and a cable to it.
#
#   this machine: near0 192.0.2.1 <---> 192.0.2.2, 192.0.2.3 far0 :far
#
# IPv6 is off and both ends know each other's Ethernet address, so that nothing but your own packets is counted.
# `ip netns del far` removes all of it.
set -e
ip netns add far
ip link add near0 type veth peer name far0 netns far
ip link set near0 addrgenmode none up
ip address add 192.0.2.1/24 dev near0
ip -n far link set far0 addrgenmode none up
ip -n far address add 192.0.2.2/24 dev far0
ip -n far address add 192.0.2.3/24 dev far0

near=$(ip -brief link show dev near0 | awk '{ print $3 }')
far=$(ip -n far -brief link show dev far0 | awk '{ print $3 }')
ip -n far neighbour replace 192.0.2.1 lladdr "$near" dev far0
ip neighbour replace 192.0.2.2 lladdr "$far" dev near0
ip neighbour replace 192.0.2.3 lladdr "$far" dev near0
