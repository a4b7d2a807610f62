//! The packets on which the daemon tries programs, before they get packets of a network.

/// A packet as an Ethernet link carries it.
#[derive(Clone, Debug)]
pub struct EthernetFrame {
    pub name: &'static str,
    pub bytes: Vec<u8>,
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// The smallest frame of an Ethernet link, without its checksum, in bytes.
const SMALLEST: usize = 60;
/// The data that fills a frame at an MTU of 1500 with an IPv4 and a TCP header, in bytes.
const FULL: usize = 1460;

/// Returns the sample frames of a flow: common protocols, the smallest and the largest size. Flows
/// differ in the source's address and port.
pub fn samples(flow: u8) -> Vec<EthernetFrame> {
    let frame = |name, bytes| EthernetFrame { name, bytes };
    let dns = udp(
        flow,
        53,
        &[
            &[0x12, 0x34, 1, 0, 0, 1][..],
            &[0; 6],
            b"\x07example\x03org\0\0\x01\0\x01",
        ]
        .concat(),
    );
    let echo = [&[8, 0, 0, 0, 0, 1, 0, 1][..], &[0xa5; 56]].concat();
    let request = [
        &[0, 1, 8, 0, 6, 4, 0, 1][..],
        &SOURCE,
        &[192, 0, 2, flow],
        &[0; 6],
        &[198, 51, 100, 1],
    ]
    .concat();
    let tagged = [
        &[0x00, 0x2a][..],
        &IPV4.to_be_bytes(),
        &ipv4(flow, TCP, &tcp(flow, SYN, &[])),
    ]
    .concat();
    vec![
        frame(
            "tcp_syn",
            ethernet(IPV4, &ipv4(flow, TCP, &tcp(flow, SYN, &[]))),
        ),
        frame(
            "tcp_data",
            ethernet(IPV4, &ipv4(flow, TCP, &tcp(flow, ACK, &[0xa5; FULL]))),
        ),
        frame("udp_dns", ethernet(IPV4, &ipv4(flow, UDP, &dns))),
        frame("icmp_echo", ethernet(IPV4, &ipv4(flow, 1, &echo))),
        frame(
            "tcp_syn_ipv6",
            ethernet(IPV6, &ipv6(flow, TCP, &tcp(flow, SYN, &[]))),
        ),
        frame("udp_dns_ipv6", ethernet(IPV6, &ipv6(flow, UDP, &dns))),
        frame("tcp_syn_vlan", ethernet(0x8100, &tagged)),
        frame("arp_request", ethernet(0x0806, &request)),
    ]
}

const SOURCE: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
const DESTINATION: [u8; 6] = [0x02, 0, 0, 0, 0, 0x02];

fn ethernet(protocol: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&DESTINATION[..], &SOURCE, &protocol.to_be_bytes(), payload].concat();
    frame.resize(frame.len().max(SMALLEST), 0);
    frame
}

/// Makes a packet from 192.0.2.FLOW to 198.51.100.1, with the checksum of its header.
fn ipv4(flow: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (20 + payload.len() as u16).to_be_bytes();
    let mut header = [
        0x45, 0, high, low, 0x12, 0x34, 0x40, 0, 64, protocol, 0, 0, 192, 0, 2, flow, 198, 51, 100,
        1,
    ];
    let sum: u32 = header
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    [&header[..], payload].concat()
}

/// Makes a packet from 2001:db8::FLOW to 2001:db8::.
fn ipv6(flow: u8, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let address = |last| {
        [
            0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last,
        ]
    };
    let [high, low] = (payload.len() as u16).to_be_bytes();
    let header = [0x60, 0, 0, 0, high, low, protocol, 64];
    [&header[..], &address(flow), &address(0), payload].concat()
}

/// Makes a segment from port 40000 + FLOW to port 80.
fn tcp(flow: u8, flags: u8, data: &[u8]) -> Vec<u8> {
    let [from, to] = [
        (40_000 + u16::from(flow)).to_be_bytes(),
        80_u16.to_be_bytes(),
    ];
    let rest = [0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0];
    [&from[..], &to, &rest, data].concat()
}

/// Makes a datagram from port 40000 + FLOW. Its checksum is 0, which means that it is not computed.
fn udp(flow: u8, port: u16, data: &[u8]) -> Vec<u8> {
    let [from, to] = [(40_000 + u16::from(flow)).to_be_bytes(), port.to_be_bytes()];
    let length = (8 + data.len() as u16).to_be_bytes();
    [&from[..], &to, &length, &[0, 0], data].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_frames_that_a_link_carries() {
        let frames = samples(7);
        for (i, frame) in frames.iter().enumerate() {
            assert!(
                (SMALLEST..=1514).contains(&frame.bytes.len()),
                "{} {}",
                frame.name,
                frame.bytes.len()
            );
            assert_ne!(
                frame.bytes,
                samples(8)[i].bytes,
                "{} is the same in another flow",
                frame.name
            );
            assert!(
                frames[..i].iter().all(|other| other.name != frame.name),
                "{}",
                frame.name
            );
        }
        let lengths: Vec<usize> = frames.iter().map(|frame| frame.bytes.len()).collect();
        assert_eq!(
            (lengths.iter().min(), lengths.iter().max()),
            (Some(&SMALLEST), Some(&1514))
        );
        for frame in frames
            .iter()
            .filter(|frame| frame.bytes[12..14] == IPV4.to_be_bytes())
        {
            let words = frame.bytes[14..34]
                .chunks(2)
                .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
            let sum: u32 = words.sum();
            assert_eq!(
                (sum & 0xffff) + (sum >> 16),
                0xffff,
                "the header of {}",
                frame.name
            );
        }
    }
}
