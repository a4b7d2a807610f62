//! The aggregation of the values of all CPUs into one value, number by number.

use std::iter;
use std::sync::Arc;

use twinprobe_ebpf_common::field::join::{LeafJoin, fold};
use twinprobe_ebpf_common::field::kind::LeafKind;
use twinprobe_ebpf_common::field::leaf::Leaves;
use twinprobe_ebpf_common::field::meaning::Meaning;
use twinprobe_ebpf_common::field::wide::{SumWidth, widened};
use twinprobe_ebpf_common::{Aggregation, Conversion, Layout, MergeRule, MergeRules, TableLayout};

use crate::metric::Metric;

/// The way in which the values of a leaf on all CPUs become one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverCpus {
    /// The join by a rule, over the CPUs that have counted something.
    Join(LeafJoin),
    /// The mean over all CPUs, including CPUs that have counted nothing.
    Mean,
    /// The join by a rule over all CPUs, including CPUs that have counted nothing.
    All(MergeRule),
}

impl OverCpus {
    /// Returns the way for the leaf at `path`; `None` if the leaf comes from the value of a single
    /// CPU. `avg`, `min` and `max` apply to numbers that can be compared. Every other leaf follows
    /// the rules for the addition of windows.
    fn of(
        aggregation: Aggregation,
        rules: &MergeRules,
        path: &str,
        meaning: Meaning,
    ) -> Option<Self> {
        let by_field = MergeRules {
            default: MergeRule::Sum,
            ..rules.clone()
        };
        let join = by_field.join(path, meaning);
        let is_number = matches!(
            meaning,
            Meaning::Quantity | Meaning::Extreme(_) | Meaning::Copied
        );
        match (aggregation, join.rule) {
            (Aggregation::Avg, _) if is_number => Some(Self::Mean),
            (Aggregation::Min, _) if is_number => Some(Self::All(MergeRule::Min)),
            (Aggregation::Max, _) if is_number => Some(Self::All(MergeRule::Max)),
            (_, MergeRule::Last) => None,
            (_, MergeRule::Sum) => Some(Self::All(MergeRule::Sum)),
            _ => Some(Self::Join(join)),
        }
    }

    /// Returns the bits of one leaf, made from the bits on all CPUs. The bits have the form of
    /// [`twinprobe_ebpf_common::field::leaf::Leaf::load`]. Each CPU's bits come with a flag: true
    /// if the CPU has counted anything.
    fn fold(
        self,
        kind: LeafKind,
        width: u32,
        values: impl Iterator<Item = (u128, bool)> + Clone,
    ) -> u128 {
        let all = values.clone().map(|(value, _)| value);
        match (self, kind) {
            (Self::Mean, LeafKind::Number { signed, .. }) => mean(all, signed),
            (Self::Mean, LeafKind::Bool) => all.min().unwrap_or_default(),
            (Self::Mean, LeafKind::Float) => {
                let floats = all.map(|bits| f64::from_bits(bits as u64));
                (floats.clone().sum::<f64>() / floats.count().max(1) as f64)
                    .to_bits()
                    .into()
            }
            (Self::All(rule), _) => fold(rule, kind, width, all),
            (Self::Join(join), _) => {
                let counted = values
                    .filter(|(_, counted)| *counted)
                    .map(|(value, _)| value);
                counted
                    .reduce(|old, new| join.join(kind, width, old, new))
                    .unwrap_or_default()
            }
        }
    }
}

/// Returns the mean, truncated towards zero. The sum has 128 bits, which values of up to 64 bits
/// can't overflow. If wider values overflow it, quotients and remainders are summed separately.
fn mean(values: impl Iterator<Item = u128> + Clone, signed: bool) -> u128 {
    let count = values.clone().count().max(1) as u128;
    if signed {
        let (values, count) = (values.map(u128::cast_signed), count.cast_signed());
        let sum = values.clone().try_fold(0_i128, i128::checked_add);
        return sum
            .map_or_else(|| wide_mean(values, count), |sum| sum / count)
            .cast_unsigned();
    }
    if let Some(sum) = values.clone().try_fold(0, u128::checked_add) {
        return sum / count;
    }
    let (quotients, remainders) = values.fold((0, 0), |(q, r), value| {
        (q + value / count, r + value % count)
    });
    quotients + remainders / count
}

/// Returns the mean of 128-bit values whose sum does not fit into 128 bits.
fn wide_mean(values: impl Iterator<Item = i128>, count: i128) -> i128 {
    let (quotients, remainders) = values.fold((0, 0), |(q, r), value| {
        (q + value / count, r + value % count)
    });
    let (mean, rest) = (quotients + remainders / count, remainders % count);
    // The result is `mean + rest / count`, truncated: a rest of the other sign moves the mean by
    // one towards zero.
    if mean > 0 && rest < 0 {
        mean - 1
    } else if mean < 0 && rest > 0 {
        mean + 1
    } else {
        mean
    }
}

