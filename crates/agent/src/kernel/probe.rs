//! A probe in the kernel, from loaded to attached to read. Each step is a type that consumes the one before,
//! and swapped maps can only be reached through [`Quiesced`], the guard of a finished flip.

use std::sync::Arc;
use std::time::Duration;

use super::Kernel;
use super::dispatcher::{Addition, Owner, Place};
use super::epoch::EpochWord;
use super::hook::{AttachError, Hook};
use super::loader::LoadedTwins;
use super::map::MetricMap;
use super::reclaim::Reclaim;
use super::sys::KernelError;
use super::twin_maps::TwinMap;
use crate::config::{Verdict, XdpMode};

/// One direction of a probe, loaded and ready to be attached.
#[derive(Debug)]
pub struct LoadedDirection {
    pub twins: LoadedTwins,
    pub hook: Hook,
    pub verdict: Verdict,
    pub xdp_mode: XdpMode,
}

/// Where and how one direction is attached.
#[derive(Clone, Debug)]
pub struct AttachedAt {
    /// Index of the direction.
    pub direction: usize,
    pub place: Place,
    pub mode: &'static str,
}

/// A probe whose twins see packets.
#[derive(Debug)]
pub struct Attached {
    kernel: Arc<Kernel>,
    owner: Owner,
    epoch: EpochWord,
    directions: Vec<LoadedDirection>,
    places: Vec<AttachedAt>,
    unread: Option<Unread>,
}

/// An epoch that has ended and whose twin has not been read and reset to its end.
#[derive(Clone, Copy, Debug)]
struct Unread {
    epoch: u64,
    /// `None`: the grace period has not been waited for.
    quiesced: Option<Duration>,
}

impl Attached {
    /// Attaches every direction at every interface; where `replaces` is attached, in its place and between
    /// two packets. After an error everything is as it was.
    pub fn attach(
        kernel: &Arc<Kernel>,
        directions: Vec<LoadedDirection>,
        interfaces: &[(String, u32)],
        replaces: Option<&Self>,
    ) -> Result<Self, AttachError> {
        // A collector sees sequence numbers grow over a replacement, too.
        let epoch = replaces.map_or(1, |old| old.epoch.current() + 1);
        let epoch = kernel.epochs.allocate(epoch).ok_or_else(|| {
            AttachError::Occupied("the daemon has as many probes as it can have; delete one first".into())
        })?;
        let mut attached = Self {
            kernel: Arc::clone(kernel),
            owner: kernel.new_owner(),
            epoch,
            directions,
            places: Vec::new(),
            unread: None,
        };
        let wanted: Vec<(usize, Place)> = attached
            .directions
            .iter()
            .enumerate()
            .flat_map(|(direction, loaded)| {
                interfaces.iter().map(move |(interface, ifindex)| {
                    let place = Place { interface: interface.clone(), ifindex: *ifindex, hook: loaded.hook };
                    (direction, place)
                })
            })
            .collect();
        for (direction, place) in wanted {
            let old = replaces.filter(|old| old.is_at(&place)).map(|old| old.owner);
            match attached.add(direction, &place, old) {
                Ok(mode) => attached.places.push(AttachedAt { direction, place, mode }),
                Err(error) => {
                    attached.undo(replaces);
                    return Err(error);
                }
            }
        }
        if let Some(old) = replaces {
            for at in old.places.iter().filter(|at| !attached.is_at(&at.place)) {
                old.remove(&at.place, &mut Reclaim::default());
            }
        }
        Ok(attached)
    }

    /// Takes the probe out of all dispatchers and waits until the kernel has freed it.
    pub fn detach(mut self) {
        let mut reclaim = Reclaim::default();
        for direction in &self.directions {
            for parity in 0..2 {
                reclaim.add_program(direction.twins.programs.of_parity(parity));
            }
        }
        for at in std::mem::take(&mut self.places) {
            self.remove(&at.place, &mut reclaim);
        }
        drop(self);
        reclaim.wait();
    }

