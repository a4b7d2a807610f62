//! The reader of pcap and pcapng files.

use std::io::Read;

use pcap_parser::pcapng::Block;
use pcap_parser::traits::{PcapNGPacketBlock as _, PcapReaderIterator};
use pcap_parser::{
    EnhancedPacketBlock, LegacyPcapBlock, LegacyPcapReader, PcapBlockOwned, PcapError,
    PcapNGReader, SimplePacketBlock,
};

use crate::error::Stop;
use crate::format::interface::Interface;
use crate::format::obsolete::{self, ObsoletePacket, Words};
use crate::format::record::{CaptureLink, CaptureRecord, CaptureRecords, LONGEST};

/// The size of the buffer, which must hold a whole packet and a block of a pcapng file, in bytes.
const BUFFER: usize = 1 << 20;

/// The sizes of the heads before a packet's bytes.
const PCAP_HEAD: usize = 16;
const MODIFIED_PCAP_HEAD: usize = 24;
const ENHANCED_HEAD: usize = 28;
const SIMPLE_HEAD: usize = 12;
const BLOCK_HEAD: usize = 8;

/// A pcap or pcapng file.
pub struct Blocks {
    reader: Box<dyn PcapReaderIterator + Send>,
    section: Section,
    /// The number of bytes of the block that contains the last packet.
    taken: usize,
    cut_off: bool,
}

/// Facts from the blocks so far about the packets that follow.
struct Section {
    /// The interfaces of the present section. A pcap file has one.
    interfaces: Vec<Interface>,
    words: Words,
    pcap_head: usize,
    /// The time of the previous packet.
    time_ns: u64,
}

/// The next thing in a file.
enum NextBlock {
    /// A block without a packet, of this number of bytes.
    Other(usize),
    Packet(CaptureRecord, usize),
    /// The buffer has no whole block.
    Incomplete,
}

impl Blocks {
    /// Reads the head of a file; `None` if it has no such head.
    pub fn open(file: impl Read + Send + 'static, is_pcapng: bool) -> Option<Self> {
        let (interfaces, words) = (Vec::new(), Words { big_endian: false });
        let mut blocks = Self {
            reader: match is_pcapng {
                true => Box::new(PcapNGReader::new(BUFFER, file).ok()?),
                false => Box::new(LegacyPcapReader::new(BUFFER, file).ok()?),
            },
            section: Section {
                interfaces,
                words,
                pcap_head: PCAP_HEAD,
                time_ns: 0,
            },
            taken: 0,
            cut_off: false,
        };
        if !is_pcapng && let NextBlock::Other(size) = blocks.look().ok()? {
            blocks.reader.consume(size);
        }
        Some(blocks)
    }

    /// Examines the beginning of the buffer.
    fn look(&mut self) -> Result<NextBlock, Stop> {
        let (size, block) = match self.reader.next() {
            Ok(next) => next,
            Err(PcapError::Eof | PcapError::UnexpectedEof | PcapError::Incomplete(_)) => {
                return Ok(NextBlock::Incomplete);
            }
            Err(PcapError::BufferTooSmall) => {
                return Err(Stop::Damaged(format!(
                    "the next one claims more than {LONGEST} bytes"
                )));
            }
            Err(_) => {
                return Err(Stop::Damaged(
                    "the bytes after them are not a packet".into(),
                ));
            }
        };
        let found = self.section.read(block)?;
        Ok(found.map_or(NextBlock::Other(size), |record| {
            NextBlock::Packet(record, size)
        }))
    }
}

