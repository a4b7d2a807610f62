//! The guard of a finished flip: the only way to the maps of the idle twin.

use std::path::PathBuf;
use std::time::Duration;

use crate::attach::attached::Attached;
use crate::load::maps::TwinMap;
use crate::read::map::MetricMap;
use crate::sys::call::KernelError;
use crate::sys::clock::Moment;
use twinprobe_faults::crash;

/// True on processors that do not reorder loads.
const LOADS_STAY_IN_ORDER: bool = cfg!(any(
    target_arch = "x86",
    target_arch = "x86_64",
    target_arch = "s390x"
));

/// The idle twin of an epoch that has ended; no CPU runs it any more.
#[derive(Debug)]
pub struct Quiesced<'a> {
    pub probe: &'a mut Attached,
    /// The epoch that has ended. Its number is the number of the window.
    pub epoch: u64,
    /// The length of the grace period.
    pub quiesced: Duration,
}

impl Attached {
    /// Ends the epoch: from now on the other twin counts packets, and the maps that the guard gives
    /// access to are complete and do not change. If the guard of the previous epoch was not
    /// [finished](Quiesced::finish), by this daemon or an earlier one, this function returns the
    /// guard of the previous epoch instead: no flip happens before the idle twin is empty. Fails if
    /// the wait for a grace period failed.
    pub fn flip(&mut self) -> Result<Quiesced<'_>, KernelError> {
        let epoch = self.epoch.unread().unwrap_or_else(|| self.epoch.flip());
        crash::point("flipped");
        crash::pause("flipped");
        let quiesced = match self.quiesced {
            Some((of, duration)) if of == epoch => duration,
            // Without twins one program counts in the same maps before and after the flip, so there
            // is nothing to wait for.
            _ if !self.has_twins() => Duration::ZERO,
            _ => self.grace_period()?,
        };
        self.quiesced = Some((epoch, quiesced));
        Ok(Quiesced {
            probe: self,
            epoch,
            quiesced,
        })
    }

    /// Ends the epoch of each probe, except of probes whose previous epoch was not read yet. One
    /// grace period serves all probes: [`Self::flip`] then returns at once. Fails if the wait for a
    /// grace period failed. The epochs have ended then.
    pub fn flip_together(probes: &mut [&mut Self]) -> Result<(), KernelError> {
        for probe in &mut *probes {
            if probe.epoch.unread().is_none() {
                probe.epoch.flip();
            }
        }
        crash::point("turned");
        let Some(first) = probes.iter().find(|probe| probe.has_twins()) else {
            return Ok(());
        };
        let duration = first.grace_period()?;
        for probe in probes {
            probe.quiesced = probe.epoch.unread().map(|epoch| (epoch, duration));
        }
        Ok(())
    }

    /// Returns the guard of a flip whose grace period has ended and which is not finished; `None`
    /// if there is no such flip.
    pub fn flipped(&mut self) -> Option<Quiesced<'_>> {
        let epoch = self.epoch.unread()?;
        let quiesced = self.quiesced.filter(|(of, _)| *of == epoch)?.1;
        Some(Quiesced {
            probe: self,
            epoch,
            quiesced,
        })
    }

    fn has_twins(&self) -> bool {
        self.directions.iter().any(|loaded| loaded.plan.has_twins())
    }

    fn grace_period(&self) -> Result<Duration, KernelError> {
        let quiesced = self.host.quiescer.quiesce();
        quiesced.map_err(|error| KernelError::new("grace period", "the flip", error))
    }
}

impl Quiesced<'_> {
    /// Returns the map of a metric: the idle twin's map if the map is private, or else the shared
    /// map, which packets still change. `None` for metrics without rows.
    pub fn map(&self, (direction, metric): (usize, usize)) -> Option<&MetricMap> {
        match self.probe.map(direction, metric) {
            TwinMap::Private(maps) => Some(&maps[(self.epoch & 1) as usize]),
            TwinMap::Shared(map) => Some(map),
            TwinMap::Events(_) | TwinMap::Unread => None,
        }
    }

    /// Returns the path of a metric's journal, which keeps the rows that were taken out of the
    /// metric's map until the window is stored.
    pub fn journal(&self, (direction, metric): (usize, usize)) -> PathBuf {
        self.probe
            .pins
            .journal(&self.probe.directions[direction].plan.pin_name(), metric)
    }

    /// Records that the window is stored and that its maps are about to be emptied.
    pub fn begin_clearing(&self) {
        self.probe.epoch.set_clearing(self.epoch);
    }

    /// Tells whether the clearing of the maps has begun, so that the maps may lack a part of the
    /// window.
    pub fn is_clearing(&self) -> bool {
        self.probe.epoch.is_clearing(self.epoch)
    }

    /// Records that the twin has been read and cleared, so that the next flip may make it active.
    /// The open window began at `opened`. Fails if a needed wait for a grace period has failed.
    pub fn finish(self, opened: Moment) -> Result<(), KernelError> {
        crash::point("cleared");
        // A dispatcher chooses the twin by a branch, and the branch does not order the loads of
        // epoch and entry: a CPU may have loaded an entry before its reset, and an epoch after the
        // next flip. Within a grace period every CPU passes a barrier.
        if !LOADS_STAY_IN_ORDER && self.probe.has_twins() {
            self.probe.grace_period()?;
        }
        // The start is stored first: after a crash in between the maps are cleared again, which
        // changes nothing.
        self.probe.epoch.set_opened(opened);
        self.probe.epoch.set_cleared(self.epoch);
        self.probe.quiesced = None;
        Ok(())
    }
}
