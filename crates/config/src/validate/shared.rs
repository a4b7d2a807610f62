//! The rules of `shared_maps`, and of several metrics that read one map.

use std::collections::{BTreeSet, HashMap};

use twinprobe_api::ConfigDocument;
use twinprobe_ebpf_common::hook::Direction;

use crate::direction::DirectionConfig;
use crate::validate::findings::Findings;
use crate::validate::names;

/// Checks `shared_maps` and adds its mistakes to `findings`.
pub fn check(document: &ConfigDocument, findings: &mut Findings) -> Vec<String> {
    let shared = document.shared_maps.clone().unwrap_or_default();
    if !findings.fits("shared_maps", shared.len()) {
        return Vec::new();
    }
    if !shared.is_empty() && (document.ingress.is_none() || document.egress.is_none()) {
        let message = "ingress and egress share the maps, so both are needed; add the other, or leave shared_maps out";
        findings.add("shared_maps", message);
    }
    let mut seen = BTreeSet::new();
    for (index, name) in shared.iter().enumerate() {
        let (field, quoted) = (format!("shared_maps[{index}]"), names::quote(name));
        if !names::is_c_identifier(name) {
            let rule = "name a map; variables can't be shared, put them into a map";
            findings.add(
                field,
                format!("{quoted} is not a name of a map in the source; {rule}"),
            );
        } else if !seen.insert(name) {
            findings.add(field, format!("{quoted} is listed twice"));
        }
    }
    shared
}

/// Checks that the metrics of one map agree on the effect of a reading on the map.
pub fn agree<'a>(
    directions: impl IntoIterator<Item = (Direction, &'a DirectionConfig)>,
    shared: &[String],
    findings: &mut Findings,
) {
    let mut first = HashMap::new();
    for (direction, config) in directions {
        for request in config
            .metrics
            .iter()
            .map(|metric| &metric.request)
            .filter(|one| !one.map.is_empty())
        {
            let own = (!shared.contains(&request.map)).then_some(direction);
            let first = *first.entry((own, &request.map)).or_insert(request);
            let asked = [
                ("snapshot", first.is_snapshot(), request.is_snapshot()),
                ("init", first.is_reset(), request.is_reset()),
            ];
            for (field, theirs, _) in asked.into_iter().filter(|(_, theirs, own)| theirs != own) {
                let (map, metric) = (names::quote(&request.map), names::quote(&first.name));
                let message = format!(
                    "metric {metric} reads map {map}, too, with {field}: {theirs}; all metrics of a map must \
                     have the same snapshot and init"
                );
                findings.add(format!("{}.{field}", request.field), message);
            }
        }
    }
}
