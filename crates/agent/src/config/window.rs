//! The settings of a probe's windows.

use std::time::Duration;

/// The schedule on which windows are closed without a request, and the limits of their retention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowConfig {
    pub(super) schedule: Option<Schedule>,
    pub(super) retain: usize,
    pub(super) retain_bytes: u64,
    pub(super) collectors: Vec<String>,
}

/// The schedule of windows that are closed by the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    pub interval: Duration,
    /// True if windows end at multiples of the interval since the Unix epoch; otherwise the interval counts from the
    /// start of the first window.
    pub align: bool,
}

impl WindowConfig {
    /// The number of windows that are kept until they are acknowledged; beyond this number the oldest window is
    /// dropped.
    pub fn retain(&self) -> usize {
        self.retain
    }

    /// The same limit as [`Self::retain`], in bytes on disk.
    pub fn retain_bytes(&self) -> u64 {
        self.retain_bytes
    }

    /// The collectors that have to acknowledge a window; if empty, anybody can acknowledge it.
    pub fn collectors(&self) -> &[String] {
        &self.collectors
    }
}

impl Default for WindowConfig {
    fn default() -> Self {
        Self { schedule: None, retain: 32, retain_bytes: 256 << 20, collectors: Vec::new() }
    }
}
