//! The closing of a window: flip, wait until the idle twin is at rest, move maps that packets change meanwhile into
//! journals, store all rows, and only then empty the idle twin and forget the journals.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_ebpf_common::{MetricHead, Window};
use twinprobe_faults::crash;
use twinprobe_kernel::Quiesced;
use twinprobe_kernel::clock::Moment;
use twinprobe_kernel::clock::rfc3339;
use twinprobe_windows::{
    ClosedBy, Filed, StoredWindow, SumChanges, WindowError, WindowHead, WindowWriter, Windows, ages_as_rows,
};

use crate::engine::error::CloseError;
use crate::engine::probe::completeness;
use crate::engine::probe::group::{self, groups};
use crate::engine::probe::metric::MetricState;
use crate::engine::probe::running::Running;
use crate::engine::probe::sum::{self, ChangedSums};

impl Running {
    /// Closes the open window. A window that was left half closed is closed to its end first.
    pub fn close(&mut self, by: ClosedBy) -> Result<Arc<StoredWindow>, CloseError> {
        self.finish_window()?;
        self.close_window(by)?.ok_or(CloseError::Window(WindowError::Gone))
    }

    /// Closes a window that an error or the end of an earlier daemon has left half closed.
    pub fn finish_window(&mut self) -> Result<(), CloseError> {
        if self.attached.closed().is_some() {
            let by = if self.config.schedule().is_some() { ClosedBy::Schedule } else { ClosedBy::Read };
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
        // The end of a probe may overtake its clock.
        let close_error = error.filter(|_| !self.windows.is_removed()).map(|error| with_causes(error));
        if close_error.is_some() {
            self.counters.close_failures.inc();
        }
        // A lasting error is logged once: an interval of a millisecond would fill the log.
        if close_error != self.close_error {
            let probe = &self.config.name;
            match &close_error {
                Some(reason) => tracing::error!(probe, reason, "windows can't be closed; the daemon retries"),
                None => tracing::info!(probe, "windows can be closed again"),
            }
        }
        self.close_error = close_error;
    }

    /// Flips, waits until the idle twin is at rest, stores its content, and empties it. Returns `None` if the window was
    /// on disk, and somebody damaged or removed its file before the maps were empty.
    fn try_close(&mut self, by: ClosedBy) -> Result<Option<Arc<StoredWindow>>, CloseError> {
        self.begin_close(by)?;
        let stored = match self.store(by)? {
            EndedWindow::New(new) => Some(self.list(*new)?),
            EndedWindow::Known(known) => known,
        };
        self.empty(by)?;
        Ok(stored)
    }

    /// Prepares the end of the open window, unless it has ended: the next step is the flip.
    pub fn begin_close(&mut self, by: ClosedBy) -> Result<(), CloseError> {
        self.load_base()?;
        self.know_losses();
        if self.attached.closed().is_none() {
            self.windows.expect_room(by)?;
            self.attached.epoch.set_closed(Moment::now());
        }
        Ok(())
    }

    /// Flips, waits until the idle twin is at rest, and stores its content. Maps that packets change
    /// meanwhile are moved into journals first. The window is on disk before any row of it leaves the maps or
    /// the journals. So after a crash at any step the window is in one of the three, and the next daemon can
    /// tell which one.
    pub fn store(&mut self, by: ClosedBy) -> Result<EndedWindow, CloseError> {
        let end = self.attached.epoch.closed();
        let span = self.opened.until(end);
        let context = self.context();
        let boot_time_ns = context.boot_time_ns;
        let interfaces = self.interfaces();
        let reasons = self.exactness.of_window(&self.attached.places, &self.sees());
        let quiesced = self.attached.flip()?;
        let (epoch, grace_period) = (quiesced.epoch, quiesced.quiesced);
        let newest = self.windows.newest();
        match CloseStep::of(newest.as_ref().map(|stored| stored.seq()), epoch, quiesced.is_clearing()) {
            CloseStep::Empty => return Ok(EndedWindow::Known(newest)),
            CloseStep::EmptyWithoutFile => {
                let probe = &self.config.name;
                tracing::error!(
                    probe,
                    seq = epoch,
                    "the file of a window disappeared while its maps were being emptied"
                );
                return Ok(EndedWindow::Known(None));
            }
            CloseStep::Store => {}
        }
        self.windows.expect_room(by)?;
        for group in groups(&self.readers) {
            group::gather(&mut self.readers, group, &quiesced, boot_time_ns)?;
        }
        crash::point("gathered");
        let approximate =
            self.exactness.of_packets(&reasons, completeness::unsure(&self.readers, &quiesced)?);
        let stored_metric = |reader| stored_metric(reader, &self.readers, &quiesced);
        let of = |part: Part| {
            let is_of = move |reader: &&MetricState| Part::of(reader, by) == Some(part);
            self.readers.iter().filter(is_of).collect::<Vec<_>>()
        };
        let (shown, hidden) = (of(Part::Shown), of(Part::Hidden));
        let placed: Vec<(usize, &MetricState)> = shown.iter().chain(&hidden).copied().enumerate().collect();
        let changes = changes(&self.windows, &placed);
        let places = |changed: &ChangedSums| changed.iter().map(|(place, _)| *place).collect();
        let head = WindowHead {
            probe: self.config.name.clone(),
            origin: Some(Arc::clone(&self.origin)),
            interfaces,
            approximate,
            window: Window {
                seq: epoch,
                start: rfc3339(span.start),
                end: rfc3339(span.end),
                duration_ns: Some(span.duration_ns),
                clock_step_ns: span.step_ns,
                quiesce_us: u64::try_from(grace_period.as_micros()).unwrap_or(u64::MAX),
                lost_windows: self.windows.unreported_lost(epoch),
            },
            format: self.config.format,
            context,
            skipped_before: self.skipped.load(Ordering::Relaxed),
            closed_by: by,
            metrics: shown.iter().copied().map(stored_metric).collect::<Result<_, _>>()?,
            hidden: hidden.iter().copied().map(stored_metric).collect::<Result<_, _>>()?,
            changes: changes.as_ref().map(|(since, of)| SumChanges { since: *since, places: places(of) }),
        };
        let mut file = self.windows.write(&head)?;
        for group in groups(&self.readers) {
            // The changes of the sums stand in place of the sums.
            let is_written = |reader: &MetricState| changes.is_none() || reader.sum.is_none();
            let members = placed.iter().copied();
            let members: Vec<(usize, &MetricState)> =
                members.filter(|(_, reader)| reader.group == group && is_written(reader)).collect();
            let first = &self.readers[group];
            let mut out = |place, rows: &_| file.rows(place, rows);
            group::window(&members, first, &quiesced, boot_time_ns, &mut out)?;
        }
        match &changes {
            Some((_, changes)) => write_changes(changes, &head, &mut file)?,
            None => write_ages(&placed, &head, &mut file)?,
        }
        crash::point("written");
        let filed = file.file()?;
        crash::point("filed");
        Ok(EndedWindow::New(Box::new(New { filed, head })))
    }

    /// Waits until a stored window is on disk for good.
    pub fn list(&mut self, New { filed, head }: New) -> Result<Arc<StoredWindow>, CloseError> {
        let listed = filed.list()?;
        completeness::note_losses(&mut self.readers, Some(&head));
        // The window that contains the rows of earlier deployments is stored.
        self.readers.iter_mut().for_each(|reader| reader.carried = None);
        let sums = self.readers.iter_mut().filter_map(|reader| reader.sum.as_mut());
        sums.for_each(|sum| sum.rows.note_changes(listed.seq()));
        crash::point("listed");
        Ok(listed)
    }

    /// Empties the idle twin and removes the journals, after the window is synced to disk.
    pub fn empty(&mut self, by: ClosedBy) -> Result<(), CloseError> {
        let end = self.attached.epoch.closed();
        let Some(quiesced) = self.attached.flipped() else { return Ok(()) };
        let grace_period = quiesced.quiesced;
        crash::point("stored");
        quiesced.begin_clearing();
        for group in groups(&self.readers) {
            group::clear(&self.readers, group, &quiesced)?;
        }
        quiesced.finish(end)?;
        self.show_sums();
        self.counters.closed(by, grace_period);
        self.opened = end;
        Ok(())
    }
}

/// A window that has ended, and whose maps are not empty yet.
pub enum EndedWindow {
    /// The store has the window, which may not be on disk yet.
    New(Box<New>),
    /// An earlier closing has stored the window; `None` if its file has disappeared since.
    Known(Option<Arc<StoredWindow>>),
}

pub struct New {
    filed: Filed,
    head: WindowHead,
}

/// Returns the changes in the sums of these metrics since the newest window, and the number of that window; `None` if the next
/// window must have whole sums.
fn changes(windows: &Windows, placed: &[(usize, &MetricState)]) -> Option<(u64, ChangedSums)> {
    let since = windows.base_of_changes()?;
    let sums = placed.iter().filter_map(|(place, reader)| Some((*place, reader.sum.as_ref()?)));
    Some((since, sum::changes(sums, since)?))
}

fn write_changes(
    changes: &ChangedSums,
    head: &WindowHead,
    file: &mut WindowWriter,
) -> Result<(), CloseError> {
    for (place, changes) in changes {
        file.rows(*place, &changes.rows)?;
        file.rows(head.place_of_changes(*place), &changes.places())?;
        crash::point("summed");
    }
    Ok(())
}

fn write_ages(
    placed: &[(usize, &MetricState)],
    head: &WindowHead,
    file: &mut WindowWriter,
) -> Result<(), CloseError> {
    for (place, reader) in placed.iter().filter(|(_, reader)| !reader.ages().is_empty()) {
        file.rows(head.place_of_ages(*place), &ages_as_rows(reader.ages()))?;
    }
    Ok(())
}

fn stored_metric(
    reader: &MetricState,
    all: &[MetricState],
    quiesced: &Quiesced<'_>,
) -> Result<MetricHead, CloseError> {
    Ok(MetricHead {
        layout: Arc::clone(reader.stored_layout()),
        dropped: reader.sum.as_ref().map_or(0, |sum| sum.dropped),
        completeness: completeness::at_close(reader, all, quiesced)?,
        ..MetricHead::clone(&reader.metric)
    })
}

/// The next step of a closing, depending on the state after an error or a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CloseStep {
    /// The window is in the maps and journals only.
    Store,
    /// The window is on disk, and the maps may still have it, too.
    Empty,
    /// The window was on disk when its maps began to be emptied, and somebody has removed or damaged the file since.
    EmptyWithoutFile,
}

