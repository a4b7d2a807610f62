//! The names of the pods to which interfaces lead, as the last look has found them: a table in
//! memory, which documents look up.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use twinprobe_api::{PodEntry, Workload};
use twinprobe_ebpf_common::PodNames;

/// The names of pods by the indices of interfaces in the daemon's own namespace.
#[derive(Debug, Default)]
pub struct InterfacePods(RwLock<BTreeMap<u32, (String, PodNames)>>);

impl InterfacePods {
    /// Replaces the table by interfaces and the pods to which they lead.
    pub fn set<'a>(&self, found: impl Iterator<Item = (&'a (String, u32), &'a PodEntry)>) {
        *self.0.write() = found
            .map(|((name, index), pod)| (*index, (name.clone(), names(pod))))
            .collect();
    }

    /// Returns the names of the pods to which these interfaces lead, by the names of the
    /// interfaces.
    pub fn of(&self, indices: impl Iterator<Item = u32>) -> BTreeMap<String, PodNames> {
        let known = self.0.read();
        indices
            .filter_map(|index| known.get(&index).cloned())
            .collect()
    }
}

/// Returns the names of a pod as documents show them.
pub fn names(pod: &PodEntry) -> PodNames {
    let workload = pod
        .workload
        .as_ref()
        .map(|Workload { kind, name }| format!("{kind}/{name}"));
    PodNames {
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        workload,
    }
}
