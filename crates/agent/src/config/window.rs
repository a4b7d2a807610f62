//! What is configured of a probe's windows.

use std::time::Duration;

/// When windows are closed without a request, and how long they are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    pub schedule: Option<Schedule>,
    pub retain: usize,
    pub retain_bytes: u64,
    pub collectors: Vec<String>,
}

/// Windows that are closed by the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub interval: Duration,
    /// Whether windows end at multiples of the interval since the Unix epoch; else they count from when the first
    /// one began.
    pub align: bool,
}

impl WindowConfig {
    /// Windows that are kept until they are acknowledged; beyond it the oldest goes.
    pub fn retain(&self) -> usize {
        self.retain
    }

    /// As [`Self::retain`], in bytes on disk.
    pub fn retain_bytes(&self) -> u64 {
        self.retain_bytes
    }

    /// Who has to acknowledge a window; empty: anybody.
    pub fn collectors(&self) -> &[String] {
        &self.collectors
    }
}

impl Default for WindowConfig {
    fn default() -> Self {
        Self { schedule: None, retain: 32, retain_bytes: 256 << 20, collectors: Vec::new() }
    }
}
