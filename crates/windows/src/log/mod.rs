//! A log that many windows are written to at once, for the files of windows that are not synced one by one.

pub mod log;
pub mod record;
pub mod replay;
#[cfg(test)]
mod reuse_tests;
pub mod segment;
#[cfg(test)]
mod tests;