    /// Ends the epoch: from now on packets are counted by the other twin, and what the guard gives is
    /// complete and at rest. An epoch whose guard was not [finished](Quiesced::finish) is given again
    /// instead: no flip happens before the idle twin has been cleared.
    pub fn flip(&mut self) -> Result<Quiesced<'_>, KernelError> {
        let unread = *self.unread.get_or_insert_with(|| Unread { epoch: self.epoch.flip(), quiesced: None });
        let quiesced = match unread.quiesced {
            Some(duration) => duration,
            None => self
                .kernel
                .quiescer
                .quiesce()
                .map_err(|error| KernelError::new("grace period", "the flip", error))?,
        };
        self.unread = Some(Unread { quiesced: Some(quiesced), ..unread });
        Ok(Quiesced { probe: self, epoch: unread.epoch, quiesced })
    }

    /// The map of a metric that is read live; `None` if it belongs to the snapshot.
    pub fn live_map(&self, direction: usize, metric: usize) -> Option<&Arc<MetricMap>> {
        match self.map(direction, metric) {
            TwinMap::Shared(map) => Some(map),
            TwinMap::Private(_) | TwinMap::Events(_) => None,
        }
    }

    pub fn map(&self, direction: usize, metric: usize) -> &TwinMap {
        &self.directions[direction].twins.maps[metric]
    }

    pub fn directions(&self) -> &[LoadedDirection] {
        &self.directions
    }

    pub fn places(&self) -> &[AttachedAt] {
        &self.places
    }

    fn is_at(&self, place: &Place) -> bool {
        self.places.iter().any(|at| at.place == *place)
    }

    fn add(
        &self,
        direction: usize,
        place: &Place,
        replaces: Option<Owner>,
    ) -> Result<&'static str, AttachError> {
        let loaded = &self.directions[direction];
        let addition = Addition {
            owner: self.owner,
            programs: &loaded.twins.programs,
            epoch: &self.epoch,
            verdict: loaded.verdict,
            xdp_mode: loaded.xdp_mode,
        };
        self.kernel.dispatchers.add(place, &addition, replaces)
    }

    /// Puts `replaced` back wherever `self` has taken its place and removes `self` everywhere else.
    fn undo(mut self, replaced: Option<&Self>) {
        for at in std::mem::take(&mut self.places) {
            let old = replaced.and_then(|old| {
                old.places.iter().find(|old| old.place == at.place).map(|found| (old, found.direction))
            });
            match old {
                None => self.remove(&at.place, &mut Reclaim::default()),
                Some((old, direction)) => {
                    if let Err(error) = old.add(direction, &at.place, Some(self.owner)) {
                        tracing::error!(%error, "a probe could not be put back after a failed replacement");
                    }
                }
            }
        }
    }

    fn remove(&self, place: &Place, reclaim: &mut Reclaim) {
        if let Err(error) = self.kernel.dispatchers.remove(place, self.owner, reclaim) {
            tracing::warn!(error = super::loader::with_causes(&error), "detaching was not clean");
        }
    }
}

/// The twin of an epoch that has ended, which no CPU runs any more.
#[derive(Debug)]
pub struct Quiesced<'a> {
    probe: &'a mut Attached,
    epoch: u64,
    quiesced: Duration,
}

impl Quiesced<'_> {
    /// The epoch that ended; its number is the window's.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How long the grace period took.
    pub const fn quiesced(&self) -> Duration {
        self.quiesced
    }

    /// The map of a snapshot metric; `None` if the metric is read live.
    pub fn map(&self, direction: usize, metric: usize) -> Option<&MetricMap> {
        match self.probe.map(direction, metric) {
            TwinMap::Private(maps) => Some(&maps[(self.epoch & 1) as usize]),
            TwinMap::Shared(_) | TwinMap::Events(_) => None,
        }
    }

    /// The twin has been read and reset: the next flip may make it active again.
    pub fn finish(self) {
        self.probe.unread = None;
    }
}
