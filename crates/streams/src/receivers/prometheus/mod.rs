//! Prometheus remote write 2.0, or 1.0 for receivers that read only 1.0: samples at the ends of
//! windows.

pub mod message;
pub mod options;
pub mod protocol;
pub mod symbols;
pub mod version;
