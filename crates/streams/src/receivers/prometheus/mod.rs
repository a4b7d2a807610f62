//! Prometheus remote write 1.0: samples at the ends of windows.

pub mod message;
pub mod options;
pub mod protocol;
