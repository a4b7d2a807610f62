//! Charts: numbers of one metric over the retained windows.

pub mod block;
pub mod chart;
pub mod compact;
pub mod held;
pub mod kept;
pub mod keys;
pub mod points;
pub mod query;
pub mod sums;
pub mod values;
pub mod walk;

#[cfg(test)]
mod tests;
