//! `sum`: the sum of the values of all CPUs, as for counters.

use super::operation::Operation;

/// Numbers wrap in the width of their field; a boolean is true if it is true on any CPU.
pub struct Sum;

impl Operation for Sum {
    fn numbers(values: impl Iterator<Item = u128> + Clone, _: bool) -> u128 {
        values.fold(0, u128::wrapping_add)
    }

    fn floats(values: impl Iterator<Item = f64> + Clone) -> f64 {
        values.sum()
    }

    fn booleans(values: impl Iterator<Item = u128> + Clone) -> u128 {
        values.max().unwrap_or_default()
    }
}
