//! Captures for the rules of the library: for each rule one capture at which it fires, and one of
//! similar but harmless traffic.

use std::net::Ipv4Addr;

use crate::replays::{append, head};
use crate::traffic::{Frame, FrameOptions, Protocol};

/// The time of the first packet: 2023-11-14 22:13:20 UTC.
const START: u64 = 1_700_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;
/// The length of a capture, and the seconds of its attack.
const SECONDS: u64 = 9;
const ATTACK: std::ops::Range<u64> = 3..6;

const ETHERNET: u32 = 1;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const PSH_ACK: u8 = 0x18;
/// The offsets of the sequence number of TCP, and of the payload of UDP.
const SEQUENCE: usize = 38;
const MESSAGE: usize = 42;

/// The captures for one rule. Windows have a second each.
pub struct RuleScene {
    pub rule: &'static str,
    /// The window at which the rule fires, and the window at which its firing ends.
    pub fires: [u64; 2],
    pub attack: ScenePackets,
    pub harmless: ScenePackets,
}

/// Captures in pcap.
pub struct ScenePackets {
    pub ingress: Vec<u8>,
    pub egress: Vec<u8>,
    /// The packets of the ingress, each with the number of its second, from 0.
    pub received: Vec<(u64, Vec<u8>)>,
}

/// Packets with their times and the lengths that they had before they were cut.
#[derive(Default)]
struct Timeline(Vec<(u64, usize, Vec<u8>)>);

impl Timeline {
    /// Adds `count` packets of each of these seconds. `packet` makes a packet from the number of
    /// its second and its own number within this second.
    fn each_second(
        &mut self,
        seconds: std::ops::Range<u64>,
        count: u64,
        mut packet: impl FnMut(u64, u64) -> Vec<u8>,
    ) -> &mut Self {
        for second in seconds {
            for number in 0..count {
                let bytes = packet(second, number);
                self.0.push((
                    START + second * SECOND + number * SECOND / count,
                    bytes.len(),
                    bytes,
                ));
            }
        }
        self
    }

    /// Delays the packets so far by this many nanoseconds.
    fn later(&mut self, by: u64) -> &mut Self {
        self.0.iter_mut().for_each(|(time, ..)| *time += by);
        self
    }

    /// Gives the packets so far this length. The capture has only their beginning.
    fn long(&mut self, length: usize) -> &mut Self {
        self.0.iter_mut().for_each(|(_, of, _)| *of = length);
        self
    }

    fn and(&mut self, other: &mut Self) -> &mut Self {
        self.0.append(&mut other.0);
        self
    }

    fn pcap(&mut self) -> Vec<u8> {
        self.0.sort_by_key(|(time, ..)| *time);
        let mut file = head(ETHERNET);
        for (time, length, bytes) in &self.0 {
            append(&mut file, *time, *length as u32, bytes);
        }
        file
    }

    /// Captures with these packets, all of them received.
    fn received(&mut self) -> ScenePackets {
        self.with(&mut Self::default())
    }

    /// Captures with these packets, and the packets that were sent.
    fn with(&mut self, sent: &mut Self) -> ScenePackets {
        let (ingress, egress) = (self.pcap(), sent.pcap());
        let second =
            |(time, _, bytes): &(u64, usize, Vec<u8>)| ((time - START) / SECOND, bytes.clone());
        ScenePackets {
            ingress,
            egress,
            received: self.0.iter().map(second).collect(),
        }
    }
}

/// Returns the captures for each rule of the library.
pub fn scenes() -> Vec<RuleScene> {
    vec![
        dns_amplification(),
        elephant_flows(),
        new_talkers(),
        port_scan(),
        retransmissions(),
        syn_flood(),
    ]
}

fn address(number: u64) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + number as u32)
}

fn frame(options: &FrameOptions, source: u64, port: u64) -> Vec<u8> {
    Frame::build(options)
        .expect("a frame of this length")
        .from_source(address(source), port as u16)
}

/// Returns a TCP packet to this port.
fn tcp(source: u64, port: u64, destination_port: u16, tcp_flags: u8) -> Vec<u8> {
    frame(
        &FrameOptions {
            destination_port,
            tcp_flags,
            ..FrameOptions::default()
        },
        source,
        port,
    )
}

/// The attack: SYNs that no client completes. Harmless: many clients that complete their
/// handshakes.
fn syn_flood() -> RuleScene {
    let clients = |count| {
        let mut all = Timeline::default();
        let client = |flags| move |second, number| tcp(1 + number, 10_000 + second, 443, flags);
        let mut completed = Timeline::default();
        completed
            .each_second(0..SECONDS, count, client(ACK))
            .later(SECOND / 5000);
        all.each_second(0..SECONDS, count, client(SYN))
            .and(&mut completed);
        all
    };
    let flood = |second, number| tcp(1000 + 1000 * second + number, 1024 + number, 443, SYN);
    let attack = clients(20).each_second(ATTACK, 300, flood).received();
    RuleScene {
        rule: "syn-flood",
        fires: [5, 7],
        attack,
        harmless: clients(400).received(),
    }
}

/// Returns a message of the DNS between two ports.
fn dns(source: u64, port: u64, destination_port: u16, id: u16, message: &[u8]) -> Vec<u8> {
    let options = FrameOptions {
        protocol: Protocol::Udp,
        length: 80,
        destination_port,
        ..FrameOptions::default()
    };
    let mut bytes = frame(&options, source, port);
    bytes[MESSAGE..MESSAGE + 2].copy_from_slice(&id.to_be_bytes());
    bytes[MESSAGE + 2..MESSAGE + 2 + message.len()].copy_from_slice(message);
    bytes
}

