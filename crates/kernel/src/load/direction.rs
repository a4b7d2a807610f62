//! A direction of a probe between loading and attachment.

use twinprobe_ebpf_common::hook::{Hook, Position, Verdict, XdpMode};

use crate::load::maps::Origin;
use crate::load::twins::LoadedTwins;

/// One direction of a probe, loaded and ready to be attached.
#[derive(Debug)]
pub struct LoadedDirection {
    pub twins: LoadedTwins,
    pub hook: Hook,
    pub verdict: Verdict,
    pub xdp_mode: XdpMode,
    pub priority: i32,
    pub position: Position,
}

impl LoadedDirection {
    /// Tells whether the map that a metric names is the replaced deployment's own map.
    pub fn takes_over(&self, map: &str) -> bool {
        let name = map.split_once(':').map_or(map, |(section, _)| section);
        self.twins.own.by_name().get(name).is_some_and(|map| map.origin == Origin::TakenOver)
    }
}
