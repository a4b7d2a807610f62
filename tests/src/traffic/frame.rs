//! The frame of the packets, and the places of its fields that change from packet to packet.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};

/// The shortest Ethernet frame in bytes, without the frame check sequence. Shorter frames are
/// padded.
pub const MIN_FRAME: usize = 60;
/// The longest frame in bytes: it must fit into a page beside its headroom.
const MAX_FRAME: usize = 3400;

const ETH_IPV4: u16 = 0x0800;
const ETH_IPV6: u16 = 0x86dd;
const ETH_VLAN: [u16; 2] = [0x8100, 0x88a8];

/// The transport of a built frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
    Icmp,
}

impl Protocol {
    const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Icmp => 1,
        }
    }

    const fn header_length(self) -> usize {
        match self {
            Self::Tcp => 20,
            Self::Udp | Self::Icmp => 8,
        }
    }
}

/// An IPv4 frame to build. The default is the paper's: a TCP SYN of 60 bytes.
#[derive(Clone, Debug)]
pub struct FrameOptions {
    pub protocol: Protocol,
    /// The number of bytes from the Ethernet header on, without frame check sequence.
    pub length: usize,
    pub destination_mac: [u8; 6],
    pub source_mac: [u8; 6],
    /// The 802.1Q tag.
    pub vlan: Option<u16>,
    pub destination: Ipv4Addr,
    pub destination_port: u16,
    pub tos: u8,
    /// The TCP flags; SYN is 2.
    pub tcp_flags: u8,
}

impl Default for FrameOptions {
    fn default() -> Self {
        Self {
            protocol: Protocol::Tcp,
            length: MIN_FRAME,
            destination_mac: [0x02, 0, 0, 0, 0, 2],
            source_mac: [0x02, 0, 0, 0, 0, 1],
            vlan: None,
            destination: Ipv4Addr::new(198, 19, 0, 1),
            destination_port: 80,
            tos: 0,
            tcp_flags: 0x02,
        }
    }
}

/// The bytes of a frame of at least [`MIN_FRAME`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame(Vec<u8>);

impl Default for Frame {
    /// Returns the paper's 60-byte TCP SYN.
    fn default() -> Self {
        Self::build(&FrameOptions::default()).expect("the default frame is valid")
    }
}

impl Frame {
    /// Takes any frame, from the Ethernet header on, and pads it to [`MIN_FRAME`].
    pub fn from_bytes(mut bytes: Vec<u8>) -> Result<Self> {
        ensure!(
            (14..=MAX_FRAME).contains(&bytes.len()),
            "a frame has 14 to {MAX_FRAME} bytes"
        );
        bytes.resize(bytes.len().max(MIN_FRAME), 0);
        Ok(Self(bytes))
    }

