//! The closing of a window: flip, wait until the idle twin is at rest, move maps that packets still
//! change into journals, store all rows, and only then empty the idle twin and remove the journals.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use twinprobe_ebpf_common::{Context, DocumentOrigin, Format, MetricHead, RawTable, Window};
use twinprobe_faults::crash;
use twinprobe_kernel::Quiesced;
use twinprobe_kernel::clock::Moment;
use twinprobe_kernel::clock::rfc3339;
use twinprobe_windows::{
    ClosedBy, Filed, StoredWindow, SumChanges, WindowHead, WindowWriter, Windows, ages_as_rows,
};

use crate::engine::error::CloseError;
use crate::engine::probe::exactness::Exactness;
use crate::engine::reading::completeness;
use crate::engine::reading::group::{self, groups};
use crate::engine::reading::metric::MetricState;
use crate::engine::reading::open::OpenWindow;
use crate::engine::reading::sum::{self, ChangedSums};

impl OpenWindow {
    /// Prepares the end of the open window, unless the window has already ended. The next step is
    /// the flip.
    pub fn begin_close(&mut self, by: ClosedBy) -> Result<(), CloseError> {
        self.load_base()?;
        self.know_losses();
        if self.attached.closed().is_none() {
            self.windows.expect_room(by)?;
            self.attached.epoch.set_closed(Moment::now());
        }
        Ok(())
    }

