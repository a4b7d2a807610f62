//! What the end-to-end tests stand on: namespaces, veth pairs, a daemon, traffic.
