//! Algorithm 2 of the paper, made to survive what can happen in between: flip, store the window, and only then
//! empty the idle twin.

mod closing;
mod composed;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use tokio::sync::watch;
use twinprobe_ebpf_common::Render;
use twinprobe_exporter::Context;

pub use self::closing::CloseError;
use self::composed::Extraction;
use super::delivery::{Delivery, InFlight, Undelivered};
use super::interfaces::{self, Wanted, refused, wanted};
use super::placement::Pending;
use super::reader::Reader;
use super::telemetry::Counters;
use super::totals::Totals;
use super::windows::{ClosedBy, Windows};
use crate::config::{Direction, InterfacePattern, OnReplace, ProbeConfig, Schedule};
use crate::kernel::Attached;
use crate::kernel::clock::{self, Moment};
use crate::kernel::watch::Changes;

/// A probe that is attached and read.
#[derive(Debug)]
pub(super) struct Running {
    config: ProbeConfig,
    attached: Attached,
    readers: Vec<Reader>,
    /// When the open window began.
    opened: Moment,
    windows: Arc<Windows>,
    counters: Arc<Counters>,
    in_flight: InFlight,
    /// Why the last window could not be closed.
    trouble: Option<String>,
    /// What a failure kept from its end. The next reader goes on with it.
    extraction: Option<Extraction>,
    undelivered: Undelivered,
    skipped: Arc<AtomicU64>,
    /// Closed with the probe.
    gone: watch::Sender<()>,
    pending: Vec<Pending>,
    unlisted: Option<String>,
    totals: Totals,
}

/// What a deployment knows of earlier ones of the same probe.
#[derive(Debug)]
pub(super) struct Kept {
    pub totals: Totals,
    pub windows: Arc<Windows>,
    pub counters: Arc<Counters>,
}

impl Running {
    pub fn new(config: ProbeConfig, attached: Attached, readers: Vec<Reader>, kept: Kept) -> Self {
        let opened = attached.opened();
        let Kept { totals, windows, counters } = kept;
        Self {
            config,
            attached,
            readers,
            opened,
            windows,
            counters,
            in_flight: InFlight::default(),
            trouble: None,
            extraction: None,
            undelivered: Undelivered::default(),
            skipped: Arc::default(),
            gone: watch::Sender::default(),
            pending: Vec::new(),
            unlisted: None,
            totals,
        }
    }

    /// Goes on with what an earlier daemon has saved. `adopted`: and with the very maps that it has left.
    pub fn resume(&mut self, adopted: bool) {
        // What the maps hold is of this window, unless that is stored already.
        let ended = u64::from(self.attached.closed().is_some());
        let epoch = self.attached.epoch() - ended;
        let open =
            (adopted && self.windows.newest().is_none_or(|stored| stored.seq() != epoch)).then_some(epoch);
        for reader in &mut self.readers {
            let resumed = reader.load(&self.totals, adopted).and_then(|()| match open {
                Some(epoch) => reader.load_carried(&self.totals, epoch),
                None => Ok(()),
            });
            if let Err(error) = resumed {
                let (probe, metric) = (self.config.name(), reader.config.name());
                tracing::error!(probe, metric, %error, "what was counted before can't be read");
            }
        }
        self.forget_totals();
    }

    /// Removes sums of metrics that there are no more.
    fn forget_totals(&self) {
        let used: Vec<String> = self.readers.iter().flat_map(Reader::files).collect();
        if let Err(error) = self.totals.retain(&used) {
            tracing::warn!(probe = self.config.name(), %error, "old sums could not be removed");
        }
    }

    pub const fn config(&self) -> &ProbeConfig {
        &self.config
    }

    pub fn windows(&self) -> Arc<Windows> {
        Arc::clone(&self.windows)
    }

    /// What keeps it from being where it should be.
    pub fn pending(&self) -> &[Pending] {
        &self.pending
    }

    /// Why it can't be told which interfaces there are. What is attached stays.
    pub fn unlisted(&self) -> Option<&str> {
        self.unlisted.as_deref()
    }

    pub fn set_pending(&mut self, mut pending: Vec<Pending>, unlisted: Option<String>) {
        if let Some(reason) = unlisted.as_ref().filter(|_| self.unlisted.is_none()) {
            tracing::warn!(probe = self.config.name(), reason, "what is attached stays; it is tried again");
        }
        if unlisted.is_some() {
            // Nobody knows whether the others are there.
            let is_at = |name: &str| self.attached.places().iter().any(|at| at.place.interface == name);
            pending.retain(|pending| !is_at(&pending.interface));
        }
        (self.pending, self.unlisted) = (pending, unlisted);
    }

