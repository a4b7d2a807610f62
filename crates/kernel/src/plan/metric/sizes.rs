//! The numbers of entries that a configuration gives to maps. Loaders of many projects set them, because the definitions can't
//! know the host.

use twinprobe_ebpf_common::finding::{Finding, Stage};
use twinprobe_ebpf_common::{MapFamily, MapKind};

use crate::plan::map_spec::entries;
use crate::plan::object::Definitions;
use crate::plan::request::{DirectionRequest, KernelFacts};

/// The number of entries of a table for which neither the source nor the configuration has a number.
const USUAL: u32 = 10_240;

/// Sets the numbers in the definitions of an object, and warns of tables that have none. Returns a finding for each map that
/// is not there.
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
    for (map, spec) in &mut defined.maps {
        let family = MapKind::from_bpf_type(spec.map_type).map(MapKind::family);
        if spec.max_entries == 0 && matches!(family, Some(MapFamily::Hash | MapFamily::Trie)) {
            spec.max_entries = USUAL;
            defined.warnings.push(format!(
                "map {map} has no number of entries, and gets {USUAL}; give it another in {direction}.max_entries"
            ));
        }
    }
    findings
}
