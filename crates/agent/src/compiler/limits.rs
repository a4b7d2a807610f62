//! The limits of a compilation.

use std::time::Duration;

/// The limits of one compilation: time, bytes of the object and of the log, memory.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub time: Duration,
    pub object: usize,
    pub log: usize,
    /// The bytes of address space; the largest probes take a quarter of this, most of it for libraries.
    pub memory: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(20), object: 16 << 20, log: 256 << 10, memory: 2 << 30 }
    }
}
