//! The reasons why a file can't be read.

use std::io;

/// The reason why a file, or the rest of a file, can't be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error("it is empty; even a capture without packets has a header")]
    Empty,
    #[error("it is neither pcap nor pcapng nor snoop, or its head is cut off")]
    Unknown,
    #[error("after {packets} packets: {what}; the capture is damaged")]
    Damaged { packets: u64, what: String },
    #[error("after {packets} packets: the decompressed capture has more than {limit} bytes")]
    TooLarge { packets: u64, limit: u64 },
    #[error("it can't be read")]
    Read(#[from] io::Error),
}

/// The reason why a reader has stopped. The counter of packets adds their number.
#[derive(Debug)]
pub enum Stop {
    /// The file is damaged.
    Damaged(String),
    /// The file can't be read, and the reader of compressed files knows why.
    Unread,
}