    /// Flips, waits until the idle twin is at rest, and stores its content. Maps that packets still
    /// change are moved into journals first. The window is on disk before any of its rows is
    /// removed from the maps or the journals. So after a crash at any step the window is in one of
    /// these three places, and the next daemon can tell which one it is.
    pub fn store(&mut self, facts: ClosingFacts<'_>) -> Result<EndedWindow, CloseError> {
        let ClosingFacts {
            by, probe, context, ..
        } = facts;
        let end = self.attached.epoch.closed();
        let span = self.opened.until(end);
        let boot_time_ns = context.boot_time_ns;
        let quiesced = self.attached.flip()?;
        let (epoch, grace_period) = (quiesced.epoch, quiesced.quiesced);
        let newest = self.windows.newest();
        match CloseStep::of(
            newest.as_ref().map(|stored| stored.seq()),
            epoch,
            quiesced.is_clearing(),
        ) {
            CloseStep::Empty => return Ok(EndedWindow::Known(newest)),
            CloseStep::EmptyWithoutFile => {
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
        for group in groups(&self.metrics) {
            group::gather(&mut self.metrics, group, &quiesced, boot_time_ns)?;
        }
        crash::point("gathered");
        let approximate = facts.exactness.of_packets(
            &facts.reasons,
            completeness::unsure(&self.metrics, &quiesced)?,
        );
        let stored_metric = |reader| stored_metric(reader, &self.metrics, &quiesced);
        let of = |part: Part| {
            let is_of = move |reader: &&MetricState| Part::of(reader, by) == Some(part);
            self.metrics.iter().filter(is_of).collect::<Vec<_>>()
        };
        let (shown, hidden) = (of(Part::Shown), of(Part::Hidden));
        let placed: Vec<(usize, &MetricState)> =
            shown.iter().chain(&hidden).copied().enumerate().collect();
        let changes = changes(&self.windows, &placed);
        let places = |changed: &ChangedSums| changed.iter().map(|(place, _)| *place).collect();
        let head = WindowHead {
            probe: probe.to_owned(),
            origin: Some(Arc::clone(facts.origin)),
            interfaces: facts.interfaces,
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
            format: facts.format,
            context,
            skipped_before: facts.skipped.load(Ordering::Relaxed),
            closed_by: by,
            metrics: shown
                .iter()
                .copied()
                .map(stored_metric)
                .collect::<Result<_, _>>()?,
            hidden: hidden
                .iter()
                .copied()
                .map(stored_metric)
                .collect::<Result<_, _>>()?,
            changes: changes
                .as_ref()
                .map(|(since, of)| SumChanges::new(*since, places(of))),
        };
        let mut file = self.windows.write(&head)?;
        for group in groups(&self.metrics) {
            // The window stores the changes of the sums instead of the sums.
            let is_written = |reader: &MetricState| changes.is_none() || reader.sum.is_none();
            let members = placed.iter().copied();
            let members: Vec<(usize, &MetricState)> = members
                .filter(|(_, reader)| reader.group == group && is_written(reader))
                .collect();
            let first = &self.metrics[group];
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

    /// Waits until a stored window is on disk.
    pub fn list(&mut self, New { filed, head }: New) -> Result<Arc<StoredWindow>, CloseError> {
        let listed = filed.list()?;
        let failed_inserts = completeness::note_losses(&mut self.metrics, Some(&head));
        self.count(failed_inserts);
        // The window that contains the rows of earlier deployments is stored.
        self.metrics
            .iter_mut()
            .for_each(|reader| reader.carried = None);
        let sums = self
            .metrics
            .iter_mut()
            .filter_map(|reader| reader.sum.as_mut());
        sums.for_each(|sum| sum.rows.note_changes(listed.seq()));
        crash::point("listed");
        Ok(listed)
    }

    /// Empties the idle twin and removes the journals, after the window is synced to disk.
    /// Returns the grace period of the flip; `None` if there was nothing to empty.
    pub fn empty(&mut self) -> Result<Option<Duration>, CloseError> {
        let end = self.attached.epoch.closed();
        let Some(quiesced) = self.attached.flipped() else {
            return Ok(None);
        };
        let grace_period = quiesced.quiesced;
        crash::point("stored");
        quiesced.begin_clearing();
        for group in groups(&self.metrics) {
            group::clear(&self.metrics, group, &quiesced)?;
        }
        quiesced.finish(end)?;
        self.show_sums();
        self.opened = end;
        Ok(Some(grace_period))
    }
}

/// The facts about a window's probe. The interfaces are queried before the flip.
pub struct ClosingFacts<'a> {
    pub by: ClosedBy,
    pub probe: &'a str,
    pub origin: &'a Arc<DocumentOrigin>,
    pub interfaces: Vec<String>,
    pub format: Format,
    pub context: Context,
    pub exactness: &'a Exactness,
    /// The reasons why the window is approximate that its interfaces give.
    pub reasons: BTreeSet<String>,
    /// The number of values that OpenMetrics answers have left out so far.
    pub skipped: &'a AtomicU64,
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

/// Returns the changes in the sums of these metrics since the newest window, and the number of that
/// window; `None` if the next window must have whole sums.
fn changes(windows: &Windows, placed: &[(usize, &MetricState)]) -> Option<(u64, ChangedSums)> {
    let since = windows.base_of_changes()?;
    let sums = placed
        .iter()
        .filter_map(|(place, reader)| Some((*place, reader.sum.as_ref()?)));
    Some((since, sum::changes(sums, since)?))
}

fn write_changes(
    changes: &ChangedSums,
    head: &WindowHead,
    file: &mut WindowWriter,
) -> Result<(), CloseError> {
    for (place, changes) in changes {
        let tables = [
            (*place, &changes.rows),
            (head.place_of_changes(*place), &changes.places()),
        ];
        // Most sums of a quiet window have no change, and a table without chunks is empty.
        for (place, table) in tables
            .into_iter()
            .filter(|(_, table)| **table != RawTable::default())
        {
            file.rows(place, table)?;
        }
        crash::point("summed");
    }
    Ok(())
}

fn write_ages(
    placed: &[(usize, &MetricState)],
    head: &WindowHead,
    file: &mut WindowWriter,
) -> Result<(), CloseError> {
    for (place, reader) in placed
        .iter()
        .filter(|(_, reader)| !reader.ages().is_empty())
    {
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
    /// The window is only in the maps and journals.
    Store,
    /// The window is on disk, and may also still be in the maps.
    Empty,
    /// The window was on disk when the daemon began to empty its maps; since then the file was
    /// removed or damaged.
    EmptyWithoutFile,
}

impl CloseStep {
    /// Returns the next step. `newest` is the number of the newest window on disk, and `epoch` the
    /// number of the window that has ended.
    fn of(newest: Option<u64>, epoch: u64, is_clearing: bool) -> Self {
        match (newest == Some(epoch), is_clearing) {
            (true, _) => Self::Empty,
            (false, true) => Self::EmptyWithoutFile,
            (false, false) => Self::Store,
        }
    }
}

/// The part of a window's file that contains a metric. Shown metrics come before hidden ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Shown,
    /// A sum that every window stores although no document shows it.
    Hidden,
}

impl Part {
    fn of(metric: &MetricState, by: ClosedBy) -> Option<Self> {
        Self::choose(
            metric.is_shown(),
            metric.extraction.resets(),
            metric.sum.is_some(),
            by,
        )
    }

    /// The clock closes windows without live metrics: the daemon reads these when a client asks for
    /// them.
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
        // Clearing may have removed entries of the window.
        assert_eq!(CloseStep::of(Some(6), 7, true), CloseStep::EmptyWithoutFile);
        assert_eq!(CloseStep::of(None, 7, true), CloseStep::EmptyWithoutFile);
        for newest in [None, Some(6)] {
            assert_eq!(CloseStep::of(newest, 7, false), CloseStep::Store);
        }
    }

    #[test]
    fn windows_have_what_is_reset_and_sums() {
        for by in [ClosedBy::Read, ClosedBy::Request, ClosedBy::Schedule] {
            let live = if by == ClosedBy::Schedule {
                None
            } else {
                Some(Part::Shown)
            };
            assert_eq!(
                Part::choose(true, false, false, by),
                live,
                "a live metric, closed by {by:?}"
            );
            assert_eq!(Part::choose(true, true, false, by), Some(Part::Shown));
            assert_eq!(Part::choose(true, true, true, by), Some(Part::Shown));
            assert_eq!(Part::choose(false, true, true, by), Some(Part::Hidden));
            assert_eq!(
                Part::choose(false, true, false, by),
                None,
                "hidden and only reset"
            );
        }
    }
}
