//! The sum of windows, which a metric with `snapshot` but without `init` shows.

use std::collections::HashMap;
use std::sync::Arc;

use twinprobe_ebpf_common::{
    Aggregation, Layout, MapFamily, MergeRule, MergeRules, RawTable, Shape, TableLayout,
};

use crate::aggregate::fold;
use crate::leaf::{LeafKind, Leaves, Meaning};

/// A merge rule names a field that the value does not have; the path is that of the rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value has no field {0}")]
pub struct UnknownField(pub String);

/// Returns the rule for the leaf at `path`: the rule of its field, or of the nearest struct around the leaf. If no rule
/// names the leaf, a quantity has the metric's rule, and a number that only names something is taken from the newest
/// window. If the whole value is such a number, the metric's rule applies to it too, unless that rule is `sum`: names
/// cannot be summed up.
pub fn rule(rules: &MergeRules, path: &str, meaning: Meaning) -> MergeRule {
    let mut prefix = Some(path);
    while let Some(path) = prefix {
        if let Some(rule) = rules.fields.get(path) {
            return *rule;
        }
        prefix = path.rsplit_once('.').map(|(parent, _)| parent);
    }
    match (meaning, rules.default) {
        (Meaning::Quantity, rule) => rule,
        (Meaning::Identity, MergeRule::Sum) => MergeRule::Last,
        (Meaning::Identity, rule) if path.is_empty() => rule,
        (Meaning::Identity, _) => MergeRule::Last,
    }
}

fn join(rule: MergeRule, kind: LeafKind, total: u128, window: u128) -> u128 {
    let both = [total, window].into_iter();
    match rule {
        MergeRule::Sum => fold(Aggregation::Sum, kind, both),
        MergeRule::Max => fold(Aggregation::Max, kind, both),
        MergeRule::Min => fold(Aggregation::Min, kind, both),
        MergeRule::Or if kind != LeafKind::Float => total | window,
        MergeRule::Or | MergeRule::Last => window,
    }
}

/// The sum of the windows of one map.
#[derive(Clone, Debug)]
pub struct Accumulator {
    layout: Arc<TableLayout>,
    leaves: Leaves<MergeRule>,
    total: RawTable,
    /// The place of each entry, by its key. Keys come from packets, so the hash must be one that senders can't aim at.
    index: HashMap<Box<[u8]>, usize>,
    /// The last window that had the entry, for each entry. Empty unless [`Self::has_ages`].
    ages: Vec<u64>,
}

impl Accumulator {
    /// Makes an empty sum of tables of this layout.
    ///
    /// # Errors
    ///
    /// Fails if a rule names a field that the value does not have.
    pub fn new(layout: Arc<TableLayout>, rules: &MergeRules) -> Result<Self, UnknownField> {
        if let Some(path) = rules.fields.keys().find(|path| !has_field(&layout.value, path)) {
            return Err(UnknownField(path.clone()));
        }
        let leaves = Leaves::new(&layout.value, &mut |path, meaning| Some(rule(rules, path, meaning)));
        let (total, index, ages) = Default::default();
        Ok(Self { layout, leaves, total, index, ages })
    }

    /// Adds window number `seq`. New entries are appended, and known entries keep their place; arrays stay in the order
    /// of their indices, since every window has all of them. The values of queues and stacks are appended.
    pub fn add(&mut self, window: &RawTable, seq: u64) {
        let has_ages = self.has_ages();
        let Self { layout, leaves, total, index, ages } = self;
        if layout.kind.family() == MapFamily::Fifo {
            total.values.extend_from_slice(&window.values[..window.len(layout) * layout.value_stride()]);
            return;
        }
        let stride = layout.value_stride();
        // The memory is allocated for the first row, because a layout may claim any size for a table without rows.
        let mut merged = Vec::new();
        for (key, value) in window.entries(layout) {
            if let Some(&entry) = index.get(key) {
                merge(layout, leaves, &mut total.values[entry * stride..][..stride], value, &mut merged);
                ages.get_mut(entry).into_iter().for_each(|age| *age = seq);
            } else {
                index.insert(key.into(), index.len());
                total.keys.extend_from_slice(key);
                total.values.extend_from_slice(value);
                ages.extend(has_ages.then_some(seq));
            }
        }
    }