    /// Why the last window could not be closed.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    pub fn schedule(&self) -> Option<Schedule> {
        self.config.schedule()
    }

    /// When the open window began.
    pub fn opened(&self) -> Moment {
        self.opened
    }

    /// Closed with the probe.
    pub fn gone(&self) -> watch::Receiver<()> {
        self.gone.subscribe()
    }

    pub fn has_windows(&self) -> bool {
        self.config.has_snapshot()
    }

    /// What OpenMetrics answers have left out.
    pub fn skipped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.skipped)
    }

    /// Attaches it to the interfaces there are now, and detaches it from those that have gone.
    pub fn follow(&mut self, changes: &Changes) {
        match wanted(&self.config, false) {
            Ok(Wanted { pending, unlisted: Some(reason), .. }) => self.set_pending(pending, Some(reason)),
            Ok(Wanted { interfaces, mut pending, unlisted: None }) => {
                pending.extend(refused(self.attached.place(&interfaces, changes)));
                self.set_pending(pending, None);
            }
            Err(rejection) => tracing::error!(?rejection, "a probe can't follow its interfaces"),
        }
    }

    /// Takes the place of `old`, which sees packets no more, with all that it has not handed on yet.
    pub fn succeed(&mut self, old: Self) {
        let Self { attached, readers, undelivered, skipped, in_flight, .. } = old;
        (self.undelivered, self.skipped, self.in_flight) = (undelivered, skipped, in_flight);
        let remains = self.attached.retire(&attached);
        for reader in self.readers.iter_mut().filter(|reader| reader.config.on_replace() == OnReplace::Carry)
        {
            let map = reader.config.map();
            let same = |old: &&Reader| old.direction == reader.direction && old.config.map() == map;
            if let Some(old) = readers.iter().find(same) {
                reader.succeed(old);
            }
            let direction = reader.direction.name();
            for remains in remains.iter().filter(|remains| remains.direction == direction) {
                reader.add_remains(remains);
            }
        }
        // Of the window that is open, only what is in no map any more is part of the sums.
        let epoch = self.attached.epoch().wrapping_sub(1);
        for reader in &mut self.readers {
            reader.set_summed(epoch);
            let saved = reader.save(&self.totals);
            if let Err(error) = saved.and_then(|()| reader.save_carried(&self.totals, epoch.wrapping_add(1)))
            {
                let metric = reader.config.name();
                tracing::error!(metric, %error, "what was counted before can't be saved before the next window");
            }
        }
        self.forget_totals();
    }

    /// So that nothing is left in maps that are about to be replaced.
    pub fn finish(&mut self) -> Result<(), CloseError> {
        self.finish_window()?;
        let Some(mut extraction) = self.extraction.take() else { return Ok(()) };
        extraction.spools().for_each(|spool| spool.reopen());
        let taken = self.take(&mut extraction);
        if taken.is_err() {
            self.extraction = Some(extraction);
        }
        Ok(taken?)
    }

    pub const fn attached(&self) -> &Attached {
        &self.attached
    }

    pub fn detach(self) {
        drop(self.gone);
        self.attached.detach();
    }

    /// Hands a reading to `deliver` and then takes out of the maps what it consists of: one that an error or a
    /// client kept from its end, else a new one.
    pub fn read(&mut self, deliver: impl FnOnce(Delivery)) -> Result<(), CloseError> {
        if let Some(extraction) = &self.extraction {
            extraction.spools().for_each(|spool| spool.reopen());
            deliver(self.undelivered.again(&extraction.reading));
        } else if let Some(abandoned) = self.undelivered.abandoned() {
            deliver(abandoned);
        } else if self.has_windows() && self.schedule().is_none() {
            self.finish_window()?;
            let delivery = match self.untaken() {
                Some(delivery) => delivery,
                None => {
                    let stored = self.close(ClosedBy::Read)?;
                    let claim = self.in_flight.claim(stored.seq());
                    Delivery::of_window(&self.windows, &stored, self.skipped(), claim)?
                }
            };
            deliver(delivery);
        } else {
            deliver(self.compose()?);
        }
        self.extract();
        Ok(())
    }

    /// A window that was closed for a client which has not taken all of it.
    fn untaken(&self) -> Option<Delivery> {
        self.windows.untaken().into_iter().find_map(|stored| {
            let claim = self.in_flight.claim(stored.seq())?;
            // One that is damaged has been set aside and reported.
            Delivery::of_window(&self.windows, &stored, self.skipped(), Some(claim)).ok()
        })
    }

    /// By name; those that patterns stand for now.
    fn interfaces(&self) -> Vec<String> {
        if !self.config.patterns().iter().any(InterfacePattern::is_pattern) {
            return self.config.interfaces().to_vec();
        }
        let mut names: Vec<String> =
            self.attached.places().iter().map(|at| at.place.interface.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Of this instant. Interfaces are listed for those only whose values speak of them.
    fn context(&self) -> Context {
        let speaks = |reader: &Reader| reader.metric.layout.renders(Render::Ifindex);
        let speaks = self.readers.iter().any(speaks);
        let names = speaks.then(|| interfaces::names(self.config.netns())).flatten();
        let interfaces = names.unwrap_or_default();
        Context { boot_time_ns: clock::monotonic_zero_ns(), interfaces }
    }
}

const fn exported(direction: Direction) -> twinprobe_exporter::Direction {
    match direction {
        Direction::Ingress => twinprobe_exporter::Direction::Ingress,
        Direction::Egress => twinprobe_exporter::Direction::Egress,
    }
}

/// RFC 3339 with nanoseconds, in UTC.
pub(super) fn timestamp(at: Timestamp) -> String {
    format!("{at:.9}")
}
