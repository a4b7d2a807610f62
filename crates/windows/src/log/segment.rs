//! The files of the log. A segment is a block with a head, and blocks of records after it. There are two segments: while
//! one is written to, the windows in the other become durable by themselves.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::log::record::{BLOCK, Record};

/// The number of segments.
pub const SEGMENTS: usize = 2;
/// The size of a full segment in bytes.
pub const FULL: u64 = 16 << 20;
/// The size by which a segment grows in bytes. Its blocks are written once before records come to them: a sync of
/// blocks that the file system knows writes nothing but these.
const STEP: u64 = 1 << 20;
const MAGIC: &[u8; 8] = b"tplogs01";
/// The longest identity of a boot that fits into a head, in bytes.
const BOOT: usize = 64;

/// The head of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHead {
    /// The number of the segment among all that were ever begun.
    pub generation: u64,
    /// The identity of the boot at which the segment was begun.
    pub boot: String,
}

/// Returns the path of a segment. No probe's name begins with a dot.
pub fn path(root: &Path, place: usize) -> PathBuf {
    root.join(format!(".log-{place}"))
}

/// Writes blocks and returns once they are on disk. `head` begins the segment anew.
pub fn write(
    root: &Path,
    place: usize,
    head: Option<&SegmentHead>,
    at: u64,
    blocks: &[u8],
) -> io::Result<()> {
    // The file is opened for each write, so that the file system can become read-only.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path(root, place))?;
    let length = file.metadata()?.len();
    let end = at + blocks.len() as u64;
    if end > length {
        // Block by block: the kernel may keep what one call writes in one page, and would go through a page of a mebibyte
        // for each block that is written later.
        for at in (length..end.next_multiple_of(STEP)).step_by(BLOCK) {
            file.write_all_at(&[0; BLOCK], at)?;
        }
    }
    if let Some(head) = head {
        file.write_all_at(&encode(head), 0)?;
    }
    file.write_all_at(blocks, at)?;
    if end > length {
        file.sync_all()?;
    } else {
        file.sync_data()?;
    }
    if length == 0 {
        File::open(root)?.sync_all()?;
    }
    Ok(())
}

/// Makes a segment one that was not begun; its blocks stay.
pub fn forget(root: &Path, place: usize) -> io::Result<()> {
    match OpenOptions::new().write(true).open(path(root, place)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        file => file.and_then(|file| {
            file.write_all_at(&[0; MAGIC.len()], 0)?;
            file.sync_data()
        }),
    }
}

/// Reads a segment; `None` if there is none, or none that was begun.
pub fn read(root: &Path, place: usize) -> io::Result<Option<(SegmentHead, Vec<u8>)>> {
    let bytes = match std::fs::read(path(root, place)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes?,
    };
    Ok(decode(&bytes).map(|head| (head, bytes)))
}

/// Returns the records of a segment that is not damaged, up to the end of what was written.
pub fn records<'a>(head: &SegmentHead, bytes: &'a [u8]) -> Vec<Record<'a>> {
    let mut found = Vec::new();
    let mut at = BLOCK;
    while at < bytes.len() {
        match Record::decode(&bytes[at..], head.generation) {
            Some((record, length)) => {
                found.push(record);
                at += length;
            }
            // The rest of a block is filled up.
            None if !at.is_multiple_of(BLOCK) => at = at.next_multiple_of(BLOCK),
            None => break,
        }
    }
    found
}

fn encode(head: &SegmentHead) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&head.generation.to_le_bytes());
    let boot = &head.boot.as_bytes()[..head.boot.len().min(BOOT)];
    bytes.extend_from_slice(&(boot.len() as u64).to_le_bytes());
    bytes.extend_from_slice(boot);
    bytes.resize(24 + BOOT, 0);
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest);
    bytes.resize(BLOCK, 0);
    bytes
}

fn decode(bytes: &[u8]) -> Option<SegmentHead> {
    let (head, digest) = bytes.get(..24 + BOOT + 32)?.split_at(24 + BOOT);
    if head[..8] != *MAGIC || Sha256::digest(head)[..] != *digest {
        return None;
    }
    let number = |at: usize| head[at..at + 8].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
    let length = usize::try_from(number(16)).ok()?;
    let boot = str::from_utf8(head[24..].get(..length)?).ok()?.to_owned();
    Some(SegmentHead { generation: number(8), boot })
}
