//! The closing of a window: flip, wait until the idle twin is at rest, move maps that packets change meanwhile into
//! journals, store all rows, and only then empty the idle twin and forget the journals.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_exporter::Window;
use twinprobe_kernel::clock::Moment;
use twinprobe_kernel::crash;
use twinprobe_windows::{ClosedBy, StoredMetric, StoredWindow, WindowError, WindowHead, ages_as_rows};

use crate::engine::error::CloseError;
use crate::engine::probe::metric::MetricState;
use crate::engine::probe::running::Running;
use crate::engine::time::timestamp;

impl Running {
    /// Closes the open window. A window that was left half closed is closed to its end first.
    pub fn close(&mut self, by: ClosedBy) -> Result<Arc<StoredWindow>, CloseError> {
        self.finish_window()?;
        self.close_window(by)?.ok_or(CloseError::Window(WindowError::Gone))
    }

    /// Closes a window that an error or the end of an earlier daemon has left half closed.
    pub fn finish_window(&mut self) -> Result<(), CloseError> {
        if self.attached.closed().is_some() {
            let by = if self.schedule().is_some() { ClosedBy::Schedule } else { ClosedBy::Read };
            self.close_window(by)?;
        }
        Ok(())
    }

    fn close_window(&mut self, by: ClosedBy) -> Result<Option<Arc<StoredWindow>>, CloseError> {
        let closed = self.try_close(by);
        let trouble = closed.as_ref().err().map(|error| with_causes(error));
        if closed.is_err() {
            self.counters.close_failed();
        }
        // A lasting error is logged once: an interval of a millisecond would fill the log.
        if trouble != self.trouble {
            let probe = self.config.name();
            match &trouble {
                Some(reason) => tracing::error!(probe, reason, "windows can't be closed; it is tried again"),
                None => tracing::info!(probe, "windows can be closed again"),
            }
        }
        self.trouble = trouble;
        closed
    }

    /// Flips, waits until the idle twin is at rest, stores its content, and empties it. Maps that packets change
    /// meanwhile are moved into journals first. The window is on disk before any row of it leaves the maps or the
    /// journals: after a crash at any step the window is in one of them, and the next daemon can tell which. Returns
    /// `None` if the window was on disk, and somebody damaged or removed its file before the maps were empty.
    fn try_close(&mut self, by: ClosedBy) -> Result<Option<Arc<StoredWindow>>, CloseError> {
        self.load_base()?;
        let end = self.attached.closed().unwrap_or_else(Moment::now);
        let span = self.opened.until(end);
        self.attached.set_closed(end);
        let context = self.context();
        let interfaces = self.interfaces();
        let quiesced = self.attached.flip()?;
        let (epoch, grace_period) = (quiesced.epoch(), quiesced.quiesced());
        let stored = match self.windows.newest().filter(|stored| stored.seq() == epoch) {
            Some(stored) => Some(stored),
            None if quiesced.is_clearing() => {
                let probe = self.config.name();
                tracing::error!(
                    probe,
                    seq = epoch,
                    "the file of a window went while its maps were being emptied"
                );
                None
            }
            None => {
                self.windows.reclaim(epoch);
                for reader in &mut self.readers {
                    reader.gather(&quiesced)?;
                }
                crash::point("gathered");
                let is_shown = |reader: &&MetricState| {
                    reader.is_shown() && (reader.extraction.resets() || by != ClosedBy::Schedule)
                };
                let shown: Vec<&MetricState> = self.readers.iter().filter(is_shown).collect();
                let hidden: Vec<&MetricState> =
                    self.readers.iter().filter(|reader| is_hidden_sum(reader)).collect();
                let head = WindowHead {
                    probe: self.config.name().to_owned(),
                    interfaces,
                    window: Window {
                        seq: epoch,
                        start: timestamp(span.start),
                        end: timestamp(span.end),
                        duration_ns: Some(span.duration_ns),
                        clock_step_ns: span.step_ns,
                        quiesce_us: u64::try_from(grace_period.as_micros()).unwrap_or(u64::MAX),
                        lost_windows: self.windows.unreported_lost(),
                    },
                    format: self.config.format(),
                    context,
                    skipped_before: self.skipped.load(Ordering::Relaxed),
                    closed_by: by,
                    metrics: shown.iter().copied().map(stored_metric).collect(),
                    hidden: hidden.iter().copied().map(stored_metric).collect(),
                };
                let mut file = self.windows.write(&head)?;
                for (place, reader) in shown.into_iter().chain(hidden).enumerate() {
                    reader.window(&quiesced, &mut |rows| file.rows(place, rows))?;
                    if !reader.ages().is_empty() {
                        file.rows(head.place_of_ages(place), &ages_as_rows(reader.ages()))?;
                    }
                }
                crash::point("written");
                let stored = file.commit()?;
                self.readers.iter_mut().for_each(MetricState::forget_window);
                Some(stored)
            }
        };
        crash::point("stored");
        quiesced.begin_clearing();
        for reader in &self.readers {
            reader.clear(&quiesced)?;
        }
        quiesced.finish(end);
        self.show_sums();
        self.counters.closed(by, grace_period);
        self.opened = end;
        Ok(stored)
    }
}

fn stored_metric(reader: &MetricState) -> StoredMetric {
    let metric = &reader.metric;
    StoredMetric {
        direction: reader.direction,
        name: metric.name.clone(),
        map: metric.map.clone(),
        help: metric.help.clone(),
        agg: metric.agg,
        layout: Arc::clone(&metric.layout),
        reading: metric.temporality,
        dropped: reader.dropped(),
    }
}

/// True if the metric has a sum that every window stores although no document shows it.
fn is_hidden_sum(reader: &MetricState) -> bool {
    reader.has_sum() && !reader.is_shown()
}
