//! Counters that owe nothing to the daemon under test.

use std::{collections::BTreeMap, net::Ipv4Addr};

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    maps::{HashMap, PerCpuArray},
    programs::{Xdp, XdpMode, tc::TcAttachType},
};

use crate::{bpf, egress::attach_clsact, netns::Namespace};

/// Where a [`Counter`] sits and what becomes of the packets it counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Native XDP; counted packets are dropped.
    XdpDrop,
    /// Native XDP; counted packets go on.
    XdpPass,
    /// TC ingress, after TCX programs and before [`crate::EgressForward`]; packets go on.
    TcIngress,
    /// TC egress, after TCX programs; packets go on.
    TcEgress,
}

/// Counts packets, bytes and, if asked, packets per flow on one interface until dropped.
#[derive(Debug)]
pub struct Counter {
    namespace: Namespace,
    ebpf: Option<Ebpf>,
}

impl Counter {
    /// Counts packets and bytes.
    pub fn attach(namespace: &Namespace, interface: &str, place: Place) -> Result<Self> {
        Self::attach_with_flows(namespace, interface, place, 0)
    }

    /// Counts, in addition, packets of up to `flows` pairs of source address and port.
    pub fn attach_with_flows(
        namespace: &Namespace,
        interface: &str,
        place: Place,
        flows: u32,
    ) -> Result<Self> {
        let ebpf = namespace.enter(|| {
            let mut defines = vec![format!("FLOWS={flows}")];
            if place == Place::XdpPass {
                defines.push("PASS".to_owned());
            }
            let mut ebpf = bpf::load(include_str!("../bpf/counter.bpf.c"), &defines)?;
            match place {
                Place::XdpDrop | Place::XdpPass => {
                    let xdp: &mut Xdp = ebpf.program_mut("count_xdp").context("no program")?.try_into()?;
                    xdp.load().context("load counter")?;
                    xdp.attach(interface, XdpMode::Driver).context("attach counter")?;
                }
                Place::TcIngress => {
                    attach_clsact(&mut ebpf, "count_tc", interface, TcAttachType::Ingress, 1000)?;
                }
                Place::TcEgress => {
                    attach_clsact(&mut ebpf, "count_tc", interface, TcAttachType::Egress, 1000)?;
                }
            }
            anyhow::Ok(ebpf)
        })??;
        Ok(Self { namespace: namespace.clone(), ebpf: Some(ebpf) })
    }

    fn ebpf(&self) -> &Ebpf {
        self.ebpf.as_ref().expect("present until drop")
    }

    fn total(&self, index: u32) -> Result<u64> {
        let totals: PerCpuArray<_, u64> = self.ebpf().map("totals").context("no totals")?.try_into()?;
        Ok(totals.get(&index, 0)?.iter().sum())
    }

    pub fn packets(&self) -> Result<u64> {
        self.total(0)
    }

    /// Bytes of the frames, without frame check sequence.
    pub fn bytes(&self) -> Result<u64> {
        self.total(1)
    }

    /// Packets per source address and port. Empty unless asked for in [`Counter::attach_with_flows`].
    pub fn flows(&self) -> Result<BTreeMap<(Ipv4Addr, u16), u64>> {
        let Some(map) = self.ebpf().map("flows") else { return Ok(BTreeMap::new()) };
        let flows: HashMap<_, [u8; 8], u64> = map.try_into()?;
        flows
            .iter()
            .map(|entry| {
                let (key, packets) = entry?;
                let address = Ipv4Addr::new(key[0], key[1], key[2], key[3]);
                Ok(((address, u16::from_be_bytes([key[4], key[5]])), packets))
            })
            .collect()
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let ebpf = self.ebpf.take();
        // A clsact filter is removed by interface index, which means something only inside the namespace.
        if let Err(error) = self.namespace.enter(|| drop(ebpf)) {
            eprintln!("remove a counter: {error}");
        }
    }
}
