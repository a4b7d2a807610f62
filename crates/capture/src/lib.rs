//! Captured packets: pcap (microseconds and nanoseconds, both byte orders) and pcapng, read piece by piece.

#![forbid(unsafe_code)]

mod capture;
mod interface;
#[cfg(test)]
mod tests;

pub use capture::{Capture, CaptureError, Packet};