    /// Builds an IPv4 frame; source address, port and checksums are zero until the generator writes
    /// them.
    pub fn build(options: &FrameOptions) -> Result<Self> {
        let l3 = 14 + if options.vlan.is_some() { 4 } else { 0 };
        let least = l3 + 20 + options.protocol.header_length();
        ensure!(
            (least..=MAX_FRAME).contains(&options.length),
            "this frame has {least} to {MAX_FRAME} bytes"
        );
        let mut bytes = Vec::with_capacity(options.length);
        bytes.extend(options.destination_mac);
        bytes.extend(options.source_mac);
        if let Some(tag) = options.vlan {
            bytes.extend(ETH_VLAN[0].to_be_bytes());
            bytes.extend(tag.to_be_bytes());
        }
        bytes.extend(ETH_IPV4.to_be_bytes());
        // Bytes after the headers are padding in a frame of minimum length, and payload in a longer
        // one.
        let ip_length = if options.length > MIN_FRAME {
            options.length
        } else {
            least
        } - l3;
        bytes.extend([0x45, options.tos]);
        bytes.extend((ip_length as u16).to_be_bytes());
        bytes.extend([
            0,
            0,
            0x40,
            0,
            64,
            options.protocol.number(),
            0,
            0,
            0,
            0,
            0,
            0,
        ]);
        bytes.extend(options.destination.octets());
        let port = options.destination_port.to_be_bytes();
        match options.protocol {
            Protocol::Tcp => {
                bytes.extend([
                    0,
                    0,
                    port[0],
                    port[1],
                    0,
                    0,
                    0,
                    1,
                    0,
                    0,
                    0,
                    0,
                    0x50,
                    options.tcp_flags,
                ]);
                bytes.extend([0xff, 0xff, 0, 0, 0, 0]);
            }
            Protocol::Udp => {
                bytes.extend([0, 0, port[0], port[1]]);
                bytes.extend((ip_length as u16 - 20).to_be_bytes());
                bytes.extend([0, 0]);
            }
            Protocol::Icmp => bytes.extend([8, 0, 0, 0, 0, 0, 0, 1]),
        }
        bytes.resize(options.length, 0);
        Self::from_bytes(bytes)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes with this source address and port and right checksums, as
    /// `generator.bpf.c` makes them.
    pub fn from_source(&self, address: Ipv4Addr, port: u16) -> Vec<u8> {
        let mut bytes = self.0.clone();
        let Some(fields) = self.fields() else {
            return bytes;
        };
        let mut put = |offset: usize, value: &[u8]| {
            bytes[offset..offset + value.len()].copy_from_slice(value);
        };
        let address_sum = u32::from(checksum(&address.octets(), &[]));
        put(fields.address, &address.octets());
        if let Some((offset, sum)) = fields.ip_checksum {
            put(offset, &(!fold(u32::from(sum) + address_sum)).to_ne_bytes());
        }
        if let Some(l4) = fields.l4 {
            put(l4.port, &port.to_be_bytes());
            let covered = if l4.pseudo_header { address_sum } else { 0 };
            let sum = !fold(u32::from(l4.sum) + u32::from(port.to_be()) + covered);
            let sum = if sum == 0 && l4.zero_means_none {
                0xffff
            } else {
                sum
            };
            put(l4.checksum, &sum.to_ne_bytes());
        }
        bytes
    }

    /// Returns the fields that the generator rewrites, as defines of `generator.bpf.c`. Frames that
    /// are not IP have only the template; transports other than TCP, UDP and ICMP echo have no port
    /// and checksum.
    pub(super) fn defines(&self) -> Vec<String> {
        let template: Vec<_> = self.0[..MIN_FRAME].iter().map(u8::to_string).collect();
        let mut defines = vec![format!("TEMPLATE={}", template.join(","))];
        let Some(fields) = self.fields() else {
            return defines;
        };
        defines.push(format!("ADDRESS={}", fields.address));
        if let Some((offset, sum)) = fields.ip_checksum {
            defines.extend([format!("IP_CHECKSUM={offset}"), format!("IP_SUM={sum}")]);
        }
        if let Some(l4) = fields.l4 {
            defines.extend([
                format!("PORT={}", l4.port),
                format!("L4_CHECKSUM={}", l4.checksum),
                format!("L4_SUM={}", l4.sum),
            ]);
            if l4.pseudo_header {
                defines.push("PSEUDO_HEADER".to_owned());
            }
            if l4.zero_means_none {
                defines.push("ZERO_MEANS_NONE".to_owned());
            }
        }
        defines
    }

    fn fields(&self) -> Option<Fields> {
        let (l3, ether_type) = self.network_header()?;
        let bytes = &self.0;
        let (address, addresses, protocol, l4, end, ip_checksum) = match ether_type {
            ETH_IPV4 => {
                let header = usize::from(bytes[l3] & 0xf) * 4;
                let total = usize::from(be16(bytes, l3 + 2)?);
                let fragment = be16(bytes, l3 + 6)? & 0x3fff != 0;
                let sum = checksum(bytes.get(l3..l3 + header)?, &[10, 12, 14]);
                let protocol = if fragment {
                    None
                } else {
                    Some(*bytes.get(l3 + 9)?)
                };
                (
                    l3 + 12,
                    l3 + 12..l3 + 20,
                    protocol,
                    l3 + header,
                    l3 + total,
                    Some((l3 + 10, sum)),
                )
            }
            ETH_IPV6 => {
                let total = 40 + usize::from(be16(bytes, l3 + 4)?);
                (
                    l3 + 20,
                    l3 + 8..l3 + 40,
                    bytes.get(l3 + 6).copied(),
                    l3 + 40,
                    l3 + total,
                    None,
                )
            }
            _ => return None,
        };
        let in_template = |offset: usize, size: usize| offset + size <= MIN_FRAME;
        if !in_template(address, 4) {
            return None;
        }
        let l4 = protocol.and_then(|protocol| {
            let (port, check, pseudo_header) = match (protocol, ether_type) {
                (6, _) => (0, 16, true),
                (17, _) => (0, 6, true),
                (1, ETH_IPV4) => (4, 2, false),
                (58, ETH_IPV6) => (4, 2, true),
                _ => return None,
            };
            if !in_template(l4 + port, 2) || !in_template(l4 + check, 2) {
                return None;
            }
            let mut sum = u32::from(checksum(bytes.get(l4..end)?, &[port, check]));
            if pseudo_header {
                let changing = address - addresses.start;
                sum += u32::from(checksum(bytes.get(addresses)?, &[changing, changing + 2]));
                sum +=
                    u32::from(u16::from(protocol).to_be()) + u32::from(((end - l4) as u16).to_be());
            }
            let sum = fold(sum);
            Some(L4 {
                port: l4 + port,
                checksum: l4 + check,
                sum,
                pseudo_header,
                zero_means_none: protocol == 17,
            })
        });
        Some(Fields {
            address,
            ip_checksum,
            l4,
        })
    }

    /// Returns the offset and EtherType after any VLAN tags.
    fn network_header(&self) -> Option<(usize, u16)> {
        let mut offset = 12;
        loop {
            let ether_type = be16(&self.0, offset)?;
            if !ETH_VLAN.contains(&ether_type) {
                return Some((offset + 2, ether_type));
            }
            offset += 4;
        }
    }
}

/// Offsets from the start of the frame, with the sums of all words that stay the same.
struct Fields {
    address: usize,
    ip_checksum: Option<(usize, u16)>,
    l4: Option<L4>,
}

struct L4 {
    port: usize,
    checksum: usize,
    sum: u16,
    pseudo_header: bool,
    zero_means_none: bool,
}

fn be16(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_be_bytes(
        bytes.get(offset..offset + 2)?.try_into().ok()?,
    ))
}

