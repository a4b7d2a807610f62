//! The numbers of entries that a configuration gives to maps. Loaders of many projects set them, because the definitions can't
//! know the host.

use twinprobe_ebpf_common::finding::{Finding, Stage};

use crate::plan::map_spec::entries;
use crate::plan::object::Definitions;
use crate::plan::request::{DirectionRequest, KernelFacts};

/// Sets the numbers in the definitions of an object. Returns a finding for each map that is not there.
pub fn set(defined: &mut Definitions, request: &DirectionRequest, facts: KernelFacts) -> Vec<Finding> {
    let direction = request.attach.hook.direction();
    let mut findings = Vec::new();
    for (map, wanted) in &request.max_entries {
        if let Some(spec) = defined.maps.get_mut(map) {
            spec.max_entries = entries(spec.map_type, *wanted, facts);
            continue;
        }
        let known: Vec<&str> =
            defined.maps.keys().map(String::as_str).filter(|map| !map.starts_with('.')).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let message = format!("there is no map {map}; there are {known}");
        findings.push(Finding::new(Stage::Load, format!("{direction}.max_entries.{map}"), message));
    }
    findings
}
