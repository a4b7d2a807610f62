//! How the values of the CPUs become one. One file per aggregation, each with what it does to numbers and to
//! floats; booleans count as 0 and 1.

mod avg;
mod max;
mod min;
mod sum;

use std::sync::Arc;

use twinprobe_ebpf_common::{Aggregation, TableLayout};

use crate::leaf::{LeafKind, Leaves, Meaning};

/// Folds the bits of leaves, as [`crate::leaf::Leaf::load`] gives them. `values` is not empty.
pub(crate) fn fold(
    aggregation: Aggregation,
    kind: LeafKind,
    values: impl Iterator<Item = u128> + Clone,
) -> u128 {
    match kind {
        LeafKind::Float => {
            let values = values.map(|bits| f64::from_bits(bits as u64));
            let result = match aggregation {
                Aggregation::Sum => sum::floats(values),
                Aggregation::Avg => avg::floats(values),
                Aggregation::Min => min::floats(values),
                Aggregation::Max => max::floats(values),
            };
            u128::from(result.to_bits())
        }
        LeafKind::Bool => match aggregation {
            Aggregation::Sum | Aggregation::Max => max::numbers(values, false),
            Aggregation::Avg | Aggregation::Min => min::numbers(values, false),
        },
        LeafKind::Number { signed, .. } => match aggregation {
            Aggregation::Sum => sum::numbers(values),
            Aggregation::Avg => avg::numbers(values, signed),
            Aggregation::Min => min::numbers(values, signed),
            Aggregation::Max => max::numbers(values, signed),
        },
    }
}

/// Makes numbers comparable as unsigned ones.
const fn order(bits: u128, signed: bool) -> u128 {
    if signed { bits ^ (1 << 127) } else { bits }
}

/// What an aggregation computes with: quantities.
pub(crate) fn leaves(layout: &TableLayout) -> Leaves<()> {
    Leaves::new(&layout.value, &mut |_, meaning| (meaning == Meaning::Quantity).then_some(()))
}

/// Folds the slots of one entry after the other, in memory of its own.
#[derive(Debug)]
pub(crate) struct Folder {
    aggregation: Aggregation,
    leaves: Arc<Leaves<()>>,
    size: usize,
    stride: usize,
    value: Vec<u8>,
}

impl Folder {
    pub fn new(aggregation: Aggregation, layout: &TableLayout, leaves: Arc<Leaves<()>>) -> Self {
        let (size, stride) = (layout.value.size, layout.slot_stride());
        Self { aggregation, leaves, size, stride, value: Vec::new() }
    }

    /// One value from the slots of all CPUs. What is no number is taken from the first CPU that has anything.
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
