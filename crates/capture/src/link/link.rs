//! The kinds of links whose packets a probe can get (<https://www.tcpdump.org/linktypes.html>).

use std::borrow::Cow;

use twinprobe_ebpf_common::Direction;

use crate::format::record::CaptureLink;
use crate::link::framed::{FIRST_TYPE, Framed, IPV4, IPV6, Mac, UnfitFrame};
use crate::link::wireless;

const NULL: i32 = 0;
const ETHERNET: i32 = 1;
/// Numbers that some systems write instead of [`RAW`].
const RAW_OF_OTHERS: [i32; 2] = [12, 14];
const RAW: i32 = 101;
const WIRELESS: i32 = 105;
const LOOP: i32 = 108;
const SLL: i32 = 113;
const RADIOTAP: i32 = 127;
const ONLY_IPV4: i32 = 228;
const ONLY_IPV6: i32 = 229;
const SLL2: i32 = 276;

/// The names of the kinds of links that are known.
const NAMES: [(i32, &str); 10] = [
    (NULL, "NULL"),
    (ETHERNET, "ETHERNET"),
    (RAW, "RAW"),
    (WIRELESS, "IEEE802_11"),
    (LOOP, "LOOP"),
    (SLL, "LINUX_SLL"),
    (RADIOTAP, "IEEE802_11_RADIOTAP"),
    (ONLY_IPV4, "IPV4"),
    (ONLY_IPV6, "IPV6"),
    (SLL2, "LINUX_SLL2"),
];

/// The kinds of interfaces (`ARPHRD_*`) whose packets have no type of Ethernet in a cooked capture.
const NETLINK: u16 = 824;
const WIRELESS_INTERFACE: u16 = 801;
const RADIOTAP_INTERFACE: u16 = 803;

/// The families of addresses before the packets of loopback interfaces: IPv4, and IPv6 on Linux,
/// NetBSD and OpenBSD, FreeBSD, and macOS.
const FAMILIES: [u32; 5] = [2, 10, 24, 28, 30];

/// The form in which a probe gets a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkContent {
    /// The packet as it is.
    Ethernet,
    Framed(Framed),
}

/// Returns the name of a kind of links, or of the reason why its packets can't be read.
pub fn name(link: CaptureLink) -> Cow<'static, str> {
    match link {
        CaptureLink::Type(number) => {
            let number = if RAW_OF_OTHERS.contains(&number) {
                RAW
            } else {
                number
            };
            match NAMES.iter().find(|(known, _)| *known == number) {
                Some((_, name)) => Cow::from(*name),
                None => Cow::from(format!("LINKTYPE_{number}")),
            }
        }
        CaptureLink::Snoop(number) => Cow::from(format!("SNOOP_{number}")),
        CaptureLink::UnknownInterface => Cow::from("unknown_interface"),
        CaptureLink::TooLong => Cow::from("too_long"),
    }
}

/// Finds the form of a packet with these captured bytes and this length.
pub fn content(link: CaptureLink, bytes: &[u8], length: u32) -> Result<LinkContent, UnfitFrame> {
    let CaptureLink::Type(number) = link else {
        return Err(UnfitFrame::LinkType);
    };
    let framed = match number {
        ETHERNET => return Ok(LinkContent::Ethernet),
        _ if number == RAW || RAW_OF_OTHERS.contains(&number) => ip(bytes, 0, length, None)?,
        ONLY_IPV4 => ip(bytes, 0, length, Some(IPV4))?,
        ONLY_IPV6 => ip(bytes, 0, length, Some(IPV6))?,
        NULL | LOOP => loopback(bytes, length)?,
        SLL => cooked(bytes, length)?,
        SLL2 => cooked_2(bytes, length)?,
        WIRELESS => wireless::frame(bytes, 0, bytes.len(), length)?,
        RADIOTAP => wireless::radiotap(bytes, 0, length)?,
        _ => return Err(UnfitFrame::LinkType),
    };
    Ok(LinkContent::Framed(framed))
}

