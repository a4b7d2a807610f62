//! Counters that are independent of the daemon under test.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    maps::{HashMap, PerCpuArray},
    programs::{
        LinkOrder, SchedClassifier, Xdp, XdpMode,
        links::FdLink,
        tc::{TcAttachOptions, TcAttachType},
    },
};

use crate::{bpf, egress::attach_clsact, netns::Namespace};

/// The hook of a [`Counter`] and the fate of the packets it counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Native XDP; counted packets are dropped.
    XdpDrop,
    /// Native XDP; counted packets pass.
    XdpPass,
    /// Native XDP like `XdpPass`, under the name that libxdp gives its dispatchers.
    LibxdpDispatcher,
    /// TC ingress, after TCX programs and before [`crate::EgressForward`]; packets pass.
    TcIngress,
    /// TC ingress, by a TCX link that is the first at the time; packets pass.
    TcxFirst,
    /// TC ingress, by a TCX link that is the last at the time; packets pass.
    TcxLast,
    /// TC egress, after TCX programs; packets pass.
    TcEgress,
}

/// A counter of packets, bytes and, if asked, packets per flow on one interface. Dropping the value
/// detaches it.
#[derive(Debug)]
pub struct Counter {
    namespace: Namespace,
    ebpf: Option<Ebpf>,
    pin: Option<PathBuf>,
}

impl Counter {
    /// Attaches a counter of packets and bytes.
    pub fn attach(namespace: &Namespace, interface: &str, place: Place) -> Result<Self> {
        Self::attach_with_flows(namespace, interface, place, 0)
    }

    /// Attaches a counter that also counts the packets of up to `flows` pairs of source address and
    /// port.
    pub fn attach_with_flows(
        namespace: &Namespace,
        interface: &str,
        place: Place,
        flows: u32,
    ) -> Result<Self> {
        let ebpf = namespace.enter(|| {
            let mut defines = vec![format!("FLOWS={flows}")];
            if place != Place::XdpDrop {
                defines.push("PASS".to_owned());
            }
            let xdp_name = if place == Place::LibxdpDispatcher {
                "xdp_dispatcher"
            } else {
                "count_xdp"
            };
            defines.push(format!("count_xdp={xdp_name}"));
            let mut ebpf = bpf::load(include_str!("../bpf/counter.bpf.c"), &defines)?;
            match place {
                Place::XdpDrop | Place::XdpPass | Place::LibxdpDispatcher => {
                    let xdp: &mut Xdp = ebpf
                        .program_mut(xdp_name)
                        .context("no program")?
                        .try_into()?;
                    xdp.load().context("load counter")?;
                    xdp.attach(interface, XdpMode::Driver)
                        .context("attach counter")?;
                }
                Place::TcIngress => {
                    attach_clsact(
                        &mut ebpf,
                        "count_tc",
                        interface,
                        TcAttachType::Ingress,
                        1000,
                    )?;
                }
                Place::TcxFirst => attach_tcx(&mut ebpf, interface, LinkOrder::first())?,
                Place::TcxLast => attach_tcx(&mut ebpf, interface, LinkOrder::last())?,
                Place::TcEgress => {
                    attach_clsact(&mut ebpf, "count_tc", interface, TcAttachType::Egress, 1000)?;
                }
            }
            anyhow::Ok(ebpf)
        })??;
        Ok(Self {
            namespace: namespace.clone(),
            ebpf: Some(ebpf),
            pin: None,
        })
    }

