//! Charts: numbers of one metric over the retained windows.

pub mod ahead;
pub mod chart;
pub mod kept;
pub mod keys;
pub mod points;
pub mod query;
pub mod values;
pub mod walk;

#[cfg(test)]
mod tests;
