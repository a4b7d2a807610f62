//! Captures in the format of libpcap, as scapy writes them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::directory;

/// The number at the beginning of a capture with microseconds, written by a little-endian machine.
const MAGIC: u32 = 0xa1b2_c3d4;
/// The link type of Ethernet.
const ETHERNET: u32 = 1;

/// A packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The time since the epoch, in microseconds.
    pub time: u64,
    pub bytes: Vec<u8>,
}

/// Returns the path of the capture for this direction: `egress.pcap` if it exists, else
/// `capture.pcap`.
pub fn of_direction(probe: &str, direction: &str) -> PathBuf {
    let folder = directory().join(probe);
    let own = folder.join("egress.pcap");
    if direction == "egress" && own.is_file() {
        own
    } else {
        folder.join("capture.pcap")
    }
}

/// Reads a capture.
pub fn read_capture(path: &Path) -> Result<Vec<Packet>> {
    let file = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let word = |at: usize| -> Result<u32> {
        let bytes = file
            .get(at..at + 4)
            .with_context(|| format!("{} is cut off", path.display()))?;
        Ok(u32::from_le_bytes(bytes.try_into()?))
    };
    ensure!(
        word(0)? == MAGIC && word(20)? == ETHERNET,
        "{} is another format",
        path.display()
    );
    let (mut packets, mut at) = (Vec::new(), 24);
    while at < file.len() {
        let length = word(at + 8)? as usize;
        let bytes = file
            .get(at + 16..at + 16 + length)
            .with_context(|| format!("{} is cut off", path.display()))?;
        let time = u64::from(word(at)?) * 1_000_000 + u64::from(word(at + 4)?);
        packets.push(Packet {
            time,
            bytes: bytes.to_vec(),
        });
        at += 16 + length;
    }
    Ok(packets)
}
