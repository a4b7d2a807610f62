//! The addresses in the network namespace of a process, read from files that need no privilege.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The largest table of routes that is read, in bytes.
const LARGEST: usize = 4 << 20;

/// Returns the addresses of all interfaces of the namespace, sorted, without loopback and
/// link-local addresses. The result is empty for a process that has ended.
pub fn of_process(pid: u32) -> Vec<IpAddr> {
    let read = |file: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap_or_default();
        if text.len() > LARGEST {
            String::new()
        } else {
            text
        }
    };
    let (routes, interfaces) = (read("fib_trie"), read("if_inet6"));
    let v4 = local_of_routes(&routes)
        .filter(|address| !address.is_loopback() && !address.is_link_local());
    let v6 = of_interfaces(&interfaces)
        .filter(|address| !address.is_loopback() && !address.is_unicast_link_local());
    let all: BTreeSet<IpAddr> = v4.map(IpAddr::from).chain(v6.map(IpAddr::from)).collect();
    all.into_iter().collect()
}

/// Returns the machine's own addresses in the kernel's list of routes: each address is followed by
/// a line that marks it as local.
fn local_of_routes(text: &str) -> impl Iterator<Item = Ipv4Addr> {
    let mut address = None;
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if let Some(leaf) = line.strip_prefix("|-- ") {
            address = leaf.parse().ok();
        }
        address.filter(|_| line == "/32 host LOCAL")
    })
}

/// Returns the addresses of interfaces: each line begins with the 32 hex digits of an address.
fn of_interfaces(text: &str) -> impl Iterator<Item = Ipv6Addr> {
    let address = |line: &str| {
        let digits = line
            .split_whitespace()
            .next()
            .filter(|word| word.len() == 32)?;
        u128::from_str_radix(digits, 16).ok()
    };
    text.lines().filter_map(address).map(Ipv6Addr::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses_are_those_of_hosts() {
        let routes = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 10.1.0.7\n        \
                      /32 host LOCAL\n     |-- 10.1.0.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
        let found: Vec<String> = local_of_routes(routes)
            .map(|address| address.to_string())
            .collect();
        assert_eq!(found, ["10.1.0.7", "127.0.0.1"]);
        let interfaces = "20010db8000000000000000000000007 02 40 00 80     eth0\nbad\n";
        let found: Vec<String> = of_interfaces(interfaces)
            .map(|address| address.to_string())
            .collect();
        assert_eq!(found, ["2001:db8::7"]);
    }
}
