//! A capture file that is read packet by packet.

use std::io::{self, BufRead, BufReader, Read};

use pcap_parser::pcapng::Block;
use pcap_parser::traits::{PcapNGPacketBlock as _, PcapReaderIterator};
use pcap_parser::{LegacyPcapReader, Linktype, PcapBlockOwned, PcapError, PcapNGReader};
use twinprobe_ebpf_common::Direction;

use crate::interface::Interface;

/// The size of the buffer, which has to hold a whole packet and a block of a pcapng file, in bytes.
const BUFFER: usize = 1 << 20;
/// The most bytes of a packet that were captured. tcpdump and Wireshark take the same limit.
const LONGEST: usize = 256 << 10;

/// The sizes of the heads before a packet's bytes.
const PCAP_HEAD: usize = 16;
const MODIFIED_PCAP_HEAD: usize = 24;
const ENHANCED_HEAD: usize = 28;
const SIMPLE_HEAD: usize = 12;
/// The type of the packet block that pcapng had first.
const OBSOLETE_PACKET: u32 = 2;
/// The option of a packet that has its direction in the two lowest bits.
const FLAGS: u16 = 2;

/// The reason why a file, or the rest of a file, can't be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error("it is empty; a capture begins with a header, also one without packets")]
    Empty,
    #[error("it is neither pcap nor pcapng, or its head is cut off; a compressed capture has to be unpacked")]
    Unknown,
    #[error(
        "its packets are of link type {0} (https://www.tcpdump.org/linktypes.html), and Ethernet (1) is needed: capture on \
         one interface (tcpdump -i eth0, not -i any)"
    )]
    LinkType(i32),
    #[error("after {packets} packets: {what}; the capture is damaged")]
    Damaged { packets: u64, what: String },
    #[error("it can't be read")]
    Read(#[from] io::Error),
}

/// A captured packet, from the Ethernet header on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The time of the capture, in nanoseconds since the Unix epoch. A packet of a pcapng file may have none, and then
    /// has that of the packet before.
    pub time_ns: u64,
    /// The direction, if the file tells it (pcapng).
    pub direction: Option<Direction>,
    /// The length of the packet on the link, in bytes. More than those of `bytes` if the capture has cut the packet
    /// off; less, if the file is wrong.
    pub length: u32,
    /// The captured bytes.
    pub bytes: &'a [u8],
}

/// A capture file.
pub struct Capture {
    reader: Box<dyn PcapReaderIterator + Send>,
    /// The interfaces of the present section. A pcap file has one.
    interfaces: Vec<Interface>,
    big_endian: bool,
    pcap_head: usize,
    /// The bytes of the block that the last packet is in.
    taken: usize,
    found: Option<Found>,
    time_ns: u64,
    packets: u64,
    cut_off: bool,
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").field("packets", &self.packets).finish_non_exhaustive()
    }
}

/// A packet whose bytes are in the reader's buffer.
#[derive(Clone, Copy)]
struct Found {
    time_ns: u64,
    direction: Option<Direction>,
    length: u32,
    /// The offset of the bytes in the buffer, and their number.
    start: usize,
    captured: usize,
}

/// The next thing in a file.
enum Next {
    /// A block without a packet, of this number of bytes.
    Other(usize),
    Packet(Found, usize),
    /// The buffer has no whole block.
    Incomplete,
}

