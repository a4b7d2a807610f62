//! Configurations of other monitors, turned into ours.

pub mod convert;
pub mod converted;
mod dechainy;
mod declared;
mod distinct;
mod dynmon;
#[cfg(test)]
mod tests;
