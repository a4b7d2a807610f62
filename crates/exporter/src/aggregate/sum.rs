//! `sum`: what counters on several CPUs add up to.

/// Storing the result cuts it to the width of the leaf, so that the sum wraps there.
pub fn numbers(values: impl Iterator<Item = u128>) -> u128 {
    values.fold(0, u128::wrapping_add)
}

pub fn floats(values: impl Iterator<Item = f64>) -> f64 {
    values.sum()
}
