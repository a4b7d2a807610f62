//! A capture file that is read packet by packet.

use std::borrow::Cow;
use std::fmt;
use std::io::{BufRead as _, BufReader, Read};
use std::sync::Arc;

use twinprobe_ebpf_common::{Direction, PacketCounts};

use crate::error::{CaptureError, Stop};
use crate::format::blocks::Blocks;
use crate::format::record::{CaptureRecord, CaptureRecords};
use crate::format::snoop::{self, Snoop};
use crate::link::framed::Framed;
use crate::link::link::{self, LinkContent};
use crate::local::{self, LocalAddress};
use crate::unpack::{Fate, Unpacked};

/// The first bytes of a pcapng file.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// The size of the buffer for decompressed bytes, in bytes.
const BUFFER: usize = 64 << 10;

/// A captured packet, from the Ethernet header on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The time of the capture, in nanoseconds since the Unix epoch. A packet of a pcapng file may
    /// have none, and then has the time of the previous packet.
    pub time_ns: u64,
    /// The direction, if the file (flags of pcapng, cooked captures) or a local address tells it.
    pub direction: Option<Direction>,
    /// The length of the packet on the link, in bytes. More than the bytes of `bytes` if the
    /// capture has cut the packet off; less, if the file is wrong.
    pub length: u32,
    /// The captured bytes.
    pub bytes: &'a [u8],
}

/// A capture file.
pub struct Capture {
    records: Box<dyn CaptureRecords + Send>,
    fate: Arc<Fate>,
    local: Vec<LocalAddress>,
    found: Option<FoundPacket>,
    /// The bytes of the present packet with an added header, if the file has none.
    frame: Vec<u8>,
    /// The packets so far, skipped ones included.
    packets: u64,
    framed: PacketCounts,
    skipped: PacketCounts,
}

/// The present packet.
struct FoundPacket {
    record: CaptureRecord,
    /// True if the bytes of the packet are in `frame`.
    is_framed: bool,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture")
            .field("packets", &self.packets)
            .finish_non_exhaustive()
    }
}

impl Capture {
    /// Reads the head of a file, which may be compressed by gzip or zstd. `limit` is the most bytes
    /// that are read, counted without compression. Packets to and from `local` addresses have a
    /// direction.
    pub fn open(
        file: impl Read + Send + 'static,
        limit: u64,
        local: Vec<LocalAddress>,
    ) -> Result<Self, CaptureError> {
        let unpacked = Unpacked::new(file, limit)?.ok_or(CaptureError::Empty)?;
        let fate = unpacked.fate();
        let mut file = BufReader::with_capacity(BUFFER, unpacked);
        let begin = file.fill_buf().unwrap_or_default();
        let (is_pcapng, is_snoop) = (begin.starts_with(&PCAPNG), begin.starts_with(&snoop::MAGIC));
        let records: Option<Box<dyn CaptureRecords + Send>> = match is_snoop {
            true => Snoop::open(file).map(|snoop| Box::new(snoop) as _),
            false => Blocks::open(file, is_pcapng).map(|blocks| Box::new(blocks) as _),
        };
        let records = records.ok_or_else(|| fate.error(0).unwrap_or(CaptureError::Unknown))?;
        Ok(Self {
            records,
            fate,
            local,
            found: None,
            frame: Vec::new(),
            packets: 0,
            framed: PacketCounts::new(),
            skipped: PacketCounts::new(),
        })
    }

    /// Continues to the next packet that a probe can get. Returns false at the end, also where the
    /// file ends within a packet: see [`Self::is_cut_off`].
    pub fn advance(&mut self) -> Result<bool, CaptureError> {
        self.found = None;
        loop {
            let Some(record) = self.records.next().map_err(|stop| self.error(stop))? else {
                return Ok(false);
            };
            self.packets += 1;
            let bytes = &self.records.data()[record.start..record.start + record.captured];
            match link::content(record.link, bytes, record.length) {
                Ok(LinkContent::Ethernet) => {
                    self.found = Some(FoundPacket {
                        record,
                        is_framed: false,
                    });
                }
                Ok(LinkContent::Framed(framed)) => self.add_header(record, &framed),
                Err(unfit) => {
                    let reason = unfit
                        .name()
                        .map_or_else(|| link::name(record.link), Cow::from);
                    *self.skipped.entry(reason).or_default() += 1;
                    continue;
                }
            }
            return Ok(true);
        }
    }

    /// Puts a header in front of the present packet.
    fn add_header(&mut self, record: CaptureRecord, framed: &Framed) {
        let bytes = &self.records.data()[record.start..record.start + record.captured];
        self.frame.clear();
        self.frame.extend(framed.header());
        self.frame.extend(&bytes[framed.payload.clone()]);
        *self.framed.entry(link::name(record.link)).or_default() += 1;
        let direction = record.direction.or(framed.direction);
        let record = CaptureRecord {
            direction,
            length: framed.length,
            ..record
        };
        self.found = Some(FoundPacket {
            record,
            is_framed: true,
        });
    }

    /// Returns the packet that [`Self::advance`] has reached.
    pub fn packet(&self) -> Option<Packet<'_>> {
        let FoundPacket { record, is_framed } = self.found.as_ref()?;
        let bytes = match is_framed {
            true => &self.frame[..],
            false => &self.records.data()[record.start..record.start + record.captured],
        };
        let direction = record.direction.or_else(|| match self.local.is_empty() {
            true => None,
            false => local::direction(&self.local, bytes),
        });
        Some(Packet {
            time_ns: record.time_ns,
            direction,
            length: record.length,
            bytes,
        })
    }

    /// Tells whether the file has ended within a packet.
    pub fn is_cut_off(&self) -> bool {
        self.records.is_cut_off() || self.fate.is_cut_off()
    }

    /// The packets so far that got an Ethernet header, by the kind of their link.
    pub const fn framed(&self) -> &PacketCounts {
        &self.framed
    }

    /// The packets so far that no probe can get, by the reason: a kind of link, or a fault of the
    /// packet.
    pub const fn skipped(&self) -> &PacketCounts {
        &self.skipped
    }

    fn error(&self, stop: Stop) -> CaptureError {
        let packets = self.packets;
        match stop {
            Stop::Damaged(what) => CaptureError::Damaged { packets, what },
            Stop::Unread => self.fate.error(packets).unwrap_or(CaptureError::Unknown),
        }
    }
}
