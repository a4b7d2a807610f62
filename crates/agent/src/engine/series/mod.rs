//! Charts: numbers of one metric over the retained windows.

pub mod chart;
pub mod points;
pub mod query;
pub mod values;
pub mod walk;
