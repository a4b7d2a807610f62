//! The folding of the values of all CPUs into one, number by number.

use std::sync::Arc;

use twinprobe_ebpf_common::{Aggregation, TableLayout};

use super::avg::Avg;
use super::max::Max;
use super::min::Min;
use super::operation::Operation;
use super::sum::Sum;
use crate::leaf::{LeafKind, Leaves, Meaning};
use crate::metric::Metric;

/// Folds the bits of one leaf, as [`crate::leaf::Leaf::load`] gives them. `values` is not empty.
pub fn fold(aggregation: Aggregation, kind: LeafKind, values: impl Iterator<Item = u128> + Clone) -> u128 {
    match aggregation {
        Aggregation::Sum => apply::<Sum>(kind, values),
        Aggregation::Avg => apply::<Avg>(kind, values),
        Aggregation::Min => apply::<Min>(kind, values),
        Aggregation::Max => apply::<Max>(kind, values),
    }
}

fn apply<O: Operation>(kind: LeafKind, values: impl Iterator<Item = u128> + Clone) -> u128 {
    match kind {
        LeafKind::Float => O::floats(values.map(|bits| f64::from_bits(bits as u64))).to_bits().into(),
        LeafKind::Bool => O::booleans(values),
        LeafKind::Number { signed, .. } => O::numbers(values, signed),
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
