//! The bytes of a window's body and of a baseline's:
//!
//! | bytes | |
//! |---|---|
//! | 6, 2 | magic, version (two digits) |
//! | 8, n | length of the head, the head as JSON |
//! | 1, 4, 8, n | for each chunk of rows: tag, place of its metric, length, table |
//! | 1, 8 | end: tag, number of chunks |
//! | 32 | SHA-256 of all before it |
//!
//! A table is the lengths of its keys and values and the number of its inner tables (8 bytes each),
//! then these three. Numbers are little-endian. A reader compares the digest before it uses any
//! other content. Every version begins with the magic and ends with the digest, so a reader
//! distinguishes a file of a later version from a damaged one.

use std::io::{self, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use twinprobe_ebpf_common::RawTable;

use crate::body::content::Content;

const DIGEST: u64 = 32;
const CHUNK: u8 = 1;
const END: u8 = 0;
const CHUNK_HEAD: u64 = 1 + 4 + 8;
const TABLE_HEAD: usize = 3 * 8;
/// The deepest nesting of tables that is read. The kernel has maps in maps, and no third level.
const MAX_NESTING: usize = 4;
/// The number of bytes that are read and digested at once.
const PIECE: usize = 256 * 1024;

/// The head of a kind of file, which comes before the rows.
pub trait FileHead: Serialize + DeserializeOwned {
    /// The first six bytes of the file.
    const MAGIC: &'static [u8; 6];
    /// The version of the files that are written; files of earlier versions are read.
    const VERSION: u8;

    /// The version that a file with this head is written as.
    fn version(&self) -> u8 {
        Self::VERSION
    }

    /// The number of tables that the rows can belong to.
    fn tables(&self) -> usize;
}

/// Writes a file and computes its digest.
#[derive(Debug)]
pub struct Encoder<W> {
    out: W,
    digest: Sha256,
    tables: usize,
    chunks: u64,
    length: u64,
}

/// The position of a chunk's table in a file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSpan {
    offset: u64,
    length: u64,
}

/// The reason why a file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error("{0}")]
    Damaged(String),
    #[error(
        "it has format {0}, and this version of twinprobe knows formats up to {1}; use a later one"
    )]
    Newer(u8, u8),
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            damaged("it ends too early")
        } else {
            Self::Io(error)
        }
    }
}

fn damaged(reason: impl Into<String>) -> Unusable {
    Unusable::Damaged(reason.into())
}

impl<W: Write> Encoder<W> {
    /// Writes the head.
    pub fn new<H: FileHead>(out: W, head: &H) -> io::Result<Self> {
        let mut encoder = Self {
            out,
            digest: Sha256::new(),
            tables: head.tables(),
            chunks: 0,
            length: 0,
        };
        let (version, head) = (head.version(), serde_json::to_vec(head)?);
        encoder.write(H::MAGIC)?;
        encoder.write(format!("{version:02}").as_bytes())?;
        encoder.write(&(head.len() as u64).to_le_bytes())?;
        encoder.write(&head)?;
        Ok(encoder)
    }

    /// Writes a chunk of rows for the table at `place`. Fails with `InvalidInput` if the head has
    /// no such table.
    pub fn rows(&mut self, place: usize, table: &RawTable) -> io::Result<()> {
        if place >= self.tables {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the head has no such metric",
            ));
        }
        self.write(&[CHUNK])?;
        self.write(&(place as u32).to_le_bytes())?;
        self.write(&size(table).to_le_bytes())?;
        self.table(table)?;
        self.chunks += 1;
        Ok(())
    }

    /// Writes the end and the digest. Returns the writer and the length of the file in bytes.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        self.write(&[END])?;
        self.write(&self.chunks.to_le_bytes())?;
        let digest = self.digest.finalize();
        self.out.write_all(&digest)?;
        self.out.flush()?;
        Ok((self.out, self.length + DIGEST))
    }

    fn table(&mut self, table: &RawTable) -> io::Result<()> {
        for length in [table.keys.len(), table.values.len(), table.inner.len()] {
            self.write(&(length as u64).to_le_bytes())?;
        }
        self.write(&table.keys)?;
        self.write(&table.values)?;
        table.inner.iter().try_for_each(|inner| self.table(inner))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.length += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

/// Returns the size of a table in a file, in bytes.
fn size(table: &RawTable) -> u64 {
    let own = (TABLE_HEAD + table.keys.len() + table.values.len()) as u64;
    own + table.inner.iter().map(size).sum::<u64>()
}

/// The state of a body's digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyDigest {
    /// The digest must be compared.
    Unknown,
    /// The digest was compared, and the file has not changed since.
    Compared,
}

