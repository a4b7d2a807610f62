//! What several experiments set up, and programs of others.

pub mod bcc;
pub mod exporters;
pub mod million;
pub mod probes;
pub mod slices;
