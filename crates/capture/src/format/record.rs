//! A packet in the file, before its link type is evaluated.

use twinprobe_ebpf_common::Direction;

use crate::error::Stop;

/// The most bytes of a packet that were captured. tcpdump and Wireshark have the same limit.
pub const LONGEST: usize = 256 << 10;

/// The format of a packet's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureLink {
    /// A number of <https://www.tcpdump.org/linktypes.html>.
    Type(i32),
    /// A link type of the snoop format that is not Ethernet.
    Snoop(u32),
    /// The packet names an interface that the file does not describe.
    UnknownInterface,
    /// The record has more captured bytes than the packet is long.
    TooLong,
}

/// A packet whose bytes are in the reader's buffer.
#[derive(Clone, Copy, Debug)]
pub struct CaptureRecord {
    /// The time of the capture, in nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// The direction by the flags of the packet.
    pub direction: Option<Direction>,
    /// The length of the packet on the link, in bytes.
    pub length: u32,
    pub link: CaptureLink,
    /// The offset of the bytes in the buffer, and their number.
    pub start: usize,
    pub captured: usize,
}

/// A reader of one format.
pub trait CaptureRecords {
    /// Continues to the next packet; `None` at the end, also where the file ends within a packet.
    fn next(&mut self) -> Result<Option<CaptureRecord>, Stop>;

    /// The bytes around the last record.
    fn data(&self) -> &[u8];

    /// Tells whether the file has ended within a packet.
    fn is_cut_off(&self) -> bool;
}