/// The layout of folded values: summed numbers have 128 bits, so that the sum over all CPUs fits.
#[derive(Debug)]
pub struct Folded {
    pub value: Layout,
    widening: Option<Conversion>,
    /// The folded numbers: their form in the slots, and their form in the folded value.
    from: Leaves<OverCpus>,
    to: Leaves<()>,
    /// The times, which show the newest slot.
    times: Leaves<()>,
}

impl Folded {
    /// Returns the layout of the folded values of `layout`, the layout of the metric or of the
    /// inner maps of its map; `None` if there is nothing to fold.
    pub fn of(metric: &Metric, layout: &TableLayout) -> Option<Arc<Self>> {
        let aggregation = metric.agg.filter(|_| layout.kind.is_percpu())?;
        let rules = metric.series.merge.clone().unwrap_or_default();
        Some(
            metric
                .cache()
                .get(|| Self::new(&layout.value, aggregation, &rules)),
        )
    }

    fn new(layout: &Layout, aggregation: Aggregation, rules: &MergeRules) -> Self {
        let over = |path: &str, meaning| OverCpus::of(aggregation, rules, path, meaning);
        let value = widened(layout, SumWidth::Widest, &|path, meaning| {
            over(path, meaning) == Some(OverCpus::All(MergeRule::Sum))
        });
        let widening = (value != *layout).then(|| Conversion::new(layout, &value));
        let from = Leaves::new(layout, &mut |path, meaning| over(path, meaning));
        let to = Leaves::new(&value, &mut |path, meaning| over(path, meaning).map(drop));
        let times = Leaves::new(layout, &mut |_, meaning| {
            matches!(meaning, Meaning::Time { first: false, .. }).then_some(())
        });
        Self {
            value,
            widening,
            from,
            to,
            times,
        }
    }
}

/// Folds the slots of each entry into one value, in memory that belongs to the folder.
#[derive(Debug)]
pub struct Folder {
    folded: Arc<Folded>,
    size: usize,
    stride: usize,
    value: Vec<u8>,
    numbers: Vec<u128>,
}

impl Folder {
    /// Makes the folder for values of `layout`, the layout of the metric or of the inner maps of
    /// its map. `None` if there is nothing to fold.
    pub fn of(metric: &Metric, layout: &TableLayout) -> Option<Self> {
        let folded = Folded::of(metric, layout)?;
        let (size, stride) = (layout.value.size, layout.slot_stride());
        Some(Self {
            folded,
            size,
            stride,
            value: Vec::new(),
            numbers: Vec::new(),
        })
    }

    /// Folds the slots of all CPUs into one value. Parts without arithmetic (names, addresses,
    /// text) come from the CPU whose value has the newest time, else from the first CPU whose value
    /// is not zero.
    pub fn fold(&mut self, slots: &[u8]) -> &[u8] {
        let Self {
            folded,
            size,
            stride,
            value,
            numbers,
        } = self;
        let slots = slots.chunks_exact(*stride).map(|slot| &slot[..*size]);
        let is_counted = |slot: &[u8]| slot.iter().any(|&byte| byte != 0);
        let newest = |slot: &&[u8]| {
            let mut newest = 0;
            folded
                .times
                .for_each(|leaf, base| newest = leaf.load(slot, base).max(newest));
            newest
        };
        let mut counted = slots.clone().filter(|slot| is_counted(slot));
        let mut base = counted.next().or_else(|| slots.clone().next());
        for other in counted {
            base = base
                .filter(|base| newest(base) >= newest(&other))
                .or(Some(other));
        }
        value.clear();
        value.resize(folded.value.size, 0);
        match (base, &folded.widening) {
            (Some(base), None) => value.copy_from_slice(base),
            (Some(base), Some(widening)) => widening.value(base, value),
            (None, _) => {}
        }
        numbers.clear();
        folded.from.for_each(|leaf, base| {
            let width = if leaf.tag == OverCpus::All(MergeRule::Sum) {
                128
            } else {
                leaf.width()
            };
            let values = slots
                .clone()
                .map(|slot| (leaf.load(slot, base), is_counted(slot)));
            numbers.push(leaf.tag.fold(leaf.kind, width, values));
        });
        let mut numbers = numbers.iter();
        folded.to.for_each(|leaf, base| {
            if let Some(number) = numbers.next() {
                let fitting = fold(MergeRule::Sum, leaf.kind, leaf.width(), iter::once(*number));
                leaf.store(value, base, fitting);
            }
        });
        value
    }
}

#[cfg(test)]
mod tests;
