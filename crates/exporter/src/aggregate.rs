//! The aggregation of the values of all CPUs into one, number by number.

use std::sync::Arc;

use twinprobe_ebpf_common::{Aggregation, TableLayout};

use crate::leaf::{LeafKind, Leaves, Meaning, order};
use crate::metric::Metric;

/// Folds the bits of one leaf, as [`crate::leaf::Leaf::load`] gives them. `values` is not empty. The result is cut to
/// the width of the field, so that a larger sum wraps. CPUs that have counted nothing count as zero in a mean; `min` and
/// `max` of floats are NaN only if all CPUs have NaN.
pub fn fold(aggregation: Aggregation, kind: LeafKind, values: impl Iterator<Item = u128> + Clone) -> u128 {
    use Aggregation::{Avg, Max, Min, Sum};
    let folded = match (kind, aggregation) {
        (LeafKind::Float, _) => {
            let floats = values.map(|bits| f64::from_bits(bits as u64));
            let folded = match aggregation {
                Sum => floats.sum(),
                Avg => floats.clone().sum::<f64>() / floats.count().max(1) as f64,
                Min => floats.reduce(f64::min).unwrap_or_default(),
                Max => floats.reduce(f64::max).unwrap_or_default(),
            };
            return folded.to_bits().into();
        }
        (LeafKind::Bool, Sum | Max) => values.max(),
        (LeafKind::Bool, Avg | Min) => values.min(),
        (LeafKind::Number { .. }, Sum) => values.reduce(u128::wrapping_add),
        (LeafKind::Number { signed, .. }, Avg) => Some(mean(values, signed)),
        (LeafKind::Number { signed, .. }, Min) => values.min_by_key(|&value| order(value, signed)),
        (LeafKind::Number { signed, .. }, Max) => values.max_by_key(|&value| order(value, signed)),
    };
    folded.unwrap_or_default()
}

/// Returns the mean, truncated towards zero. The sum has 128 bits, which values of up to 64 bits can't overflow; if
/// wider ones overflow, quotients and remainders are summed apart.
fn mean(values: impl Iterator<Item = u128> + Clone, signed: bool) -> u128 {
    let count = values.clone().count().max(1) as u128;
    if signed {
        let (values, count) = (values.map(u128::cast_signed), count.cast_signed());
        let sum = values.clone().try_fold(0_i128, i128::checked_add);
        return sum.map_or_else(|| wide_mean(values, count), |sum| sum / count).cast_unsigned();
    }
    if let Some(sum) = values.clone().try_fold(0, u128::checked_add) {
        return sum / count;
    }
    let (quotients, remainders) = values.fold((0, 0), |(q, r), value| (q + value / count, r + value % count));
    quotients + remainders / count
}

/// Returns the mean of 128-bit values whose sum fits into no type.
fn wide_mean(values: impl Iterator<Item = i128>, count: i128) -> i128 {
    let (quotients, remainders) = values.fold((0, 0), |(q, r), value| (q + value / count, r + value % count));
    let (mean, rest) = (quotients + remainders / count, remainders % count);
    // The result is `mean + rest / count`, truncated: a rest of the other sign moves the mean by one towards zero.
    if mean > 0 && rest < 0 {
        mean - 1
    } else if mean < 0 && rest > 0 {
        mean + 1
    } else {
        mean
    }
}

/// Folds the slots of one entry after the other, in memory of its own.
#[derive(Debug)]
pub struct Folder {
    aggregation: Aggregation,
    /// The numbers that are folded, which are quantities.
    leaves: Arc<Leaves<()>>,
    size: usize,
    stride: usize,
    value: Vec<u8>,
}

impl Folder {
    /// Makes the folder for values of `layout`, the layout of the metric or of the inner maps of its map. `None` if
    /// there is nothing to fold.
    pub fn of(metric: &Metric, layout: &TableLayout) -> Option<Self> {
        let aggregation = metric.agg.filter(|_| layout.kind.is_percpu())?;
        let quantity = &mut |_: &str, meaning| (meaning == Meaning::Quantity).then_some(());
        let leaves = metric.cache.get(|| Leaves::new(&layout.value, quantity));
        let (size, stride) = (layout.value.size, layout.slot_stride());
        Some(Self { aggregation, leaves, size, stride, value: Vec::new() })
    }

    /// Folds the slots of all CPUs into one value. The parts that are no quantities (names, addresses, text) are taken
    /// from the first CPU whose value is not zero.
    pub fn fold(&mut self, slots: &[u8]) -> &[u8] {
        let Self { aggregation, leaves, size, stride, value } = self;
        let slots = slots.chunks_exact(*stride).map(|slot| &slot[..*size]);
        let touched = slots.clone().find(|slot| slot.iter().any(|&byte| byte != 0));
        value.clear();
        match touched.or_else(|| slots.clone().next()) {
            Some(base) => value.extend_from_slice(base),
            None => value.resize(*size, 0),
        }
        leaves.for_each(|leaf, base| {
            let result = fold(*aggregation, leaf.kind, slots.clone().map(|slot| leaf.load(slot, base)));
            leaf.store(value, base, result);
        });
        value
    }
}

#[cfg(test)]
mod tests;
