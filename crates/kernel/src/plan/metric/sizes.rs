//! The numbers of entries that a configuration gives to maps. Loaders of many projects set them,
//! because the definitions can't know the host.

use twinprobe_ebpf_common::finding::{Finding, Stage};
use twinprobe_ebpf_common::{EventKind, MapFamily, MapKind};

use crate::plan::map_spec::{MapSpec, entries};
use crate::plan::object::Definitions;
use crate::plan::request::{DirectionRequest, KernelFacts};

/// Sets the numbers in the definitions of an object, and warns of tables that have none. Returns a
/// finding for each map that is not there.
pub fn set(
    defined: &mut Definitions,
    request: &DirectionRequest,
    facts: KernelFacts,
) -> Vec<Finding> {
    let direction = request.attach.hook.direction();
    let mut findings = Vec::new();
    for (map, wanted) in &request.max_entries {
        if let Some(spec) = defined.maps.get_mut(map) {
            spec.max_entries = entries(spec.map_type, *wanted, facts);
            continue;
        }
        let known: Vec<&str> = defined
            .maps
            .keys()
            .map(String::as_str)
            .filter(|map| !map.starts_with('.'))
            .collect();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        let message = format!("there is no map {map}; there are {known}");
        findings.push(Finding::new(
            Stage::Load,
            format!("{direction}.max_entries.{map}"),
            message,
        ));
    }
    for (map, spec) in &mut defined.maps {
        if let Some(usual) = complete(spec) {
            defined.warnings.push(format!(
                "map {map} has no number of entries, and gets {usual}; give it another in {direction}.max_entries"
            ));
        }
        if let Some(usual) = spec.inner.as_deref_mut().and_then(complete) {
            defined.warnings.push(format!(
                "the maps in {map} have no number of entries, and get {usual}"
            ));
        }
    }
    findings
}

/// Gives a map without a number of entries the usual one. Returns this number.
fn complete(spec: &mut MapSpec) -> Option<u32> {
    let usual = usual(spec.map_type).filter(|_| spec.max_entries == 0)?;
    spec.max_entries = usual;
    Some(usual)
}

/// Returns the usual number of entries, for a map without a number in the source and in the
/// configuration; `None` for a map that needs its own. An array gets fewer, because all its entries
/// are in memory and in windows.
fn usual(map_type: u32) -> Option<u32> {
    if EventKind::from_bpf_type(map_type) == Some(EventKind::Ringbuf) {
        return Some(256 << 10);
    }
    match MapKind::from_bpf_type(map_type)?.family() {
        MapFamily::Hash | MapFamily::Trie => Some(10_240),
        MapFamily::Array | MapFamily::Nested => Some(1024),
        MapFamily::Fifo | MapFamily::Global => None,
    }
}
