//! The sum of windows. A metric with `snapshot` and without `init` shows such a sum.

mod noted;

use std::collections::HashMap;
use std::sync::Arc;

use twinprobe_ebpf_common::field::join::{LeafJoin, is_at_end};
use twinprobe_ebpf_common::field::leaf::Leaves;
use twinprobe_ebpf_common::field::wide::{SumWidth, convert_times, is_widest, narrowed, sums};
use twinprobe_ebpf_common::{
    Layout, MapFamily, MergeRule, MergeRules, RawTable, Shape, TableChanges, TableLayout, convert,
};

use self::noted::Noted;

/// The error for a merge rule whose field the value does not have. The text is the path in the
/// rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value has no field {0}")]
pub struct UnknownField(pub String);

/// The number of rows of a window that are converted at a time.
const ROWS: usize = 4096;

/// The sum of the windows of one map.
#[derive(Clone, Debug)]
pub struct Accumulator {
    /// The layout of the windows' tables.
    of: Arc<TableLayout>,
    /// The layout of the sum: added numbers have 64 bits, and times are times of the wall clock.
    layout: Arc<TableLayout>,
    rules: MergeRules,
    /// The width of the summed numbers. It grows as soon as a number does not fit. Nearly all sums
    /// fit into 64 bits, and wider sums take twice the room in the store.
    width: SumWidth,
    leaves: Leaves<LeafJoin>,
    total: RawTable,
    /// The place of each entry, by its key. Keys come from packets, so the hash must be one whose
    /// collisions senders can't produce.
    index: HashMap<Box<[u8]>, usize>,
    /// The number of the last window that had each entry. Empty unless [`Self::has_ages`].
    ages: Vec<u64>,
    /// The changes since a window; `None` if nothing is noted, or if the layout has changed since.
    noted: Option<Noted>,
}

impl Accumulator {
    /// Makes an empty sum of tables of this layout.
    ///
    /// # Errors
    ///
    /// Fails if a rule names a field that the value does not have.
    pub fn new(layout: Arc<TableLayout>, rules: &MergeRules) -> Result<Self, UnknownField> {
        if let Some(path) = rules
            .fields
            .keys()
            .find(|path| !has_field(&layout.value, path))
        {
            return Err(UnknownField(path.clone()));
        }
        let width = SumWidth::Usual;
        let sum = sums(&layout, rules, width);
        let of = layout;
        let layout = if sum == *of {
            Arc::clone(&of)
        } else {
            Arc::new(sum)
        };
        let leaves = leaves(&layout, rules);
        let rules = rules.clone();
        let (total, index, ages) = Default::default();
        Ok(Self {
            of,
            layout,
            rules,
            width,
            leaves,
            total,
            index,
            ages,
            noted: None,
        })
    }

    /// Returns the layout of the sum. An addition may change it, because the sum gets wider.
    pub const fn layout(&self) -> &Arc<TableLayout> {
        &self.layout
    }

    /// Adds window number `seq`, with the rows from the map. `boot_time_ns` is the time of the boot
    /// by the wall clock, to which the times in the window refer.
    pub fn add(&mut self, window: &RawTable, seq: u64, boot_time_ns: i128) {
        let of = Arc::clone(&self.of);
        self.add_of(window, &of, seq, boot_time_ns);
    }

    /// Adds rows of another layout. Returns false if that layout can't be converted.
    pub fn add_of(
        &mut self,
        rows: &RawTable,
        of: &TableLayout,
        seq: u64,
        boot_time_ns: i128,
    ) -> bool {
        if is_widest(&of.value) {
            self.widen();
        }
        if *of == *self.layout {
            self.add_sum(rows, seq);
            return true;
        }
        let mut fits =
            convert_times(&RawTable::default(), of, &self.layout, boot_time_ns).is_some();
        for from in (0..rows.len(of)).step_by(ROWS) {
            let layout = Arc::clone(&self.layout);
            match convert_times(
                &rows.slice(from, from + ROWS, of),
                of,
                &layout,
                boot_time_ns,
            ) {
                // Each table may make the sum wider.
                Some(tables) => tables
                    .iter()
                    .for_each(|table| self.add_rest(table, 0, &layout, seq)),
                None => fits = false,
            }
        }
        fits
    }

    /// Adds the rows of a table from number `from` on. `of` is the layout of the rows: the present
    /// or an earlier layout of the sum.
    fn add_rest(&mut self, rows: &RawTable, from: usize, of: &Arc<TableLayout>, seq: u64) {
        if from > 0 || !Arc::ptr_eq(of, &self.layout) {
            self.add_of(&rows.slice(from, rows.len(of), of), of, seq, 0);
        } else {
            self.add_sum(rows, seq);
        }
    }

