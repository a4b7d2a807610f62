//! What each aggregation has to say.

/// What an aggregation makes of the values that several CPUs have for one number. There is at least one value.
pub trait Operation {
    /// Integers as [`crate::leaf::Leaf::load`] gives them: extended to 128 bits, by their sign if they are `signed`. The
    /// result is cut to the width of the field, so that what exceeds it wraps.
    fn numbers(values: impl Iterator<Item = u128> + Clone, signed: bool) -> u128;

    /// Floats, of 4 bytes also.
    fn floats(values: impl Iterator<Item = f64> + Clone) -> f64;

    /// Booleans, which are 0 or 1.
    fn booleans(values: impl Iterator<Item = u128> + Clone) -> u128;
}
