//! Addresses of the captured host. They give packets a direction.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use twinprobe_ebpf_common::Direction;

use crate::link::framed::{HEADER, IPV4, IPV6, Mac};

const ARP: u16 = 0x0806;
/// The types of Ethernet that stand for a VLAN tag of four bytes.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
const TAG: usize = 4;

/// An address of IPv4, IPv6 or Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalAddress {
    Ip(IpAddr),
    Ethernet(Mac),
}

/// The text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an address of IPv4, IPv6 or Ethernet such as 192.0.2.1, 2001:db8::1 and 02:00:00:00:00:01"
)]
pub struct NoAddress(String);

impl FromStr for LocalAddress {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Ip(address));
        }
        let part = |part: &str| {
            let is_byte = part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
            is_byte.then(|| u8::from_str_radix(part, 16).ok()).flatten()
        };
        let parts: Option<Vec<u8>> = text.split(':').map(part).collect();
        let address = parts.and_then(|parts| Mac::try_from(parts).ok());
        // The text may be of any length.
        address
            .map(Self::Ethernet)
            .ok_or_else(|| NoAddress(text.chars().take(64).collect()))
    }
}

impl fmt::Display for LocalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Ethernet([first, rest @ ..]) => {
                write!(f, "{first:02x}")?;
                rest.iter().try_for_each(|byte| write!(f, ":{byte:02x}"))
            }
        }
    }
}

/// Returns the direction of a frame of Ethernet: egress from a local address, ingress to a local
/// address.
pub fn direction(local: &[LocalAddress], frame: &[u8]) -> Option<Direction> {
    let [source, destination] = addresses(frame)?;
    let is_local = |addresses: &[Option<LocalAddress>; 2]| {
        addresses
            .iter()
            .flatten()
            .any(|address| local.contains(address))
    };
    if is_local(&source) {
        return Some(Direction::Egress);
    }
    is_local(&destination).then_some(Direction::Ingress)
}

/// The addresses of the sender, and then those of the receiver: of Ethernet, and of IP if the frame
/// is IP.
type Ends = [[Option<LocalAddress>; 2]; 2];

fn addresses(frame: &[u8]) -> Option<Ends> {
    let ethernet = |at: usize| Some(LocalAddress::Ethernet(*frame.get(at..)?.first_chunk()?));
    let mut at = HEADER;
    let mut kind = ether_type(frame, at)?;
    while TAGS.contains(&kind) {
        at += TAG;
        kind = ether_type(frame, at)?;
    }
    let packet = &frame[at..];
    let v4 = |at: usize| {
        Some(LocalAddress::Ip(IpAddr::from(
            *packet.get(at..)?.first_chunk::<4>()?,
        )))
    };
    let v6 = |at: usize| {
        Some(LocalAddress::Ip(IpAddr::from(
            *packet.get(at..)?.first_chunk::<16>()?,
        )))
    };
    let [source, destination] = match kind {
        IPV4 => [v4(12), v4(16)],
        IPV6 => [v6(8), v6(24)],
        ARP => [v4(14), v4(24)],
        _ => [None, None],
    };
    Some([[ethernet(6), source], [ethernet(0), destination]])
}

/// Returns the type in the two bytes before `end`.
fn ether_type(frame: &[u8], end: usize) -> Option<u16> {
    let bytes = frame.get(..end)?.last_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}