impl Section {
    /// Reads a block; `None` if it has no packet.
    fn read(&mut self, block: PcapBlockOwned<'_>) -> Result<Option<CaptureRecord>, Stop> {
        let record = match block {
            PcapBlockOwned::LegacyHeader(header) => {
                self.interfaces = vec![Interface::of_pcap(&header)];
                if header.is_modified_format() {
                    self.pcap_head = MODIFIED_PCAP_HEAD;
                }
                return Ok(None);
            }
            PcapBlockOwned::Legacy(packet) => self.legacy(&packet)?,
            PcapBlockOwned::NG(Block::SectionHeader(section)) => {
                self.interfaces.clear();
                self.words = Words {
                    big_endian: section.big_endian(),
                };
                return Ok(None);
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                self.interfaces
                    .push(Interface::of_pcapng(&interface, self.words.big_endian));
                return Ok(None);
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => self.enhanced(&packet),
            PcapBlockOwned::NG(Block::SimplePacket(packet)) => self.simple(&packet),
            PcapBlockOwned::NG(Block::Unknown(block))
                if self.words.is_obsolete(block.block_type) =>
            {
                self.obsolete(block.data)?
            }
            PcapBlockOwned::NG(_) => return Ok(None),
        };
        // A block of pcapng contains the start of the next block, whatever its content is.
        let link = if record.captured > LONGEST {
            CaptureLink::TooLong
        } else {
            record.link
        };
        Ok(Some(CaptureRecord { link, ..record }))
    }

    fn legacy(&self, packet: &LegacyPcapBlock<'_>) -> Result<CaptureRecord, Stop> {
        let captured = packet.caplen as usize;
        if captured > LONGEST {
            let what = format!("the next one claims {captured} bytes, and the limit is {LONGEST}");
            return Err(Stop::Damaged(what));
        }
        // The parts of a stamp are apart, and the smaller part may be a second or more in a damaged
        // file.
        let record = self.record(0, (0, packet.ts_usec), self.pcap_head);
        let time_ns = u64::from(packet.ts_sec) * 1_000_000_000 + record.time_ns;
        Ok(CaptureRecord {
            time_ns,
            length: packet.origlen,
            captured,
            ..record
        })
    }

    fn enhanced(&self, packet: &EnhancedPacketBlock<'_>) -> CaptureRecord {
        let flags = packet
            .options
            .iter()
            .find(|option| option.code.0 == obsolete::FLAGS);
        let record = self.record(
            packet.if_id as usize,
            (packet.ts_high, packet.ts_low),
            ENHANCED_HEAD,
        );
        CaptureRecord {
            direction: flags.and_then(|flags| self.words.direction(&flags.value)),
            length: packet.origlen,
            captured: packet.packet_data().len(),
            ..record
        }
    }

    fn simple(&self, packet: &SimplePacketBlock<'_>) -> CaptureRecord {
        let limit = self
            .interfaces
            .first()
            .map_or(0, |interface| interface.snap_length);
        let limit = if limit == 0 {
            usize::MAX
        } else {
            limit as usize
        };
        let captured = packet.packet_data().len().min(limit);
        let record = self.record(0, (0, 0), SIMPLE_HEAD);
        CaptureRecord {
            time_ns: self.time_ns,
            length: packet.origlen,
            captured,
            ..record
        }
    }

    fn obsolete(&self, block: &[u8]) -> Result<CaptureRecord, Stop> {
        let packet = obsolete::parse(self.words, block).ok_or_else(|| {
            Stop::Damaged("the next one claims more bytes than its block has".into())
        })?;
        let record = self.record(packet.interface, packet.times, BLOCK_HEAD + obsolete::HEAD);
        let ObsoletePacket {
            direction,
            length,
            captured,
            ..
        } = packet;
        Ok(CaptureRecord {
            direction,
            length,
            captured,
            ..record
        })
    }

    /// A packet of an interface whose bytes begin at `start`.
    fn record(&self, interface: usize, (high, low): (u32, u32), start: usize) -> CaptureRecord {
        let interface = self.interfaces.get(interface);
        let ticks = u64::from(high) << 32 | u64::from(low);
        CaptureRecord {
            time_ns: interface.map_or(self.time_ns, |interface| interface.nanoseconds(ticks)),
            direction: None,
            length: 0,
            link: interface.map_or(CaptureLink::UnknownInterface, |interface| {
                CaptureLink::Type(interface.link_type.0)
            }),
            start,
            captured: 0,
        }
    }
}

impl CaptureRecords for Blocks {
    fn next(&mut self) -> Result<Option<CaptureRecord>, Stop> {
        self.reader.consume(std::mem::take(&mut self.taken));
        loop {
            match self.look()? {
                NextBlock::Other(size) => self.reader.consume(size),
                NextBlock::Packet(record, size) => {
                    self.taken = size;
                    self.section.time_ns = record.time_ns;
                    return Ok(Some(record));
                }
                NextBlock::Incomplete => {
                    let before = self.reader.data().len();
                    self.reader.refill().map_err(|_| Stop::Unread)?;
                    match self.reader.data().len() {
                        0 => return Ok(None),
                        after if after == before && self.reader.reader_exhausted() => {
                            self.cut_off = true;
                            return Ok(None);
                        }
                        after if after == before => {
                            return Err(Stop::Damaged("the next block is too long".into()));
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    fn data(&self) -> &[u8] {
        self.reader.data()
    }

    fn is_cut_off(&self) -> bool {
        self.cut_off
    }
}