/// Returns the one's complement sum, in memory order, of all 16-bit words except those at the
/// offsets in `except`.
fn checksum(bytes: &[u8], except: &[usize]) -> u16 {
    let words = bytes
        .chunks(2)
        .enumerate()
        .filter(|(i, _)| !except.contains(&(i * 2)));
    fold(
        words
            .map(|(_, word)| u32::from(u16::from_ne_bytes([word[0], *word.get(1).unwrap_or(&0)])))
            .sum(),
    )
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_syn_of_60_bytes() {
        let frame = Frame::default();
        assert_eq!(frame.bytes().len(), 60);
        assert_eq!(be16(frame.bytes(), 16), Some(40));
        assert_eq!(frame.bytes()[47], 2);
    }

    #[test]
    fn changing_fields_are_found_behind_a_tag() {
        let options = FrameOptions {
            vlan: Some(7),
            length: 64,
            ..FrameOptions::default()
        };
        let fields = Frame::build(&options).unwrap().fields().unwrap();
        assert_eq!((fields.address, fields.l4.unwrap().port), (30, 38));
    }

    #[test]
    fn a_frame_that_is_not_ip_is_left_alone() {
        let mut bytes = vec![0xff; 20];
        bytes[12..14].copy_from_slice(&[0x08, 0x06]);
        let frame = Frame::from_bytes(bytes).unwrap();
        assert_eq!(frame.bytes().len(), MIN_FRAME);
        assert_eq!(frame.defines().len(), 1);
    }

    #[test]
    fn too_long_a_frame_is_refused() {
        assert!(Frame::from_bytes(vec![0; MAX_FRAME + 1]).is_err());
        assert!(
            Frame::build(&FrameOptions {
                length: 50,
                ..FrameOptions::default()
            })
            .is_err()
        );
    }
}
