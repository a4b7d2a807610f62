//! Three namespaces in a row: `gen`: gen0 <-> mon0 :`mon`: mon1 <-> sink0 :`sink`.

use std::path::Path;

use anyhow::{Context, Result};

use crate::{
    egress::EgressForward,
    netns::{Namespace, output, run, unique_prefix},
};

/// The generator's end of the first pair, in namespace `gen`.
pub const GEN0: &str = "gen0";
/// The interface where traffic enters the monitored namespace `mon`.
pub const MON0: &str = "mon0";
/// The interface where traffic leaves the monitored namespace `mon`.
pub const MON1: &str = "mon1";
/// The interface in namespace `sink` that receives the traffic from `mon`.
pub const SINK0: &str = "sink0";

/// A monitored namespace between a generating and a receiving one. No interface has an address,
/// IPv6 and ARP are off: the only packets are those that a test sends. Drop removes all of it.
#[derive(Debug)]
pub struct Topology {
    generator: Namespace,
    monitor: Namespace,
    sink: Namespace,
}

/// The packets and bytes that an interface counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceStats {
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub rx_dropped: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub tx_dropped: u64,
}

impl Topology {
    /// Makes the namespaces and both pairs, with names that no other test uses.
    pub fn new() -> Result<Self> {
        let prefix = unique_prefix();
        let topology = Self {
            generator: Namespace::create(&format!("{prefix}-gen"))?,
            monitor: Namespace::create(&format!("{prefix}-mon"))?,
            sink: Namespace::create(&format!("{prefix}-sink"))?,
        };
        veth_pair(&topology.generator, GEN0, &topology.monitor, MON0)?;
        veth_pair(&topology.monitor, MON1, &topology.sink, SINK0)?;
        Ok(topology)
    }

    pub fn generator(&self) -> &Namespace {
        &self.generator
    }

    pub fn monitor(&self) -> &Namespace {
        &self.monitor
    }

    pub fn sink(&self) -> &Namespace {
        &self.sink
    }

    /// Returns the path of `mon`, for `--netns` options and `ip netns`.
    pub fn mon_netns_path(&self) -> &Path {
        self.monitor.path()
    }

    /// Makes packets that arrive at mon0 and pass all TC ingress programs leave through mon1, TC
    /// egress included, until the guard is dropped.
    pub fn forward_to_egress(&self) -> Result<EgressForward> {
        EgressForward::attach(&self.monitor, MON0, MON1)
    }

    /// Returns the counters of `mon0`. They lack packets that native XDP programs have dropped or
    /// redirected.
    pub fn mon0_stats(&self) -> Result<InterfaceStats> {
        interface_stats(&self.monitor, MON0)
    }

    pub fn mon1_stats(&self) -> Result<InterfaceStats> {
        interface_stats(&self.monitor, MON1)
    }

    pub fn sink0_stats(&self) -> Result<InterfaceStats> {
        interface_stats(&self.sink, SINK0)
    }
}

/// Returns the counters of one interface, by `ip -s link`.
pub fn interface_stats(namespace: &Namespace, interface: &str) -> Result<InterfaceStats> {
    let json =
        namespace.enter(|| output("ip", &["-s", "-j", "link", "show", "dev", interface]))??;
    let document: serde_json::Value =
        serde_json::from_slice(&json).context("parse ip -s -j link")?;
    let stats = &document[0]["stats64"];
    let number = |direction: &str, field: &str| {
        stats[direction][field]
            .as_u64()
            .with_context(|| format!("{interface} has no {direction}.{field}"))
    };
    Ok(InterfaceStats {
        rx_packets: number("rx", "packets")?,
        rx_bytes: number("rx", "bytes")?,
        rx_dropped: number("rx", "dropped")?,
        tx_packets: number("tx", "packets")?,
        tx_bytes: number("tx", "bytes")?,
        tx_dropped: number("tx", "dropped")?,
    })
}

/// Makes a veth pair with both ends up. A veth end receives redirected XDP frames only if it runs
/// native XDP or GRO. GRO is switched on before an end comes up, because that is when the kernel
/// sets up its polling.
pub fn veth_pair(a: &Namespace, a_name: &str, b: &Namespace, b_name: &str) -> Result<()> {
    let b_path = b.path().to_string_lossy();
    a.enter(|| {
        run(
            "ip",
            &[
                "link", "add", a_name, "type", "veth", "peer", "name", b_name, "netns", &b_path,
            ],
        )
    })??;
    let ends = [(a, a_name), (b, b_name)];
    for (namespace, name) in ends {
        namespace.enter(|| {
            run("ip", &["link", "set", name, "arp", "off"])?;
            run("ethtool", &["-K", name, "gro", "on"])
        })??;
    }
    for (namespace, name) in ends {
        namespace.enter(|| run("ip", &["link", "set", name, "up"]))??;
    }
    Ok(())
}
