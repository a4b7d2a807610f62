//! Algorithm 2 of the paper, made to survive what can happen in between: flip, store the window, and only then
//! empty the idle twin.

mod base;
mod closing;
mod composed;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use tokio::sync::watch;
use twinprobe_client::SumStatus;
use twinprobe_ebpf_common::Render;
use twinprobe_exporter::Context;
use twinprobe_kernel::clock::{self, Moment};
use twinprobe_kernel::watch::Changes;
use twinprobe_kernel::{Attached, Loss, Predecessor};
use twinprobe_windows::{ClosedBy, Windows};

pub(super) use self::base::{Before, Start, begin};
pub use self::closing::CloseError;
use self::composed::Extraction;
use super::delivery::{Delivery, InFlight, Undelivered};
use super::interfaces::{self, Wanted, refused, wanted};
use super::old_sums::OldSums;
use super::placement::Pending;
use super::reader::Reader;
use super::telemetry::Counters;
use crate::config::{InterfacePattern, ProbeConfig, Schedule};

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
    start: Start,
    old_sums: OldSums,
    sums: Arc<Mutex<Vec<SumStatus>>>,
}

/// What a deployment knows of earlier ones of the same probe.
#[derive(Debug)]
pub(super) struct Kept {
    pub old_sums: OldSums,
    pub windows: Arc<Windows>,
    pub counters: Arc<Counters>,
}

impl Running {
    pub fn new(
        config: ProbeConfig,
        attached: Attached,
        readers: Vec<Reader>,
        start: Start,
        kept: Kept,
    ) -> Self {
        let opened = attached.opened();
        let Kept { old_sums, windows, counters } = kept;
        let running = Self {
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
            start,
            old_sums,
            sums: Arc::default(),
        };
        running.show_sums();
        running
    }

    /// The status of the sums, which can be read without waiting for a reading.
    pub fn sums(&self) -> Arc<Mutex<Vec<SumStatus>>> {
        Arc::clone(&self.sums)
    }

    fn show_sums(&self) {
        let sums = self.readers.iter().filter_map(Reader::sum_status).collect();
        *self.sums.lock().unwrap_or_else(PoisonError::into_inner) = sums;
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

    /// The reason why the interfaces can't be listed. Attachments stay.
    pub fn unlisted(&self) -> Option<&str> {
        self.unlisted.as_deref()
    }

    pub fn set_pending(&mut self, mut pending: Vec<Pending>, unlisted: Option<String>) {
        if let Some(reason) = unlisted.as_ref().filter(|_| self.unlisted.is_none()) {
            tracing::warn!(probe = self.config.name(), reason, "what is attached stays; it is tried again");
        }
        if unlisted.is_some() {
            // Only interfaces without an attachment are pending: nobody knows whether these exist.
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
        let mut metrics = self.attached.directions().iter().flat_map(|loaded| &loaded.plan.metrics);
        metrics.any(|metric| metric.extraction == twinprobe_kernel::Extraction::Clear)
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

    /// Takes the place of `old`, which sees no more packets, with everything that `old` has not handed on yet. Returns
    /// what could not be taken over.
    pub fn succeed(&mut self, old: Self) -> Vec<Loss> {
        if !old.goes_on(&self.readers, self.attached.directions()) {
            self.opened = Moment::now();
            self.attached.set_opened(self.opened);
        }
        let Self { attached, undelivered, skipped, in_flight, .. } = old;
        (self.undelivered, self.skipped, self.in_flight) = (undelivered, skipped, in_flight);
        let (remains, losses) = self.attached.retire(&attached);
        self.take_over(&remains);
        losses
    }

    /// So that nothing is left in maps that are about to be replaced.
    pub fn finish(&mut self) -> Result<(), CloseError> {
        self.load_base()?;
        self.finish_window()?;
        let Some(mut extraction) = self.extraction.take() else { return Ok(()) };
        extraction.spools().for_each(|spool| spool.reopen());
        let taken = self.take(&mut extraction);
        if taken.is_err() {
            self.extraction = Some(extraction);
        }
        Ok(taken?)
    }

    /// The state that a replacement of a direction can take over.
    pub fn predecessor(&self, direction: &str) -> Option<Predecessor> {
        self.attached.predecessor(direction, self.more_known(direction))
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

/// RFC 3339 with nanoseconds, in UTC.
pub(super) fn timestamp(at: Timestamp) -> String {
    format!("{at:.9}")
}