impl CloseStep {
    /// `newest` is the number of the newest window on disk, `epoch` that of the window that has ended.
    fn of(newest: Option<u64>, epoch: u64, is_clearing: bool) -> Self {
        match (newest == Some(epoch), is_clearing) {
            (true, _) => Self::Empty,
            (false, true) => Self::EmptyWithoutFile,
            (false, false) => Self::Store,
        }
    }
}

/// The part of a window's file that a metric is in. Shown metrics come before hidden ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Shown,
    /// A sum that every window stores although no document shows it.
    Hidden,
}

impl Part {
    fn of(metric: &MetricState, by: ClosedBy) -> Option<Self> {
        Self::choose(metric.is_shown(), metric.extraction.resets(), metric.sum.is_some(), by)
    }

    /// The clock closes windows without live metrics: these are read when a client asks for them.
    fn choose(is_shown: bool, resets: bool, has_sum: bool, by: ClosedBy) -> Option<Self> {
        match is_shown {
            true => (resets || by != ClosedBy::Schedule).then_some(Self::Shown),
            false => has_sum.then_some(Self::Hidden),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_disk_is_never_read_again() {
        for is_clearing in [false, true] {
            assert_eq!(CloseStep::of(Some(7), 7, is_clearing), CloseStep::Empty);
        }
        // Maps that have begun to be emptied do not hold the window any more.
        assert_eq!(CloseStep::of(Some(6), 7, true), CloseStep::EmptyWithoutFile);
        assert_eq!(CloseStep::of(None, 7, true), CloseStep::EmptyWithoutFile);
        for newest in [None, Some(6)] {
            assert_eq!(CloseStep::of(newest, 7, false), CloseStep::Store);
        }
    }

    #[test]
    fn windows_have_what_is_reset_and_sums() {
        for by in [ClosedBy::Read, ClosedBy::Request, ClosedBy::Schedule] {
            let live = if by == ClosedBy::Schedule { None } else { Some(Part::Shown) };
            assert_eq!(Part::choose(true, false, false, by), live, "a live metric, closed by {by:?}");
            assert_eq!(Part::choose(true, true, false, by), Some(Part::Shown));
            assert_eq!(Part::choose(true, true, true, by), Some(Part::Shown));
            assert_eq!(Part::choose(false, true, true, by), Some(Part::Hidden));
            assert_eq!(Part::choose(false, true, false, by), None, "hidden and only reset");
        }
    }
}
