//! The part of a chart's windows that one thread reads. Each part begins after a window with whole
//! sums, so that a thread need read few windows before its part.

use std::num::NonZeroUsize;
use std::thread::{self, available_parallelism};

use twinprobe_ebpf_common::window::WindowEntry;
use twinprobe_exporter::Number;
use twinprobe_windows::Windows;

use crate::engine::series::held::WantedNumbers;
use crate::engine::series::kept::{KeptNumbers, MOST_KEPT};
use crate::engine::series::keys::{Keys, TooManyKeys};
use crate::engine::series::points::nanoseconds;
use crate::engine::series::sums::{PointSums, Sums};
use crate::engine::series::values::Totals;
use crate::engine::series::walk::{ChartSink, Mode, Walk};

/// The most threads that work for one chart.
const LANES: usize = 4;
/// The number of windows below which one thread reads all of them.
const FEW: usize = 8;
/// The largest number of windows by which a cut is moved to the end of a window with whole sums.
const NEAR: usize = 32;

/// A window, and the index of the point to which it belongs.
type PointEntry = (WindowEntry, Option<usize>);

/// The windows of one thread, in their order, and their sums.
pub struct Block<'a> {
    mode: Mode,
    /// The window before `entries`, which is counted in another block.
    before: Option<&'a WindowEntry>,
    entries: &'a [PointEntry],
    walk: Walk<'a>,
    pub totals: Totals,
    /// The numbers that the windows add; `None` if there were too many numbers.
    kept: Option<KeptNumbers>,
    /// The seconds that each point covers.
    pub seconds: Vec<f64>,
    pub used: u64,
    pub left_out: u64,
}

/// A receiver of the increases in the windows of a block.
struct BlockSums<'a> {
    mode: Mode,
    counts: bool,
    totals: &'a mut Totals,
    kept: Option<&'a mut KeptNumbers>,
}

/// Divides windows into blocks.
pub fn blocks<'a>(
    windows: &'a Windows,
    wanted: &'a WantedNumbers,
    mode: Mode,
    entries: &'a [PointEntry],
    points: usize,
) -> Vec<Block<'a>> {
    let lanes = available_parallelism()
        .map_or(1, NonZeroUsize::get)
        .min(LANES);
    let lanes = if entries.len() < FEW { 1 } else { lanes };
    let mut cuts: Vec<usize> = (1..lanes)
        .map(|lane| lane * entries.len() / lanes)
        .collect();
    if !matches!(mode, Mode::Windows(_)) {
        cuts.iter_mut()
            .for_each(|cut| *cut = behind_whole(windows, entries, *cut));
    }
    cuts.push(entries.len());
    let mut from = 0_usize;
    let block = |to: usize| {
        let before = from
            .checked_sub(1)
            .and_then(|last| entries.get(last))
            .map(|(entry, _)| entry);
        let own = entries.get(from..to).unwrap_or_default();
        from = from.max(to);
        Block {
            mode,
            before: before.filter(|_| !matches!(mode, Mode::Windows(_))),
            entries: own,
            walk: Walk::new(windows, wanted, mode),
            totals: Totals::default(),
            kept: Some(KeptNumbers::new(MOST_KEPT / lanes)),
            seconds: vec![0.0; points],
            used: 0,
            left_out: 0,
        }
    };
    cuts.into_iter().map(block).collect()
}

/// Returns the place after the window with whole sums that is nearest to `cut`.
fn behind_whole(windows: &Windows, entries: &[PointEntry], cut: usize) -> usize {
    let is_whole = |place: &usize| {
        let last = place.checked_sub(1).and_then(|last| entries.get(last));
        last.and_then(|(entry, _)| windows.get(entry.seq).ok())
            .is_some_and(|window| window.from == window.seq())
    };
    (0..NEAR)
        .flat_map(|far| [cut.saturating_sub(far), cut + far])
        .find(is_whole)
        .unwrap_or(cut)
}

