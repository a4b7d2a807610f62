//! Algorithm 2 of the paper: flip if a metric asks for it, extract, reset.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use tokio::sync::watch;
use twinprobe_exporter::Window;

use super::delivery::{Delivery, Part, Reading, Rows, Undelivered};
use super::interfaces::{Wanted, refused, wanted};
use super::live::LiveMap;
use super::placement::Pending;
use super::reader::{Extract, Reader};
use super::spool::Spool;
use super::totals::{Saved, Totals};
use crate::config::{Direction, InterfacePattern, OnReplace, ProbeConfig};
use crate::kernel::watch::Changes;
use crate::kernel::{Attached, KernelError, with_causes};

/// A probe that is attached and read.
#[derive(Debug)]
pub(super) struct Running {
    config: ProbeConfig,
    attached: Attached,
    readers: Vec<Reader>,
    /// When the open window began.
    opened: Timestamp,
    /// When the window was closed that could not be read yet.
    closed: Option<Timestamp>,
    /// What a failure kept from its end. The next reader goes on with it.
    extraction: Option<Extraction>,
    undelivered: Undelivered,
    skipped: Arc<AtomicU64>,
    /// Closed with the probe.
    gone: watch::Sender<()>,
    pending: Vec<Pending>,
    totals: Totals,
}

/// A reading whose maps have not been read to their end.
#[derive(Debug)]
struct Extraction {
    reading: Arc<Reading>,
    /// Whether the idle twin has not been read and reset yet.
    window: bool,
    /// One for each reader.
    tables: Vec<Extract>,
}

impl Running {
    pub fn new(
        config: ProbeConfig,
        attached: Attached,
        readers: Vec<Reader>,
        opened: Timestamp,
        totals: Totals,
    ) -> Self {
        attached.set_opened(nanoseconds(opened));
        Self {
            config,
            attached,
            readers,
            opened,
            closed: None,
            extraction: None,
            undelivered: Undelivered::default(),
            skipped: Arc::default(),
            gone: watch::Sender::default(),
            pending: Vec::new(),
            totals,
        }
    }

    /// Goes on with what an earlier daemon has left half done and with the sums that it has saved.
    pub fn resume(&mut self) {
        self.closed = self.attached.closed().map(timestamp_of);
        for reader in &mut self.readers {
            let file = reader.file();
            let Some(total) = &mut reader.total else { continue };
            match self.totals.load(&file, &reader.metric.layout) {
                Ok(None) => {}
                Ok(Some(Saved { epoch, table })) => {
                    total.add(&table);
                    reader.summed = epoch;
                }
                Err(error) => {
                    let (probe, metric) = (self.config.name(), reader.config.name());
                    tracing::error!(probe, metric, %error, "the sum of the windows so far can't be read");
                }
            }
        }
    }

    /// Removes what was saved, but for `kept`.
    pub fn forget_totals(&self, kept: &[String]) {
        if let Err(error) = self.totals.retain(kept) {
            tracing::warn!(probe = self.config.name(), %error, "old sums could not be removed");
        }
    }

    /// What keeps it from being where it should be.
    pub fn pending(&self) -> &[Pending] {
        &self.pending
    }

    pub fn set_pending(&mut self, pending: Vec<Pending>) {
        self.pending = pending;
    }

    /// Attaches it to the interfaces there are now, and detaches it from those that have gone.
    pub fn follow(&mut self, changes: &Changes) {
        match wanted(&self.config, false) {
            Ok(Wanted { interfaces, pending }) => {
                self.pending = pending;
                self.pending.extend(refused(self.attached.place(&interfaces, changes)));
            }
            Err(rejection) => tracing::error!(?rejection, "a probe can't follow its interfaces"),
        }
    }

