//! `min`: the least value of any CPU.

use super::operation::Operation;
use crate::leaf::order;

/// A float is NaN only if it is NaN on all CPUs; a boolean is true if it is true on all CPUs.
pub struct Min;

impl Operation for Min {
    fn numbers(values: impl Iterator<Item = u128> + Clone, signed: bool) -> u128 {
        values.min_by_key(|&value| order(value, signed)).unwrap_or_default()
    }

    fn floats(values: impl Iterator<Item = f64> + Clone) -> f64 {
        values.reduce(f64::min).unwrap_or_default()
    }

    fn booleans(values: impl Iterator<Item = u128> + Clone) -> u128 {
        values.min().unwrap_or_default()
    }
}
