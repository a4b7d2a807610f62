//! The closing of a probe's window, with the probe's own data: its schedule, its origin, and the
//! text about a failure.

use std::sync::Arc;

use twinprobe_ebpf_common::finding::{Finding, Stage, with_causes};
use twinprobe_kernel::LoadedDirection;
use twinprobe_windows::{ClosedBy, StoredWindow, WindowError};

use crate::engine::error::CloseError;
use crate::engine::probe::running::Running;
use crate::engine::reading::base::one_in;
use crate::engine::reading::close::{ClosingFacts, EndedWindow};
use crate::engine::reading::metric::MetricState;

impl Running {
    /// Closes the open window. If an earlier window was closed only in part, finishes that window
    /// first.
    pub fn close(&mut self, by: ClosedBy) -> Result<Arc<StoredWindow>, CloseError> {
        self.finish_window()?;
        self.close_window(by)?
            .ok_or(CloseError::Window(WindowError::Gone))
    }

    /// Finishes a window that was closed only in part, because of an error or the end of an earlier
    /// daemon.
    pub fn finish_window(&mut self) -> Result<(), CloseError> {
        if self.open.attached.closed().is_some() {
            let by = if self.config.schedule().is_some() {
                ClosedBy::Schedule
            } else {
                ClosedBy::Read
            };
            self.close_window(by)?;
        }
        Ok(())
    }

    fn close_window(&mut self, by: ClosedBy) -> Result<Option<Arc<StoredWindow>>, CloseError> {
        let closed = self.try_close(by);
        self.note_trouble(closed.as_ref().err());
        closed
    }

    /// Notes why the last window could not be closed; `None` if it was closed.
    pub fn note_trouble(&mut self, error: Option<&CloseError>) {
        // The clock may still know a removed probe.
        let close_error = error
            .filter(|_| !self.open.windows.is_removed())
            .map(|error| with_causes(error));
        if close_error.is_some() {
            self.counters.close_failures.inc();
        }
        // A lasting error is logged once: an interval of a millisecond would fill the log.
        if close_error != self.close_error {
            let probe = &self.config.name;
            match &close_error {
                Some(reason) => {
                    tracing::error!(probe, reason, "windows can't be closed; the daemon retries");
                }
                None => tracing::info!(probe, "windows can be closed again"),
            }
        }
        self.close_error = close_error;
    }

    /// Flips, waits until the idle twin is at rest, stores its content, and empties it. Returns
    /// `None` if the window's file was damaged or removed before the maps were empty.
    fn try_close(&mut self, by: ClosedBy) -> Result<Option<Arc<StoredWindow>>, CloseError> {
        self.open.begin_close(by)?;
        let stored = match self.store(by)? {
            EndedWindow::New(new) => Some(self.open.list(*new)?),
            EndedWindow::Known(known) => known,
        };
        self.empty(by)?;
        Ok(stored)
    }

    /// Flips and stores the window that ends: see
    /// [`OpenWindow::store`](crate::engine::reading::open::OpenWindow::store).
    pub fn store(&mut self, by: ClosedBy) -> Result<EndedWindow, CloseError> {
        let reasons = self
            .exactness
            .of_window(&self.open.attached.places, &self.sees());
        let facts = ClosingFacts {
            by,
            interfaces: self.interfaces(),
            context: self.context(),
            reasons,
            probe: &self.config.name,
            format: self.config.format,
            origin: &self.origin,
            exactness: &self.exactness,
            skipped: &self.skipped,
        };
        self.open.store(facts)
    }

    /// Empties the idle twin once its window is on disk.
    pub fn empty(&mut self, by: ClosedBy) -> Result<(), CloseError> {
        if let Some(grace_period) = self.open.empty()? {
            self.counters.closed(by, grace_period);
        }
        Ok(())
    }

    /// Does the same as [`OpenWindow::load_base`], at a start of the daemon. The status shows an
    /// error, and the base is read again with each window.
    pub fn resume(&mut self) {
        match self.open.load_base() {
            Ok(()) => self
                .open
                .windows
                .forget_other_baselines(self.open.attached.record.serial),
            Err(error) => {
                let (probe, reason) = (&self.config.name, error.to_string());
                tracing::error!(
                    probe,
                    reason,
                    "saved counts can't be read; the next window tries again"
                );
                self.close_error = Some(reason);
            }
        }
    }

    /// Closes the open window if metrics of `next` can't take over their rows in it, or have
    /// another sample. Returns a finding for each metric that begins anew, for each that continues
    /// with another sample's counts, and for each that continues without its sum.
    pub fn close_before(
        &mut self,
        next: &[MetricState],
        loaded: &[LoadedDirection],
    ) -> Result<Vec<Finding>, CloseError> {
        let is_cut = |reader: &&MetricState| reader.carries() && self.open.is_cut(reader, loaded);
        let cut: Vec<&MetricState> = next.iter().filter(is_cut).collect();
        let mut findings: Vec<Finding> = next
            .iter()
            .filter(|reader| self.open.leaves_sum(reader, loaded))
            .map(without_sum)
            .collect();
        let resampled = || {
            next.iter()
                .filter_map(|reader| Some((reader, self.open.sample_before(reader, loaded)?)))
        };
        if cut.is_empty() && resampled().next().is_none() {
            return Ok(findings);
        }
        let mixed =
            resampled().filter(|(reader, _)| reader.sum.is_some() || !reader.extraction.resets());
        let mixed = mixed.map(|(reader, before)| {
            let message = format!(
                "metric {} continues with the counts of a sample of one packet in {before}, and the sample is one in {} \
                 now; with on_replace: reset it begins anew",
                reader.metric.name,
                one_in(reader)
            );
            Finding::new(Stage::Load, format!("{}.sample", reader.metric.direction), message)
        });
        findings.extend(mixed);
        let closed = if self.open.resets() {
            let by = if self.config.schedule().is_some() {
                ClosedBy::Schedule
            } else {
                ClosedBy::Read
            };
            Some(self.close(by)?.seq())
        } else {
            None
        };
        let finding = |reader: &MetricState| {
            let (map, name) = (&reader.metric.map, &reader.metric.name);
            let what = closed.map_or_else(
                || "the counts are lost".to_owned(),
                |seq| format!("the old content is in window {seq}, which was closed for it"),
            );
            let message = format!(
                "metric {name} begins anew: nothing that map {map} has counted fits its new definition; {what}"
            );
            let field = format!(
                "{}.metrics[{}].map",
                reader.metric.direction, reader.position.1
            );
            Finding::new(Stage::Load, field, message)
        };
        findings.splice(..0, cut.into_iter().map(finding));
        Ok(findings)
    }
}

fn without_sum(reader: &MetricState) -> Finding {
    let message = format!(
        "metric {} continues with the counts of the open window alone: the sum of the windows before names interfaces, and does not \
         fit into a map; with snapshot: true the sum continues",
        reader.metric.name
    );
    let field = format!(
        "{}.metrics[{}].snapshot",
        reader.metric.direction, reader.position.1
    );
    Finding::new(Stage::Load, field, message)
}