    /// Takes the place of `old`, which sees packets no more, with all that it has not handed on yet.
    pub fn succeed(&mut self, old: Self) {
        let Self { attached, readers, undelivered, skipped, opened, closed, .. } = old;
        (self.undelivered, self.skipped) = (undelivered, skipped);
        (self.opened, self.closed) = (opened, closed);
        self.attached.set_opened(nanoseconds(opened));
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
            reader.save(&self.totals, epoch);
        }
        let kept: Vec<String> =
            self.readers.iter().filter(|reader| reader.total.is_some()).map(Reader::file).collect();
        self.forget_totals(&kept);
    }

    /// So that nothing is left in maps that are about to be replaced: what is taken out of them waits for the next
    /// client.
    pub fn finish_extraction(&mut self, name: &str) -> Result<(), KernelError> {
        // An earlier daemon may have closed a window that nobody has read.
        if self.extraction.is_none() && self.attached.closed().is_some() {
            self.begin_new(name)?;
        }
        let Some(mut extraction) = self.extraction.take() else { return Ok(()) };
        extraction.spools().for_each(|spool| spool.reopen());
        let taken = self.take(&mut extraction);
        if taken.is_err() {
            self.extraction = Some(extraction);
        }
        taken
    }

    pub const fn attached(&self) -> &Attached {
        &self.attached
    }

    pub fn detach(self) {
        drop(self.gone);
        self.attached.detach();
    }

    /// A reading that an error or a client kept from its end, else a new one. Its header is known; its rows
    /// are there once [`Self::extract`] has taken them.
    pub fn begin(&mut self, name: &str) -> Result<Delivery, KernelError> {
        if let Some(extraction) = &self.extraction {
            extraction.spools().for_each(|spool| spool.reopen());
            return Ok(self.undelivered.again(&extraction.reading));
        }
        if let Some(abandoned) = self.undelivered.abandoned() {
            return Ok(abandoned);
        }
        self.begin_new(name)
    }

    fn begin_new(&mut self, name: &str) -> Result<Delivery, KernelError> {
        let window = self.close_window()?;
        let tables: Vec<Extract> = self.readers.iter().map(|reader| reader.extract(&self.attached)).collect();
        let reading = Arc::new(Reading {
            probe: name.to_owned(),
            interfaces: self.interfaces(),
            format: self.config.format(),
            parts: self.parts(&tables),
            skipped: Arc::clone(&self.skipped),
            window,
        });
        let takes = tables.iter().any(|table| !table.done);
        let delivery = self.undelivered.deliver(Arc::clone(&reading), takes);
        if takes {
            self.extraction = Some(Extraction { window: reading.window.is_some(), reading, tables });
        }
        Ok(delivery)
    }

    /// Takes out of the maps what the reading that was begun consists of. After an error nothing is lost:
    /// the next reader goes on where this one ended.
    pub fn extract(&mut self) {
        let Some(mut extraction) = self.extraction.take() else { return };
        if let Err(error) = self.take(&mut extraction) {
            let reason = with_causes(&error);
            tracing::error!(
                probe = extraction.reading.probe,
                reason,
                "a reading failed; the next one goes on"
            );
            extraction.spools().for_each(|spool| spool.fail(&reason));
            self.extraction = Some(extraction);
        }
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

    /// Flips and waits until the twin that was left is at rest.
    fn close_window(&mut self) -> Result<Option<Window>, KernelError> {
        if !self.config.has_snapshot() {
            return Ok(None);
        }
        let end = *self.closed.get_or_insert_with(Timestamp::now);
        self.attached.set_closed(nanoseconds(end));
        let quiesced = self.attached.flip()?;
        let window = Window {
            seq: quiesced.epoch(),
            start: timestamp(self.opened),
            end: timestamp(end),
            quiesce_us: u64::try_from(quiesced.quiesced().as_micros()).unwrap_or(u64::MAX),
            lost_windows: 0,
        };
        self.opened = end;
        self.closed = None;
        Ok(Some(window))
    }

    fn parts(&self, tables: &[Extract]) -> Vec<Part> {
        let mut parts = Vec::new();
        for (reader, table) in self.readers.iter().zip(tables) {
            let rows = match (&table.spool, reader.live(&self.attached)) {
                (Some(spool), _) => Rows::Kept(Arc::clone(spool)),
                (None, Some(map)) if reader.is_shown() => {
                    Rows::Live(LiveMap::new(Arc::clone(map), self.gone.subscribe()))
                }
                _ => continue,
            };
            let direction = match reader.direction {
                Direction::Ingress => twinprobe_exporter::Direction::Ingress,
                Direction::Egress => twinprobe_exporter::Direction::Egress,
            };
            parts.push(Part { direction, metric: Arc::clone(&reader.metric), rows });
        }
        parts
    }

    fn take(&mut self, extraction: &mut Extraction) -> Result<(), KernelError> {
        if extraction.window {
            // The flip has been made: this gives its guard again.
            let quiesced = self.attached.flip()?;
            for (reader, table) in self.readers.iter_mut().zip(&mut extraction.tables) {
                let (direction, metric) = reader.position;
                if let Some(map) = quiesced.map(direction, metric) {
                    reader.take(map, table, Some((quiesced.epoch(), &self.totals)))?;
                }
            }
            quiesced.finish();
            self.attached.set_opened(nanoseconds(self.opened));
            extraction.window = false;
            // Not before: a client that has the window must not get it again after a crash.
            extraction.complete();
        }
        for (reader, table) in self.readers.iter_mut().zip(&mut extraction.tables) {
            let (direction, metric) = reader.position;
            if let Some(map) = self.attached.live_map(direction, metric) {
                reader.take(map, table, None)?;
            }
        }
        extraction.complete();
        Ok(())
    }
}

impl Extraction {
    /// Tells those who follow what is there to the end.
    fn complete(&self) {
        let done = self.tables.iter().filter(|table| table.done);
        done.filter_map(|table| table.spool.as_ref()).for_each(|spool| spool.complete());
    }

    fn spools(&self) -> impl Iterator<Item = &Arc<Spool>> {
        self.tables.iter().filter_map(|table| table.spool.as_ref())
    }
}

pub(super) fn timestamp_of(nanoseconds: u64) -> Timestamp {
    Timestamp::from_nanosecond(nanoseconds.into()).unwrap_or_else(|_| Timestamp::now())
}

fn nanoseconds(at: Timestamp) -> u64 {
    u64::try_from(at.as_nanosecond()).unwrap_or_default()
}

/// RFC 3339 with nanoseconds, in UTC.
pub(super) fn timestamp(at: Timestamp) -> String {
    format!("{at:.9}")
}
