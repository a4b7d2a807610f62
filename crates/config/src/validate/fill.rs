//! The rules of `fill`. The plan checks whether the entries fit a map, because it knows the map's
//! types.

use std::sync::Arc;

use twinprobe_api::ConfigDocument;
use twinprobe_ebpf_common::request::Fills;

use crate::validate::findings::Findings;
use crate::validate::names;

/// The number of maps that `fill` may name, and the number of entries of all of them.
const MAPS: usize = 64;
const ENTRIES: usize = 65_536;

/// Checks `fill` and adds its mistakes to `findings`.
pub fn check(document: &ConfigDocument, findings: &mut Findings) -> Arc<Fills> {
    let fill = document.fill.clone().unwrap_or_default();
    if fill.len() > MAPS {
        findings.add(
            "fill",
            format!("{} maps are filled; the limit is {MAPS}", fill.len()),
        );
    }
    let entries: usize = fill.values().map(Vec::len).sum();
    if entries > ENTRIES {
        findings.add(
            "fill",
            format!("{entries} entries are too many; the limit is {ENTRIES}"),
        );
    }
    for name in fill.keys().filter(|name| !names::is_c_identifier(name)) {
        let rule = "name a map; variables have their initial values in variables";
        findings.add(
            "fill",
            format!(
                "{} is not a name of a map in the source; {rule}",
                names::quote(name)
            ),
        );
    }
    Arc::new(fill)
}
