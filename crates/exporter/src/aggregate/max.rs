//! `max`: the greatest value of any CPU.

use super::order;

pub fn numbers(values: impl Iterator<Item = u128>, signed: bool) -> u128 {
    values.max_by_key(|&value| order(value, signed)).unwrap_or_default()
}

/// NaN only if all are.
pub fn floats(values: impl Iterator<Item = f64>) -> f64 {
    values.reduce(f64::max).unwrap_or_default()
}
