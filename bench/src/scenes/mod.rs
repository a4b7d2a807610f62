//! Set-ups that several experiments use, and programs of others.

pub mod bcc;
pub mod events;
pub mod exporters;
pub mod million;
pub mod placebo;
pub mod probes;
pub mod runs;
pub mod slices;
