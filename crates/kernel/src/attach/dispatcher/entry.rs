//! One probe of a dispatcher.

use std::num::NonZeroU32;
use std::sync::Arc;

use twinprobe_ebpf_common::hook::{Verdict, XdpKind, XdpMode};

use crate::attach::dispatcher::program::Call;
use crate::attach::dispatcher::slots::Slots;
use crate::attach::epoch::Page;
use crate::attach::rank::{DeploymentId, Rank};

/// One probe that a dispatcher calls.
#[derive(Clone, Debug)]
pub struct DispatcherEntry {
    pub owner: DeploymentId,
    /// The name of the probe, for messages.
    pub probe: Arc<str>,
    pub rank: Rank,
    pub slots: Arc<Slots>,
    /// The page of the epoch word, and the word's offset in the map's value, in bytes.
    pub page: Arc<Page>,
    pub epoch_offset: i32,
    pub verdict: Verdict,
    /// True if each verdict that the probe's programs can return takes effect without a change.
    pub stands: bool,
    /// The sampling: the probe sees one packet out of this many, chosen at random; `None` if it
    /// sees all packets.
    pub sample: Option<NonZeroU32>,
    /// The kind of the programs. All entries of a dispatcher agree in it.
    pub kind: XdpKind,
    pub xdp_mode: XdpMode,
}

impl DispatcherEntry {
    pub fn call(&self) -> Call<'_> {
        Call {
            slots: self.slots.map(),
            has_twins: self.slots.programs[0] != self.slots.programs[1],
            epochs: self.page.map(),
            epoch_offset: self.epoch_offset,
            verdict: self.verdict,
            stands: self.stands,
            sample: self.sample,
        }
    }
}