/// Reads the whole file once, compares its digest, and finds the positions of its parts. Returns
/// the head and, for each table, its chunks in the order in which they were written; the rows stay
/// in the file.
pub fn examine<H: FileHead>(
    file: &Content,
    digest: BodyDigest,
) -> Result<(H, Vec<Vec<ChunkSpan>>), Unusable> {
    let length = file.len()?;
    let end = length
        .checked_sub(DIGEST)
        .ok_or_else(|| damaged("it ends too early"))?;
    match digest {
        BodyDigest::Unknown => compare_digest(file, end)?,
        BodyDigest::Compared => {}
    }
    let magic = take(file, 0, 8, end)?;
    let version = magic
        .strip_prefix(H::MAGIC)
        .and_then(|digits| str::from_utf8(digits).ok());
    match version.and_then(|digits| digits.parse::<u8>().ok()) {
        Some(version) if version > H::VERSION => return Err(Unusable::Newer(version, H::VERSION)),
        Some(1..) => {}
        _ => return Err(damaged("its content does not fit its name")),
    }
    let head_length = number(&take(file, 8, 8, end)?);
    let head: H = parse_head(&take(file, 16, head_length, end)?)?;
    let mut chunks = vec![Vec::new(); head.tables()];
    let mut at = 16 + head_length;
    let mut count = 0_u64;
    while take(file, at, 1, end)? == [CHUNK] {
        let record = take(file, at, CHUNK_HEAD, end)?;
        let metric = u32::from_le_bytes([record[1], record[2], record[3], record[4]]);
        let place = ChunkSpan {
            offset: at + CHUNK_HEAD,
            length: number(&record[5..]),
        };
        let places = chunks
            .get_mut(metric as usize)
            .ok_or_else(|| damaged("it has rows of no metric"))?;
        places.push(place);
        count += 1;
        at = place
            .offset
            .checked_add(place.length)
            .ok_or_else(|| damaged("a chunk is too long"))?;
    }
    let last = take(file, at, 9, end)?;
    if last[0] != END || number(&last[1..]) != count || at + 9 != end {
        return Err(damaged("its chunks differ from the written ones"));
    }
    Ok((head, chunks))
}

/// Reads the table at `place` of a file that was examined.
pub fn read_table(file: &Content, place: ChunkSpan) -> io::Result<RawTable> {
    let mut read = Vec::new();
    let mut rest = match file.part(place.offset, place.length) {
        Some(part) => part,
        None => {
            read.resize(usize::try_from(place.length).map_err(io::Error::other)?, 0);
            file.read_exact_at(&mut read, place.offset)?;
            &read[..]
        }
    };
    let table = parse_table(&mut rest, MAX_NESTING).filter(|_| rest.is_empty());
    table.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a chunk of rows is damaged"))
}

/// Returns the keys and values of the table at `place` of a file that is in memory; `None` if the
/// file is not in memory, or if the table contains other tables.
pub fn flat_table(file: &Content, place: ChunkSpan) -> Option<(&[u8], &[u8])> {
    let mut rest = file.part(place.offset, place.length)?;
    let mut lengths = [0_usize; 3];
    for length in &mut lengths {
        *length = usize::try_from(number(rest.split_off(..8)?)).ok()?;
    }
    let [keys, values, inner] = lengths;
    let (keys, values) = (rest.split_off(..keys)?, rest.split_off(..values)?);
    (inner == 0 && rest.is_empty()).then_some((keys, values))
}

/// Reads the tables at `places` as one table.
pub fn read_all(file: &Content, places: &[ChunkSpan]) -> io::Result<RawTable> {
    let Some((first, rest)) = places.split_first() else {
        return Ok(RawTable::default());
    };
    let mut table = read_table(file, *first)?;
    for &place in rest {
        table.append(&read_table(file, place)?);
    }
    Ok(table)
}

fn compare_digest(file: &Content, end: u64) -> Result<(), Unusable> {
    let mut digest = Sha256::new();
    if let Some(all) = file.part(0, end) {
        digest.update(all);
        return expect_digest(file, end, digest);
    }
    let mut piece = vec![0; usize::try_from(end).map_or(PIECE, |end| end.min(PIECE))];
    let mut at = 0;
    while at < end {
        let wanted = usize::try_from(end - at).map_or(PIECE, |rest| rest.min(PIECE));
        file.read_exact_at(&mut piece[..wanted], at)?;
        digest.update(&piece[..wanted]);
        at += wanted as u64;
    }
    expect_digest(file, end, digest)
}

fn expect_digest(file: &Content, end: u64, digest: Sha256) -> Result<(), Unusable> {
    if take(file, end, DIGEST, end + DIGEST)?[..] == digest.finalize()[..] {
        Ok(())
    } else {
        Err(damaged("its digest is not that of its content"))
    }
}

/// Reads `length` bytes at `offset`. Fails if the bytes end after `end`, before memory is allocated
/// for a wrong length in the file.
fn take(file: &Content, offset: u64, length: u64, end: u64) -> Result<Vec<u8>, Unusable> {
    if offset.checked_add(length).is_none_or(|last| last > end) {
        return Err(damaged("a part of it is missing"));
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(|_| damaged("it is too long"))?];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn parse_head<H: FileHead>(bytes: &[u8]) -> Result<H, Unusable> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    // The head may be deeply nested. Its compared digest shows that it is unchanged.
    json.disable_recursion_limit();
    H::deserialize(&mut json).map_err(|error| damaged(format!("its head can't be read: {error}")))
}

fn parse_table(rest: &mut &[u8], nesting: usize) -> Option<RawTable> {
    let mut lengths = [0_usize; 3];
    for length in &mut lengths {
        *length = usize::try_from(number(rest.split_off(..8)?)).ok()?;
    }
    let [keys, values, inner] = lengths;
    let keys = rest.split_off(..keys)?.to_vec();
    let values = rest.split_off(..values)?.to_vec();
    if inner > rest.len() / TABLE_HEAD || (inner > 0 && nesting == 0) {
        return None;
    }
    let inner = (0..inner)
        .map(|_| parse_table(rest, nesting - 1))
        .collect::<Option<_>>()?;
    Some(RawTable {
        keys,
        values,
        inner,
    })
}