impl Capture {
    /// Reads the head of a file.
    pub fn open(file: impl Read + Send + 'static) -> Result<Self, CaptureError> {
        let mut file = BufReader::new(file);
        let magic = file.fill_buf()?;
        if magic.is_empty() {
            return Err(CaptureError::Empty);
        }
        let is_pcapng = magic.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]);
        let mut capture = Self {
            reader: match is_pcapng {
                true => Box::new(PcapNGReader::new(BUFFER, file).map_err(|_| CaptureError::Unknown)?),
                false => Box::new(LegacyPcapReader::new(BUFFER, file).map_err(|_| CaptureError::Unknown)?),
            },
            interfaces: Vec::new(),
            big_endian: false,
            pcap_head: PCAP_HEAD,
            taken: 0,
            found: None,
            time_ns: 0,
            packets: 0,
            cut_off: false,
        };
        if !is_pcapng && let Next::Other(size) = capture.look()? {
            capture.reader.consume(size);
            capture.link_type(0)?;
        }
        Ok(capture)
    }

    /// Goes on to the next packet. Returns false at the end, also where the file ends within a packet: see
    /// [`Self::is_cut_off`].
    pub fn advance(&mut self) -> Result<bool, CaptureError> {
        self.reader.consume(std::mem::take(&mut self.taken));
        self.found = None;
        loop {
            match self.look()? {
                Next::Other(size) => self.reader.consume(size),
                Next::Packet(found, size) => {
                    self.taken = size;
                    self.packets += 1;
                    self.time_ns = found.time_ns;
                    self.found = Some(found);
                    return Ok(true);
                }
                Next::Incomplete => {
                    let before = self.reader.data().len();
                    self.reader.refill().map_err(|_| io::Error::other("reading failed"))?;
                    match self.reader.data().len() {
                        0 => return Ok(false),
                        after if after == before && self.reader.reader_exhausted() => {
                            self.cut_off = true;
                            return Ok(false);
                        }
                        after if after == before => return Err(self.damaged("a block of it is too long")),
                        _ => {}
                    }
                }
            }
        }
    }

    /// Returns the packet that [`Self::advance`] has gone to.
    pub fn packet(&self) -> Option<Packet<'_>> {
        let Found { time_ns, direction, length, start, captured } = self.found?;
        Some(Packet { time_ns, direction, length, bytes: &self.reader.data()[start..start + captured] })
    }

    /// Tells whether the file has ended within a packet.
    pub const fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// Looks at what the buffer begins with.
    fn look(&mut self) -> Result<Next, CaptureError> {
        let damaged = |what: String| CaptureError::Damaged { packets: self.packets, what };
        let (size, block) = match self.reader.next() {
            Ok(next) => next,
            Err(PcapError::Eof | PcapError::UnexpectedEof | PcapError::Incomplete(_)) => {
                return Ok(Next::Incomplete);
            }
            Err(PcapError::BufferTooSmall) => {
                return Err(damaged(format!("the next one claims more than {LONGEST} bytes")));
            }
            Err(_) => return Err(damaged("what follows is no packet".into())),
        };
        let found = match block {
            PcapBlockOwned::LegacyHeader(header) => {
                self.interfaces = vec![Interface::of_pcap(&header)];
                if header.is_modified_format() {
                    self.pcap_head = MODIFIED_PCAP_HEAD;
                }
                return Ok(Next::Other(size));
            }
            PcapBlockOwned::Legacy(packet) => {
                // The parts of a stamp are apart, and the smaller part may be a second or more in a damaged file.
                let interface = &self.interfaces[0];
                let seconds = u64::from(packet.ts_sec) * 1_000_000_000;
                Found {
                    time_ns: seconds + interface.nanoseconds(packet.ts_usec.into()),
                    direction: None,
                    length: packet.origlen,
                    start: self.pcap_head,
                    captured: packet.caplen as usize,
                }
            }
            PcapBlockOwned::NG(Block::SectionHeader(section)) => {
                self.interfaces.clear();
                self.big_endian = section.big_endian();
                return Ok(Next::Other(size));
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                self.interfaces.push(Interface::of_pcapng(&interface, self.big_endian));
                return Ok(Next::Other(size));
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let interface = self.interfaces.get(packet.if_id as usize);
                let interface =
                    interface.ok_or_else(|| damaged("the next one is of an unknown interface".into()))?;
                check_link_type(interface.link_type)?;
                let flags = packet.options.iter().find(|option| option.code.0 == FLAGS);
                let lowest = flags.and_then(|flags| flags.value.get(if self.big_endian { 3 } else { 0 }));
                Found {
                    time_ns: interface
                        .nanoseconds(u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low)),
                    direction: match lowest.map(|flags| flags & 3) {
                        Some(1) => Some(Direction::Ingress),
                        Some(2) => Some(Direction::Egress),
                        _ => None,
                    },
                    length: packet.origlen,
                    start: ENHANCED_HEAD,
                    captured: packet.packet_data().len(),
                }
            }
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
                let interface = self.interfaces.first();
                let interface = interface.ok_or_else(|| damaged("the next one is of no interface".into()))?;
                check_link_type(interface.link_type)?;
                let limit = if interface.snap_length == 0 { u32::MAX } else { interface.snap_length };
                Found {
                    time_ns: self.time_ns,
                    direction: None,
                    length: packet.origlen,
                    start: SIMPLE_HEAD,
                    captured: packet.packet_data().len().min(limit as usize),
                }
            }
            PcapBlockOwned::NG(Block::Unknown(block)) if block.block_type == OBSOLETE_PACKET => {
                return Err(damaged(
                    "the next one is in a block that pcapng has given up; editcap converts it".into(),
                ));
            }
            PcapBlockOwned::NG(_) => return Ok(Next::Other(size)),
        };
        if found.captured > LONGEST {
            return Err(damaged(format!(
                "the next one claims {} bytes, and {LONGEST} are possible",
                found.captured
            )));
        }
        Ok(Next::Packet(found, size))
    }

    fn link_type(&self, interface: usize) -> Result<(), CaptureError> {
        self.interfaces.get(interface).map_or(Ok(()), |interface| check_link_type(interface.link_type))
    }

    fn damaged(&self, what: &str) -> CaptureError {
        CaptureError::Damaged { packets: self.packets, what: what.to_owned() }
    }
}

fn check_link_type(found: Linktype) -> Result<(), CaptureError> {
    if found == Linktype::ETHERNET { Ok(()) } else { Err(CaptureError::LinkType(found.0)) }
}