/// Runs a function on each block, in parallel threads, and returns the results.
pub fn at_once<'a, T: Send>(
    blocks: &mut [Block<'a>],
    each: impl Fn(usize, &mut Block<'a>) -> Result<T, TooManyKeys> + Sync,
) -> Result<Vec<T>, TooManyKeys> {
    let each = &each;
    thread::scope(|scope| {
        let threads: Vec<_> = blocks
            .iter_mut()
            .enumerate()
            .map(|(place, block)| scope.spawn(move || each(place, block)))
            .collect();
        let results = threads.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        results.collect()
    })
}

impl Block<'_> {
    /// Returns the keys of the windows, with their numbers in this block.
    pub const fn keys(&self) -> &Keys {
        &self.walk.keys
    }

    /// Reads all windows: computes the sum of each key, and the time that each point covers.
    pub fn first_pass(&mut self) -> Result<(), TooManyKeys> {
        let mut last = None;
        if let Some(before) = self.before
            && self.count(before, None)? != Some(false)
        {
            last = Some(before);
        }
        let entries = self.entries;
        for (entry, point) in entries {
            let known = self.count(entry, begins(self.mode, *point))?;
            let Some(point) = *point else {
                last = Some(entry);
                continue;
            };
            // The growth of a sum since an earlier window covers the windows that are missing
            // between the two.
            let skips = |last: &&WindowEntry| {
                matches!(self.mode, Mode::Growth { .. }) && last.seq.saturating_add(1) < entry.seq
            };
            let start = last.filter(skips).map_or(&entry.start, |last| &last.end);
            if let (Some(true), Some(start), Some(end)) =
                (known, nanoseconds(start), nanoseconds(&entry.end))
            {
                self.seconds[point] += (end - start).max(1) as f64 / 1e9;
            }
            last = if known == Some(false) {
                None
            } else {
                Some(entry)
            };
            match known {
                Some(false) => self.left_out += 1,
                _ => self.used += 1,
            }
        }
        Ok(())
    }

    /// Counts a window at a point. A window without a point is only the predecessor of the next
    /// window.
    fn count(
        &mut self,
        entry: &WindowEntry,
        point: Option<usize>,
    ) -> Result<Option<bool>, TooManyKeys> {
        let Self {
            mode,
            walk,
            totals,
            kept,
            ..
        } = self;
        let mut sums = BlockSums {
            mode: *mode,
            counts: point.is_some(),
            totals,
            kept: kept.as_mut(),
        };
        let known = walk.window(entry.seq, &mut sums)?;
        if let Some(point) = point {
            *kept = kept
                .take()
                .and_then(|mut kept| kept.end(point).then_some(kept));
        }
        Ok(known)
    }

    /// Adds up the numbers of the chart. `sums` has a place for each key of this block.
    pub fn second_pass(&mut self, mut sums: Sums) -> Result<Sums, TooManyKeys> {
        if let Some(kept) = &self.kept {
            sums.add_kept(kept);
            return Ok(sums);
        }
        self.walk.rewind();
        if let Some(before) = self.before {
            self.walk.window(
                before.seq,
                &mut PointSums {
                    sums: &mut sums,
                    point: None,
                },
            )?;
        }
        for (entry, point) in self.entries {
            let point = begins(self.mode, *point);
            self.walk.window(
                entry.seq,
                &mut PointSums {
                    sums: &mut sums,
                    point,
                },
            )?;
        }
        Ok(sums)
    }
}

/// Returns the point to which a window adds. A state at the end of the last window before the first
/// point is also the state at the beginning of that point.
fn begins(mode: Mode, point: Option<usize>) -> Option<usize> {
    point.or_else(|| (mode == Mode::State).then_some(0))
}

impl ChartSink for BlockSums<'_> {
    fn one(&mut self, id: u32, number: Option<Number>) {
        if self.counts {
            self.totals.add(self.mode, id, number);
            if let Some(kept) = &mut self.kept {
                kept.add(id, number);
            }
        }
    }

    fn many(&mut self, ids: &[u32], numbers: &[u64]) {
        if self.counts {
            self.totals.add_many(self.mode, ids, numbers);
            if let Some(kept) = &mut self.kept {
                kept.add_many(ids, numbers);
            }
        }
    }
}
