//! The aggregation of the values of the CPUs, one file per aggregation.

pub mod avg;
pub mod fold;
pub mod max;
pub mod min;
pub mod operation;
pub mod sum;

#[cfg(test)]
mod tests;