    /// Loads a counter that lets packets pass and pins it, for `ip link set dev NAME xdpdrv pinned
    /// PIN` (`XdpPass`) or `tc filter add dev NAME ingress bpf da pinned PIN` (any other place).
    pub fn pinned(namespace: &Namespace, place: Place, pin: &Path) -> Result<Self> {
        let mut ebpf = bpf::load(
            include_str!("../bpf/counter.bpf.c"),
            &["FLOWS=0".into(), "PASS".into()],
        )?;
        if place == Place::XdpPass {
            let xdp: &mut Xdp = ebpf
                .program_mut("count_xdp")
                .context("no program")?
                .try_into()?;
            xdp.load().context("load counter")?;
            xdp.pin(pin)?;
        } else {
            let tc: &mut SchedClassifier = ebpf
                .program_mut("count_tc")
                .context("no program")?
                .try_into()?;
            tc.load().context("load counter")?;
            tc.pin(pin)?;
        }
        Ok(Self {
            namespace: namespace.clone(),
            ebpf: Some(ebpf),
            pin: Some(pin.to_owned()),
        })
    }

    /// Attaches a counter that lets packets pass at native XDP, by a link with this pin.
    pub fn attach_pinned(namespace: &Namespace, interface: &str, pin: &Path) -> Result<Self> {
        let ebpf = namespace.enter(|| {
            let mut ebpf = bpf::load(
                include_str!("../bpf/counter.bpf.c"),
                &["FLOWS=0".into(), "PASS".into()],
            )?;
            let xdp: &mut Xdp = ebpf
                .program_mut("count_xdp")
                .context("no program")?
                .try_into()?;
            xdp.load().context("load counter")?;
            let link = xdp
                .attach(interface, XdpMode::Driver)
                .context("attach counter")?;
            FdLink::try_from(xdp.take_link(link)?)?.pin(pin)?;
            anyhow::Ok(ebpf)
        })??;
        Ok(Self {
            namespace: namespace.clone(),
            ebpf: Some(ebpf),
            pin: Some(pin.to_owned()),
        })
    }

    /// Returns the id of the program.
    pub fn program_id(&self) -> Result<u32> {
        let loaded = self
            .ebpf()
            .programs()
            .find_map(|(_, program)| program.info().ok());
        Ok(loaded.context("a program is loaded")?.id())
    }

    fn ebpf(&self) -> &Ebpf {
        self.ebpf.as_ref().expect("present until drop")
    }

    fn total(&self, index: u32) -> Result<u64> {
        let totals: PerCpuArray<_, u64> =
            self.ebpf().map("totals").context("no totals")?.try_into()?;
        Ok(totals.get(&index, 0)?.iter().sum())
    }

    /// Returns the number of counted packets.
    pub fn packets(&self) -> Result<u64> {
        self.total(0)
    }

    /// Returns the bytes of the frames, without frame check sequence.
    pub fn bytes(&self) -> Result<u64> {
        self.total(1)
    }

    /// Returns the packets per source address and port. Empty unless asked for in
    /// [`Counter::attach_with_flows`].
    pub fn flows(&self) -> Result<BTreeMap<(Ipv4Addr, u16), u64>> {
        let Some(map) = self.ebpf().map("flows") else {
            return Ok(BTreeMap::new());
        };
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
        if let Some(pin) = &self.pin {
            let _ = std::fs::remove_file(pin);
        }
        // A clsact filter is removed by interface index, which is valid only inside the namespace.
        if let Err(error) = self.namespace.enter(|| drop(ebpf)) {
            eprintln!("remove a counter: {error}");
        }
    }
}

fn attach_tcx(ebpf: &mut Ebpf, interface: &str, order: LinkOrder) -> Result<()> {
    let tc: &mut SchedClassifier = ebpf
        .program_mut("count_tc")
        .context("no program")?
        .try_into()?;
    tc.load().context("load counter")?;
    tc.attach_with_options(
        interface,
        TcAttachType::Ingress,
        TcAttachOptions::TcxOrder(order),
    )
    .context("attach counter")?;
    Ok(())
}

/// Returns the ids of the TCX programs at an interface's TC ingress, in the order in which they
/// run.
pub fn tcx_order(namespace: &Namespace, interface: &str) -> Result<Vec<u32>> {
    let (_, programs) =
        namespace.enter(|| SchedClassifier::query_tcx(interface, TcAttachType::Ingress))??;
    Ok(programs
        .iter()
        .map(aya::programs::ProgramInfo::id)
        .collect())
}
