//! The interface of an aggregation.

/// The way in which an aggregation computes one number from the values of several CPUs. There is at least one value.
pub trait Operation {
    /// Aggregates integers as [`crate::leaf::Leaf::load`] returns them: extended to 128 bits, by their sign if they are
    /// `signed`. The result is cut to the width of the field, so that a larger one wraps.
    fn numbers(values: impl Iterator<Item = u128> + Clone, signed: bool) -> u128;

    /// Aggregates floats, including those of 4 bytes.
    fn floats(values: impl Iterator<Item = f64> + Clone) -> f64;

    /// Aggregates booleans, which are 0 or 1.
    fn booleans(values: impl Iterator<Item = u128> + Clone) -> u128;
}
