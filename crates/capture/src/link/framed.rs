//! The frame that a packet without an Ethernet header gets.

use std::ops::Range;

use twinprobe_ebpf_common::Direction;

/// The size of an Ethernet header in bytes.
pub const HEADER: usize = 14;
pub const IPV4: u16 = 0x0800;
pub const IPV6: u16 = 0x86dd;
/// The least number that is a type, not a length, in the header of Ethernet.
pub const FIRST_TYPE: u16 = 0x0600;

/// A hardware address.
pub type Mac = [u8; 6];

/// A packet that gets a header of Ethernet in front of a part of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framed {
    pub destination: Mac,
    pub source: Mac,
    pub ether_type: u16,
    /// The captured bytes after the header.
    pub payload: Range<usize>,
    /// The length of the frame on the link, in bytes.
    pub length: u32,
    pub direction: Option<Direction>,
}

/// The reason why a packet can't be given to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnfitFrame {
    /// The packet is of another kind of link.
    LinkType,
    /// The kind of link can carry IP, but this packet has content that no frame of Ethernet can
    /// have.
    NotIp,
    /// The headers before the payload are incomplete, or contradict themselves.
    Header,
    Encrypted,
    /// Several frames are in one frame of 802.11.
    Aggregated,
    /// A part of a frame of 802.11 that is not the first one.
    Fragment,
}

impl UnfitFrame {
    /// The name of the reason; `None` if the name of the link's type already tells the reason.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::LinkType => return None,
            Self::NotIp => "not_ip",
            Self::Header => "header",
            Self::Encrypted => "encrypted",
            Self::Aggregated => "aggregated",
            Self::Fragment => "fragment",
        })
    }
}

impl Framed {
    /// A frame for the bytes from `start` on of a packet of this length, without addresses.
    pub fn new(ether_type: u16, start: usize, captured: usize, length: u32) -> Self {
        let rest = (length as usize).saturating_sub(start);
        Self {
            destination: Mac::default(),
            source: Mac::default(),
            ether_type,
            payload: start..captured,
            length: u32::try_from(rest.saturating_add(HEADER)).unwrap_or(u32::MAX),
            direction: None,
        }
    }

    /// The header.
    pub fn header(&self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..6].copy_from_slice(&self.destination);
        header[6..12].copy_from_slice(&self.source);
        header[12..].copy_from_slice(&self.ether_type.to_be_bytes());
        header
    }
}
