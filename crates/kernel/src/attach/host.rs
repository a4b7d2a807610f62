//! The kernel objects that all probes of this daemon share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use twinprobe_ebpf_common::hook::{Hook, ProgramKind, XdpKind};

use crate::attach::dispatcher::dispatchers::Dispatchers;
use crate::attach::dispatcher::kinds;
use crate::attach::dispatcher::slots::Slots;
use crate::attach::epoch::EpochWords;
use crate::attach::hook::hook_point::HookPoint;
use crate::attach::hook::libxdp;
use crate::attach::places::{self, AttachInterface};
use crate::attach::quiesce::quiescer::Quiescer;
use crate::capabilities::Capabilities;
use crate::load::direction::LoadedDirection;
use crate::load::pins::DeploymentPins;
use crate::net::keeper::OffloadKeeper;

/// The kernel objects that all probes share: epoch words, grace periods, dispatchers, and the
/// directories of pins.
#[derive(Debug)]
pub struct Host {
    pub epochs: EpochWords,
    pub quiescer: Arc<Quiescer>,
    pub dispatchers: Dispatchers,
    pub capabilities: Capabilities,
    /// The keeper of the changes that interfaces make to packets, for all probes.
    pub offloads: Arc<OffloadKeeper>,
    /// The id of this boot of the machine. Ids of kernel objects have no meaning after another
    /// boot.
    pub boot_id: String,
    /// One directory of pins for each deployment.
    pub pins: PathBuf,
    /// The serial of the next deployment.
    pub serials: AtomicU64,
    /// Serials whose pins could not be removed, for example because the process had no descriptors
    /// left. [`Self::retry_removals`] tries again.
    pub unremoved: Mutex<Vec<u64>>,
}

impl Host {
    /// Returns a new serial for a deployment.
    pub fn new_serial(&self) -> u64 {
        self.serials.fetch_add(1, Ordering::Relaxed)
    }

    /// Tells whether programs at `hook` were loaded for packets of several buffers. `recorded` is
    /// the value in their record; a record of an earlier version has none.
    pub fn has_frags(&self, hook: Hook, recorded: Option<bool>) -> bool {
        recorded.unwrap_or_else(|| match hook.kind() {
            ProgramKind::Xdp => self.capabilities.kernel.xdp_frags,
            ProgramKind::Tc => false,
        })
    }

    /// Returns the index of the direction and the reason for each place where the programs of
    /// `probe` can't be attached, because the programs there are of the other kind.
    pub fn misfits(
        &self,
        probe: &str,
        directions: &[LoadedDirection],
        interfaces: &[AttachInterface],
    ) -> Vec<(usize, String)> {
        let places = places::places(directions, interfaces);
        let reason = |(direction, place): &(usize, HookPoint)| {
            let reason =
                self.dispatchers
                    .misfit(place, probe, directions[*direction].plan.kind())?;
            Some((*direction, reason))
        };
        places.iter().filter_map(reason).collect()
    }

    /// Tells whether libxdp's dispatcher must be able to call XDP programs for these interfaces: it
    /// is at one of these interfaces, or other programs there were loaded for it.
    pub fn is_beside_libxdp(&self, interfaces: &[AttachInterface]) -> bool {
        interfaces
            .iter()
            .any(|AttachInterface { netns, index, .. }| {
                let by_place = self.dispatchers.by_place.lock();
                let known = by_place.get(&(netns.id(), *index, Hook::Xdp.name(), false));
                known.is_some_and(|(_, dispatcher)| {
                    kinds::of(&dispatcher.entries) == XdpKind::Joined
                }) || netns
                    .run(|| libxdp::can_join(*index))
                    .flatten()
                    .unwrap_or(false)
            })
    }

    /// Marks the serials up to `used` as used, so that no deployment gets them again.
    pub fn skip_serials(&self, used: u64) {
        self.serials.fetch_max(used + 1, Ordering::Relaxed);
    }

    /// Releases the slots of a deployment that no dispatcher calls any more. The kernel empties the
    /// slots after their last user has released them. Waits until no CPU runs a program that called
    /// them.
    pub fn release(&self, slots: impl IntoIterator<Item = Arc<Slots>>) {
        if let Err(error) = self.quiescer.quiesce() {
            tracing::error!(%error, "no grace period: slots of a replaced probe stay until the daemon ends");
            slots.into_iter().for_each(std::mem::forget);
        }
    }

    /// Removes the pins of a deployment. If this fails, [`Self::retry_removals`] repeats it later.
    pub fn remove_pins(&self, serial: u64) {
        if let Err(error) = DeploymentPins::new(&self.pins, serial).remove() {
            tracing::warn!(serial, %error, "a probe's pins could not be removed; the daemon retries");
            self.unremoved.lock().push(serial);
        }
    }

    /// Removes pins that could not be removed before.
    pub fn retry_removals(&self) {
        self.unremoved
            .lock()
            .retain(|serial| DeploymentPins::new(&self.pins, *serial).remove().is_err());
    }
}

/// Returns the serials that have pins.
pub fn serials(pins: &Path) -> std::io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(pins)? {
        found.extend(
            entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<u64>().ok()),
        );
    }
    Ok(found)
}
