//! Forwarding of packets from one interface through the TC egress hook of another one.

use anyhow::{Context, Result};
use aya::{
    Ebpf,
    programs::{
        SchedClassifier, TcAttachType,
        tc::{self, NlOptions, TcAttachOptions, TcError},
    },
};

use crate::{bpf, netns::Namespace};

/// A redirection from one interface's TC ingress to another's TC egress. Dropping the value ends
/// it.
///
/// The program is a clsact filter of the lowest priority: it runs after every TCX program and every
/// other filter, attached in any order.
#[derive(Debug)]
pub struct EgressForward {
    namespace: Namespace,
    ebpf: Option<Ebpf>,
}

impl EgressForward {
    pub(crate) fn attach(namespace: &Namespace, from: &str, to: &str) -> Result<Self> {
        let ebpf = namespace.enter(|| {
            let mut ebpf = bpf::load(
                include_str!("../bpf/egress.bpf.c"),
                &[format!("IFINDEX={}", crate::netns::interface_index(to)?)],
            )?;
            attach_clsact(&mut ebpf, "forward", from, TcAttachType::Ingress, u16::MAX)?;
            anyhow::Ok(ebpf)
        })??;
        Ok(Self {
            namespace: namespace.clone(),
            ebpf: Some(ebpf),
        })
    }
}

impl Drop for EgressForward {
    fn drop(&mut self) {
        let ebpf = self.ebpf.take();
        // A filter is removed by interface index, which is valid only inside the namespace.
        if let Err(error) = self.namespace.enter(|| drop(ebpf)) {
            eprintln!("remove the egress forwarder: {error}");
        }
    }
}

/// Attaches a TC program as a clsact filter. Both this call and the drop of the program must happen
/// inside the namespace.
pub fn attach_clsact(
    ebpf: &mut Ebpf,
    program: &str,
    interface: &str,
    direction: TcAttachType,
    priority: u16,
) -> Result<()> {
    match tc::qdisc_add_clsact(interface) {
        Err(TcError::NetlinkError(error)) if error.raw_os_error() == Some(libc::EEXIST) => {}
        done => done.with_context(|| format!("add clsact to {interface}"))?,
    }
    let classifier: &mut SchedClassifier = ebpf
        .program_mut(program)
        .with_context(|| format!("no program {program}"))?
        .try_into()?;
    classifier
        .load()
        .with_context(|| format!("load {program}"))?;
    let options = TcAttachOptions::Netlink(NlOptions {
        priority,
        ..NlOptions::default()
    });
    classifier
        .attach_with_options(interface, direction, options)
        .with_context(|| format!("attach {program} to {interface}"))?;
    Ok(())
}