    /// Widens the summed numbers to 128 bits. The layout does not change any more after that.
    pub fn widen(&mut self) {
        if self.width == SumWidth::Widest {
            return;
        }
        self.width = SumWidth::Widest;
        let layout = sums(&self.of, &self.rules, self.width);
        if layout != *self.layout
            && let Some(total) = convert(&self.total, &self.layout, &layout)
        {
            self.leaves = leaves(&layout, &self.rules);
            (self.total, self.layout) = (total, Arc::new(layout));
            self.noted = None;
        }
    }

    /// Returns rows of a window in the layout of the sum.
    pub fn converted(&self, window: &RawTable, boot_time_ns: i128) -> RawTable {
        let tables = convert_times(window, &self.of, &self.layout, boot_time_ns);
        tables
            .and_then(|mut tables| tables.pop())
            .unwrap_or_default()
    }

    /// Returns the sum so far in the layout of the windows.
    pub fn narrowed(&self, boot_time_ns: i128) -> RawTable {
        narrowed(&self.total, &self.layout, &self.of, boot_time_ns).unwrap_or_default()
    }

    /// Returns the sum so far in the layout of the windows, if all its numbers fit into that
    /// layout.
    pub fn fitting(&self, boot_time_ns: i128) -> Option<RawTable> {
        let rows = narrowed(&self.total, &self.layout, &self.of, boot_time_ns)?;
        let whole = convert_times(&rows, &self.of, &self.layout, boot_time_ns)?;
        (whole == [self.total.clone()]).then_some(rows)
    }

    /// Adds window number `seq`, whose rows have the layout of the sum. New entries are appended,
    /// and known entries keep their place. Arrays stay in the order of their indices, because every
    /// window has all of them. The values of queues and stacks are appended.
    pub fn add_sum(&mut self, window: &RawTable, seq: u64) {
        if let Some(row) = self.add_while_it_fits(window, seq) {
            let of = Arc::clone(&self.layout);
            self.widen();
            self.add_rest(window, row, &of, seq);
        }
    }

    /// Adds rows until a row needs more bits than the numbers of the sum have, and returns the
    /// number of this row; `None` if all rows fit.
    fn add_while_it_fits(&mut self, window: &RawTable, seq: u64) -> Option<usize> {
        let has_ages = self.has_ages();
        let can_grow = self.width == SumWidth::Usual;
        let Self {
            layout,
            leaves,
            total,
            index,
            ages,
            noted,
            ..
        } = self;
        if layout.kind.family() == MapFamily::Fifo {
            *noted = None;
            total
                .values
                .extend_from_slice(&window.values[..window.len(layout) * layout.value_stride()]);
            return None;
        }
        let stride = layout.value_stride();
        // The memory is allocated for the first row, because a layout may claim any size for a
        // table without rows.
        let mut merged = Vec::new();
        for (row, (key, value)) in window.entries(layout).enumerate() {
            if let Some(&entry) = index.get(key) {
                let total = &mut total.values[entry * stride..][..stride];
                let fits = merge(layout, leaves, total, value, &mut merged);
                if !fits && can_grow {
                    return Some(row);
                }
                // The age belongs to the entry, so an entry with a new age has changed.
                if has_ages || *total != merged[..] {
                    noted.iter_mut().for_each(|noted| noted.change(entry));
                }
                total.copy_from_slice(&merged);
                ages.get_mut(entry).into_iter().for_each(|age| *age = seq);
            } else {
                index.insert(key.into(), index.len());
                total.keys.extend_from_slice(key);
                total.values.extend_from_slice(value);
                ages.extend(has_ages.then_some(seq));
            }
        }
        None
    }

    /// Tells whether entries come and go with the traffic, so that their number would grow without
    /// a bound.
    pub fn has_ages(&self) -> bool {
        self.layout.kind.comes_and_goes()
    }

    /// Returns the number of the last window that had each entry; empty for tables whose entries
    /// are always the same.
    pub fn ages(&self) -> &[u64] {
        &self.ages
    }

    /// Replaces the ages of the first entries by the ages of a stored sum.
    pub fn set_ages(&mut self, ages: &[u64]) {
        self.ages
            .iter_mut()
            .zip(ages)
            .for_each(|(own, age)| *own = *age);
        self.noted = None;
    }