/// The attack: answers to questions that no client has asked. Harmless: many answers to questions
/// that a client has asked.
fn dns_amplification() -> RuleScene {
    const ANSWER: [u8; 10] = [0x81, 0x80, 0, 0, 0, 0, 0, 0, 0, 0];
    // One question, for the address of `a`.
    const QUESTION: [u8; 17] = [1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, b'a', 0, 0, 1, 0, 1];
    let client = FrameOptions::default().destination;
    let asked = |count| {
        let id = |second, number| (second * 1000 + number) as u16;
        let ask = |second, number| {
            let mut bytes = dns(0, 40_000, 53, id(second, number), &QUESTION);
            // The frame goes in the other direction: from the client to a server.
            let (source, destination) = (client.octets(), address(1 + number % 4).octets());
            bytes[26..30].copy_from_slice(&source);
            bytes[30..34].copy_from_slice(&destination);
            bytes
        };
        let answer = |second, number| dns(1 + number % 4, 53, 40_000, id(second, number), &ANSWER);
        let (mut questions, mut answers) = (Timeline::default(), Timeline::default());
        questions.each_second(0..SECONDS, count, ask);
        answers
            .each_second(0..SECONDS, count, answer)
            .later(SECOND / 1000);
        (questions, answers)
    };
    let (mut questions, mut answers) = asked(20);
    let flood = |_, number| dns(1000 + number, 53, 40_000, number as u16, &ANSWER);
    answers.each_second(ATTACK, 300, flood);
    let attack = answers.with(&mut questions);
    let (mut questions, mut answers) = asked(400);
    let harmless = answers.with(&mut questions);
    RuleScene {
        rule: "dns-amplification",
        fires: [4, 7],
        attack,
        harmless,
    }
}

/// The attack: a source that tries many ports. Harmless: many clients of a few ports.
fn port_scan() -> RuleScene {
    let clients = |count| {
        let mut all = Timeline::default();
        all.each_second(0..SECONDS, count, |second, number| {
            tcp(
                1 + number,
                10_000 + second,
                if number % 2 == 0 { 80 } else { 443 },
                SYN,
            )
        });
        all
    };
    let scan = |second, number: u64| tcp(5000, 40_000, (1000 * second + number) as u16, SYN);
    let attack = clients(50).each_second(ATTACK, 200, scan).received();
    RuleScene {
        rule: "port-scan",
        fires: [4, 7],
        attack,
        harmless: clients(500).received(),
    }
}

/// The attack: one flow that has most of the bytes. Harmless: as many bytes of many flows.
fn elephant_flows() -> RuleScene {
    let data = |source, port| tcp(source, port, 443, ACK);
    let mice = |seconds, count, flows: u64| {
        let mut all = Timeline::default();
        all.each_second(seconds, count, |_, number| data(1 + number % flows, 5000))
            .long(1514);
        all
    };
    let mut elephant = mice(ATTACK, 1500, 1);
    let attack = mice(0..SECONDS, 200, 50).and(&mut elephant).received();
    let harmless = mice(0..SECONDS, 1700, 50).received();
    RuleScene {
        rule: "elephant-flows",
        fires: [5, 7],
        attack,
        harmless,
    }
}

/// The fault: half of the segments come twice. Harmless: the usual few segments come twice.
fn retransmissions() -> RuleScene {
    let segment = |index: u64| {
        let options = FrameOptions {
            length: 154,
            tcp_flags: PSH_ACK,
            destination_port: 443,
            ..FrameOptions::default()
        };
        let mut bytes = frame(&options, 7, 5000);
        bytes[SEQUENCE..SEQUENCE + 4].copy_from_slice(&(1 + 100 * index as u32).to_be_bytes());
        bytes
    };
    // `repeated` tells for a second how often segments are sent twice: if it returns 8, every
    // eighth segment.
    let transfer = |repeated: &dyn Fn(u64) -> u64| {
        let mut all = Timeline::default();
        for second in 0..SECONDS {
            for number in 0..200 {
                let index = 200 * second + number;
                let time = START + index * SECOND / 200;
                let times = if index % repeated(second) == 0 { 2 } else { 1 };
                (0..times).for_each(|again| {
                    let bytes = segment(index);
                    all.0
                        .push((time + again * SECOND / 1000, bytes.len(), bytes));
                });
            }
        }
        all
    };
    let attack = transfer(&|second| if ATTACK.contains(&second) { 2 } else { 100 }).received();
    let harmless = transfer(&|_| 8).received();
    RuleScene {
        rule: "retransmissions",
        fires: [4, 7],
        attack,
        harmless,
    }
}

/// The attack comes from new addresses; the harmless traffic from known ones, which send much.
fn new_talkers() -> RuleScene {
    let same = |count| {
        let mut all = Timeline::default();
        all.each_second(0..SECONDS, count, |_, number| {
            tcp(1 + number % 20, 5000, 443, ACK)
        });
        all
    };
    let new = |second, number| tcp(1000 + 1000 * second + number, 5000, 443, ACK);
    let attack = same(40).each_second(ATTACK, 200, new).received();
    RuleScene {
        rule: "new-talkers",
        fires: [4, 7],
        attack,
        harmless: same(2000).received(),
    }
}
