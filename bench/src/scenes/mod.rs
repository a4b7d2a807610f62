//! Set-ups that several experiments use, and programs of others.

pub mod adaptive;
pub mod attack;
pub mod bcc;
pub mod decisions;
pub mod ebpf_exporter;
pub mod events;
pub mod exporters;
pub mod fleet;
pub mod floor;
pub mod libxdp;
pub mod million;
pub mod pairs;
pub mod placebo;
pub mod probes;
pub mod returns;
pub mod runs;
pub mod sender;
pub mod slices;
pub mod sources;
pub mod stores;
pub mod triples;
pub mod wall;