    /// Drops the entries that no window has had for the longest time, until at most `entries` are
    /// left. Returns the number of dropped entries.
    pub fn bound(&mut self, entries: usize) -> usize {
        let surplus = self.ages.len().saturating_sub(entries);
        if surplus == 0 {
            return 0;
        }
        let mut oldest: Vec<(u64, usize)> = self.ages.iter().copied().zip(0..).collect();
        oldest.select_nth_unstable(surplus - 1);
        let mut gone = vec![false; self.ages.len()];
        oldest[..surplus]
            .iter()
            .for_each(|&(_, entry)| gone[entry] = true);
        self.noted.iter_mut().for_each(|noted| noted.remove(&gone));
        let (total, ages) = (
            std::mem::take(&mut self.total),
            std::mem::take(&mut self.ages),
        );
        self.index.clear();
        for (((key, value), age), _) in total
            .entries(&self.layout)
            .zip(ages)
            .zip(gone)
            .filter(|(_, gone)| !gone)
        {
            self.index.insert(key.into(), self.index.len());
            self.total.keys.extend_from_slice(key);
            self.total.values.extend_from_slice(value);
            self.ages.push(age);
        }
        surplus
    }

    /// Drops the entries that are in no window from number `oldest` on.
    pub fn drop_older(&mut self, oldest: u64) {
        let left = self.ages.iter().filter(|age| **age >= oldest).count();
        self.bound(left);
    }

    /// Begins to note changes in the sum. At this moment, the sum is that of window number `since`.
    pub fn note_changes(&mut self, since: u64) {
        let len = self.total.len(&self.layout);
        self.noted = (self.layout.kind.family() != MapFamily::Fifo).then(|| Noted::new(since, len));
    }

    /// Returns the changes in the sum since window number `since`; `None` if they are not known.
    pub fn changes(&self, since: u64) -> Option<TableChanges> {
        let noted = self.noted.as_ref().filter(|noted| noted.since == since)?;
        Some(noted.changes(&self.total, &self.layout))
    }

    /// Returns the sum so far.
    pub const fn table(&self) -> &RawTable {
        &self.total
    }

    /// Returns the sum and begins a new one.
    pub fn take(&mut self) -> RawTable {
        self.index.clear();
        self.ages.clear();
        self.noted = None;
        std::mem::take(&mut self.total)
    }
}

fn leaves(layout: &TableLayout, rules: &MergeRules) -> Leaves<LeafJoin> {
    Leaves::new(&layout.value, &mut |path, meaning| {
        Some(rules.join(path, meaning))
    })
}

/// Merges the value of an entry with the value in a window, in `merged`. Returns false if a sum
/// exceeds 64 bits.
fn merge(
    layout: &TableLayout,
    leaves: &Leaves<LeafJoin>,
    total: &[u8],
    window: &[u8],
    merged: &mut Vec<u8>,
) -> bool {
    // The entries of these maps exist from the start. No program wrote a slot of zeros, so `min`
    // and `last` must not use its zero as a value.
    let always_there = layout.kind.is_percpu()
        || matches!(layout.kind.family(), MapFamily::Array | MapFamily::Global);
    let untouched = |slot: &[u8]| always_there && slot.iter().all(|&byte| byte == 0);
    let stride = layout.slot_stride();
    merged.clear();
    merged.extend_from_slice(window);
    let mut fits = true;
    for ((total, window), merged) in total
        .chunks_exact(stride)
        .zip(window.chunks_exact(stride))
        .zip(merged.chunks_exact_mut(stride))
    {
        if untouched(window) {
            merged.copy_from_slice(total);
            continue;
        }
        if untouched(total) {
            continue;
        }
        leaves.for_each(|leaf, base| {
            let (old, new) = (leaf.load(total, base), leaf.load(window, base));
            let width = leaf.width();
            let joined = leaf.tag.join(leaf.kind, width, old, new);
            fits &= width != 64
                || leaf.tag.rule != MergeRule::Sum
                || !is_at_end(leaf.kind, width, joined);
            leaf.store(merged, base, joined);
        });
    }
    fits
}

fn has_field(layout: &Layout, path: &str) -> bool {
    match &layout.shape {
        Shape::Array { element, .. } => has_field(element, path),
        Shape::Struct(members) | Shape::Union(members) => {
            let (name, rest) = path
                .split_once('.')
                .map_or((path, None), |(name, rest)| (name, Some(rest)));
            members
                .iter()
                .filter(|member| member.name == name)
                .any(|member| rest.is_none_or(|rest| has_field(&member.layout, rest)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
