//! The reader of snoop files, which Solaris writes (RFC 1761).

use std::io::{self, ErrorKind, Read};

use crate::error::Stop;
use crate::format::record::{CaptureLink, CaptureRecord, CaptureRecords, LONGEST};

pub const MAGIC: [u8; 8] = *b"snoop\0\0\0";
/// The size of a file's head and of a packet's head, in bytes.
const FILE_HEAD: usize = 16;
const PACKET_HEAD: usize = 24;
/// The two numbers of Ethernet: with a length in its header, and with a type. Today both are the
/// same format.
const ETHERNET: [u32; 2] = [0, 4];
/// The link type of Ethernet in other formats.
const ETHERNET_TYPE: i32 = 1;
/// The most bytes that follow a packet to fill up its record.
const FILLING: usize = 64 << 10;

/// A snoop file.
pub struct Snoop<R> {
    file: R,
    link: CaptureLink,
    bytes: Vec<u8>,
    cut_off: bool,
}

impl<R: Read> Snoop<R> {
    /// Reads the head of a file; `None` if it has no such head.
    pub fn open(mut file: R) -> Option<Self> {
        let mut head = [0; FILE_HEAD];
        file.read_exact(&mut head).ok()?;
        let kind = word(&head, 12);
        let link = if ETHERNET.contains(&kind) {
            CaptureLink::Type(ETHERNET_TYPE)
        } else {
            CaptureLink::Snoop(kind)
        };
        Some(Self {
            file,
            link,
            bytes: Vec::new(),
            cut_off: false,
        })
    }

    /// Reads this many bytes. Returns false at the end of the file.
    fn read(&mut self, wanted: usize) -> Result<bool, Stop> {
        self.bytes.resize(wanted, 0);
        match self.file.read_exact(&mut self.bytes) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(_) => Err(Stop::Unread),
        }
    }
}

impl<R: Read> CaptureRecords for Snoop<R> {
    fn next(&mut self) -> Result<Option<CaptureRecord>, Stop> {
        let mut first = [0];
        match read_some(&mut self.file, &mut first) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(_) => return Err(Stop::Unread),
        }
        self.cut_off = true;
        if !self.read(PACKET_HEAD - 1)? {
            return Ok(None);
        }
        let head: Vec<u8> = first.into_iter().chain(self.bytes.drain(..)).collect();
        let (length, captured, record) = (
            word(&head, 0),
            word(&head, 4) as usize,
            word(&head, 8) as usize,
        );
        if captured > LONGEST {
            let what = format!("the next one claims {captured} bytes, and the limit is {LONGEST}");
            return Err(Stop::Damaged(what));
        }
        let Some(size) = record
            .checked_sub(PACKET_HEAD)
            .filter(|size| (captured..=captured + FILLING).contains(size))
        else {
            let what = format!("the next one has {captured} bytes in a record of {record}");
            return Err(Stop::Damaged(what));
        };
        if !self.read(size)? {
            return Ok(None);
        }
        self.cut_off = false;
        let (seconds, micros) = (word(&head, 16), word(&head, 20));
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(micros) * 1000;
        Ok(Some(CaptureRecord {
            time_ns,
            direction: None,
            length,
            link: self.link,
            start: 0,
            captured,
        }))
    }

    fn data(&self) -> &[u8] {
        &self.bytes
    }

    fn is_cut_off(&self) -> bool {
        self.cut_off
    }
}

fn read_some(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(|bytes| bytes.first_chunk())
        .map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
