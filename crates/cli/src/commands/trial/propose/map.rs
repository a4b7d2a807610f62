//! The maps of a program in the proposal.

use std::fmt::Write as _;

use twinprobe_api::MapReport;
use twinprobe_ebpf_common::{EventKind, MapKind};

use crate::commands::trial::propose::names::{quoted, symbol};

/// A map of the program, as the proposal has it.
pub struct ProposedMap {
    pub map: String,
    pub kind: String,
    max_entries: u32,
    pub part: MapPart,
}

/// The part of a map in the proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapPart {
    /// Each window empties the map.
    Counts,
    /// The program needs its entries for later packets.
    State,
    /// A loader fills it before the first packet.
    Filled,
    Events,
    /// The reason why the daemon refuses a metric of the map.
    Refused(String),
}

impl ProposedMap {
    /// Chooses the part of a map by what the daemon reports about the map.
    pub fn new(report: &MapReport) -> Self {
        let kind = MapKind::ALL
            .into_iter()
            .find(|kind| kind.name() == report.kind);
        let part = match kind {
            None if EventKind::ALL.iter().any(|kind| kind.name() == report.kind) => MapPart::Events,
            _ if report.deletes => MapPart::State,
            Some(kind) if kind.comes_and_goes() && !report.adds => MapPart::Filled,
            _ => MapPart::Counts,
        };
        Self {
            map: report.map.clone(),
            kind: report.kind.to_string(),
            max_entries: report.max_entries,
            part,
        }
    }

    /// Tells whether the proposal has a metric of the map.
    pub const fn is_metric(&self) -> bool {
        matches!(
            self.part,
            MapPart::Counts | MapPart::State | MapPart::Events
        )
    }

    /// Adds the metric of the map to the text, or the reason why the daemon refuses the metric.
    /// `name` is the name of the metric.
    pub fn write(&self, text: &mut String, probe: &str, name: &str) {
        let Self {
            map,
            kind,
            max_entries,
            part,
        } = self;
        let (note, counting) = match part {
            MapPart::Counts => (None, ", snapshot: true, init: true"),
            MapPart::State => (
                Some(
                    "The program deletes entries, so it needs them for later packets: windows leave the map alone.",
                ),
                "",
            ),
            MapPart::Events => (Some("Events: `twinprobe events` shows them."), ""),
            MapPart::Filled => return,
            MapPart::Refused(reason) => {
                let reason = reason.replace('\n', " ");
                let _ = writeln!(text, "    # Without {map}: {reason}");
                return;
            }
        };
        if let Some(note) = note {
            let _ = writeln!(text, "    # {note}");
        }
        let known = MapKind::ALL.into_iter().find(|known| known.name() == kind);
        let entries = match known {
            Some(MapKind::Global) | None => String::new(),
            Some(_) => format!(" of {max_entries} entries"),
        };
        let sum = if known.is_some_and(MapKind::is_percpu) {
            ", agg: sum"
        } else {
            ""
        };
        let help = quoted(&format!("{} of {probe}", symbol(map)));
        let map = quoted(map);
        let _ = writeln!(
            text,
            "    - {{ name: {name}, map: {map}, help: {help}{counting}{sum} }}  # {kind}{entries}"
        );
    }
}

/// Returns the name of the metric of a map; variables of two sections may have one name.
pub fn metric_name(map: &ProposedMap, all: &[ProposedMap]) -> String {
    let name = symbol(&map.map);
    let is_first = all
        .iter()
        .find(|of| symbol(&of.map) == name)
        .is_some_and(|of| of.map == map.map);
    if is_first {
        name.to_owned()
    } else {
        map.map.trim_start_matches('.').replace([':', '.'], "_")
    }
}