    /// Tells whether the entries come and go with the traffic, so that their number grows unless it is bounded.
    pub fn has_ages(&self) -> bool {
        matches!(self.layout.kind.family(), MapFamily::Hash | MapFamily::Trie)
    }

    /// The last window that had the entry, for each entry; empty for tables whose entries are always the same.
    pub fn ages(&self) -> &[u64] {
        &self.ages
    }

    /// Replaces the ages of the first entries by those of a sum that was stored.
    pub fn set_ages(&mut self, ages: &[u64]) {
        self.ages.iter_mut().zip(ages).for_each(|(own, age)| *own = *age);
    }

    /// Drops the entries that no window has had for the longest time, so that `entries` are left. Returns the number of
    /// dropped entries.
    pub fn bound(&mut self, entries: usize) -> usize {
        let surplus = self.ages.len().saturating_sub(entries);
        if surplus == 0 {
            return 0;
        }
        let mut oldest: Vec<(u64, usize)> = self.ages.iter().copied().zip(0..).collect();
        oldest.select_nth_unstable(surplus - 1);
        let mut gone = vec![false; self.ages.len()];
        oldest[..surplus].iter().for_each(|&(_, entry)| gone[entry] = true);
        let (total, ages) = (std::mem::take(&mut self.total), std::mem::take(&mut self.ages));
        self.index.clear();
        for (((key, value), age), _) in
            total.entries(&self.layout).zip(ages).zip(gone).filter(|(_, gone)| !gone)
        {
            self.index.insert(key.into(), self.index.len());
            self.total.keys.extend_from_slice(key);
            self.total.values.extend_from_slice(value);
            self.ages.push(age);
        }
        surplus
    }

    /// Drops the entries that no window since the one numbered `oldest` has had.
    pub fn drop_older(&mut self, oldest: u64) {
        let left = self.ages.iter().filter(|age| **age >= oldest).count();
        self.bound(left);
    }

    /// Returns the sum so far.
    pub const fn table(&self) -> &RawTable {
        &self.total
    }

    /// Returns the sum and begins a new one.
    pub fn take(&mut self) -> RawTable {
        self.index.clear();
        self.ages.clear();
        std::mem::take(&mut self.total)
    }
}

fn merge(
    layout: &TableLayout,
    leaves: &Leaves<MergeRule>,
    total: &mut [u8],
    window: &[u8],
    merged: &mut Vec<u8>,
) {
    // The entries of these maps exist from the start. A slot of zeros was written by no program, so `min` and `last`
    // must not see its zero as a value.
    let always_there =
        layout.kind.is_percpu() || matches!(layout.kind.family(), MapFamily::Array | MapFamily::Global);
    let untouched = |slot: &[u8]| always_there && slot.iter().all(|&byte| byte == 0);
    let stride = layout.slot_stride();
    for (total, window) in total.chunks_exact_mut(stride).zip(window.chunks_exact(stride)) {
        if untouched(window) {
            continue;
        }
        if untouched(total) {
            total.copy_from_slice(window);
            continue;
        }
        merged.clear();
        merged.extend_from_slice(window);
        leaves.for_each(|leaf, base| {
            let joined = join(leaf.tag, leaf.kind, leaf.load(total, base), leaf.load(window, base));
            leaf.store(merged, base, joined);
        });
        total.copy_from_slice(merged);
    }
}

fn has_field(layout: &Layout, path: &str) -> bool {
    match &layout.shape {
        Shape::Array { element, .. } => has_field(element, path),
        Shape::Struct(members) | Shape::Union(members) => {
            let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
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
