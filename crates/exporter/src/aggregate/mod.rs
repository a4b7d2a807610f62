//! How the values of the CPUs become one. One file per aggregation, each with what it does to numbers and to
//! floats; booleans count as 0 and 1.

mod avg;
mod max;
mod min;
mod sum;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use twinprobe_ebpf_common::TableLayout;

use crate::leaf::{LeafKind, Leaves, Meaning};

/// What a PERCPU metric's values are folded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// Wraps in the width of the field, as it does in the program.
    Sum,
    /// Over all possible CPUs, truncated.
    Avg,
    Min,
    Max,
}

impl Aggregation {
    pub const ALL: [Self; 4] = [Self::Sum, Self::Avg, Self::Min, Self::Max];

    /// The name used in configurations and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|aggregation| aggregation.name() == name)
    }

    /// Folds the bits of leaves, as [`crate::leaf::Leaf::load`] gives them. `values` is not empty.
    pub(crate) fn fold(self, kind: LeafKind, values: impl Iterator<Item = u128> + Clone) -> u128 {
        match kind {
            LeafKind::Float => {
                let values = values.map(|bits| f64::from_bits(bits as u64));
                let result = match self {
                    Self::Sum => sum::floats(values),
                    Self::Avg => avg::floats(values),
                    Self::Min => min::floats(values),
                    Self::Max => max::floats(values),
                };
                u128::from(result.to_bits())
            }
            LeafKind::Bool => match self {
                Self::Sum | Self::Max => max::numbers(values, false),
                Self::Avg | Self::Min => min::numbers(values, false),
            },
            LeafKind::Number { signed, .. } => match self {
                Self::Sum => sum::numbers(values),
                Self::Avg => avg::numbers(values, signed),
                Self::Min => min::numbers(values, signed),
                Self::Max => max::numbers(values, signed),
            },
        }
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
            let result = aggregation.fold(leaf.kind, slots.clone().map(|slot| leaf.load(slot, base)));
            leaf.store(value, base, result);
        });
        value
    }
}

#[cfg(test)]
mod tests;
