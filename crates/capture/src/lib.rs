//! Captured packets: pcap (microseconds and nanoseconds, both byte orders), pcapng and snoop, as
//! they are or compressed by gzip or zstd, read piece by piece.

#![forbid(unsafe_code)]

mod capture;
mod error;
mod format;
mod link;
mod local;
#[cfg(test)]
mod tests;
mod unpack;

pub use capture::{Capture, Packet};
pub use error::CaptureError;
pub use local::{LocalAddress, NoAddress};