/// Returns an IP packet that begins at `start`. The kind of link may determine the version of IP.
fn ip(bytes: &[u8], start: usize, length: u32, only: Option<u16>) -> Result<Framed, UnfitFrame> {
    let found = match bytes.get(start).map(|first| first >> 4) {
        Some(4) => IPV4,
        Some(6) => IPV6,
        _ => return Err(UnfitFrame::NotIp),
    };
    if only.is_some_and(|only| only != found) {
        return Err(UnfitFrame::NotIp);
    }
    Ok(Framed::new(found, start, bytes.len(), length))
}

/// A packet of a loopback interface: the family of its addresses, in the byte order of any machine,
/// and the packet.
fn loopback(bytes: &[u8], length: u32) -> Result<Framed, UnfitFrame> {
    let family = *bytes.first_chunk().ok_or(UnfitFrame::Header)?;
    let is_known = [u32::from_le_bytes(family), u32::from_be_bytes(family)]
        .iter()
        .any(|family| FAMILIES.contains(family));
    if !is_known {
        return Err(UnfitFrame::NotIp);
    }
    ip(bytes, family.len(), length, None)
}

/// The fields of the header of a cooked capture.
struct Cooked {
    kind: u16,
    interface: u16,
    address_length: usize,
    address: [u8; 8],
    protocol: u16,
    size: usize,
}

fn cooked(bytes: &[u8], length: u32) -> Result<Framed, UnfitFrame> {
    let header: &[u8; 16] = bytes.first_chunk().ok_or(UnfitFrame::Header)?;
    let [k0, k1, i0, i1, l0, l1, address @ .., p0, p1] = *header;
    let cooked = Cooked {
        kind: u16::from_be_bytes([k0, k1]),
        interface: u16::from_be_bytes([i0, i1]),
        address_length: u16::from_be_bytes([l0, l1]).into(),
        address,
        protocol: u16::from_be_bytes([p0, p1]),
        size: header.len(),
    };
    cooked.frame(bytes, length)
}

fn cooked_2(bytes: &[u8], length: u32) -> Result<Framed, UnfitFrame> {
    let header: &[u8; 20] = bytes.first_chunk().ok_or(UnfitFrame::Header)?;
    // The header has two bytes without a meaning, and the four bytes of the interface's index.
    let [
        p0,
        p1,
        _,
        _,
        _,
        _,
        _,
        _,
        i0,
        i1,
        kind,
        address_length,
        address @ ..,
    ] = *header;
    let cooked = Cooked {
        kind: kind.into(),
        interface: u16::from_be_bytes([i0, i1]),
        address_length: address_length.into(),
        address,
        protocol: u16::from_be_bytes([p0, p1]),
        size: header.len(),
    };
    cooked.frame(bytes, length)
}

impl Cooked {
    fn frame(&self, bytes: &[u8], length: u32) -> Result<Framed, UnfitFrame> {
        let mut framed = match self.interface {
            NETLINK => return Err(UnfitFrame::NotIp),
            WIRELESS_INTERFACE => wireless::frame(bytes, self.size, bytes.len(), length)?,
            RADIOTAP_INTERFACE => wireless::radiotap(bytes, self.size, length)?,
            _ if self.protocol < FIRST_TYPE => return Err(UnfitFrame::NotIp),
            _ => self.with_addresses(Framed::new(self.protocol, self.size, bytes.len(), length)),
        };
        // The receiver of the packet: this host, all hosts, several, another host (seen by a
        // promiscuous interface), or none, because this host has sent the packet.
        framed.direction = match self.kind {
            0..=3 => Some(Direction::Ingress),
            4 => Some(Direction::Egress),
            _ => None,
        };
        Ok(framed)
    }

    /// The header has only the sender's address. A broadcast packet gets the broadcast address as
    /// its receiver.
    fn with_addresses(&self, framed: Framed) -> Framed {
        let source = self
            .address
            .first_chunk()
            .filter(|address| address.len() == self.address_length);
        let source: Mac = source.copied().unwrap_or_default();
        let destination = if self.kind == 1 {
            [0xff; 6]
        } else {
            Mac::default()
        };
        Framed {
            source,
            destination,
            ..framed
        }
    }
}
