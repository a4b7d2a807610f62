//! Set-ups that several experiments use, and programs of others.

pub mod bcc;
pub mod exporters;
pub mod million;
pub mod placebo;
pub mod probes;
pub mod slices;
pub mod stores;
