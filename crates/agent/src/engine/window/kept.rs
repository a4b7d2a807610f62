//! Rows of live maps that an answer needs again. A file without a name keeps them while they are
//! read for the first time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use twinprobe_ebpf_common::RawTable;

use crate::store::spool::{Spool, Spools};

/// The file of one answer, which contains one table after the other. Only one of the tables is read
/// at a time.
#[derive(Debug)]
pub struct Keeper {
    spools: Spools,
    /// The place for the next table; `None` while a table is being read, and before the first one.
    free: Option<Keeping>,
}

/// The end of the file, where a table is written: chunks of rows, each with its length in bytes
/// before it.
#[derive(Debug)]
pub struct Keeping {
    spool: Spool,
    file: Arc<File>,
    /// The offset at which the table begins.
    from: u64,
    /// The offset at which the written part ends.
    to: u64,
    chunk: Vec<u8>,
}

/// All rows of a table.
#[derive(Clone, Debug)]
pub struct Kept {
    file: Arc<File>,
    from: u64,
    to: u64,
}

/// The number of bytes of a number in the file.
const NUMBER: usize = 8;

impl Keeper {
    pub const fn new(spools: Spools) -> Self {
        Self { spools, free: None }
    }

    /// Returns a place for a table; `None` if there is no room for a table.
    pub fn place(&mut self) -> Option<Keeping> {
        self.free
            .take()
            .or_else(|| Keeping::new(self.spools.create().ok()?).ok())
    }

    /// Takes back the place after its table has been written.
    pub fn give_back(&mut self, place: Keeping) {
        self.free = Some(place);
    }
}

impl Keeping {
    fn new(spool: Spool) -> io::Result<Self> {
        let file = Arc::new(spool.reader()?);
        Ok(Self {
            spool,
            file,
            from: 0,
            to: 0,
            chunk: Vec::new(),
        })
    }

    /// Adds rows to the table.
    pub fn add(&mut self, rows: &RawTable) -> io::Result<()> {
        self.chunk.clear();
        self.chunk.extend_from_slice(&[0; NUMBER]);
        write(rows, &mut self.chunk);
        let bytes = (self.chunk.len() - NUMBER) as u64;
        self.chunk[..NUMBER].copy_from_slice(&bytes.to_le_bytes());
        self.spool.write(&self.chunk)?;
        self.to += self.chunk.len() as u64;
        Ok(())
    }

    /// Ends the table.
    pub fn finish(&mut self) -> Kept {
        let from = std::mem::replace(&mut self.from, self.to);
        Kept {
            file: Arc::clone(&self.file),
            from,
            to: self.to,
        }
    }
}

impl Kept {
    /// Reads the next chunk, and moves the beginning behind this chunk; `None` at the end.
    pub async fn chunk(&mut self) -> io::Result<Option<Arc<RawTable>>> {
        let mut rest = self.clone();
        let read = move || rest.read().map(|rows| (rows, rest));
        let (rows, rest) = tokio::task::spawn_blocking(read)
            .await
            .map_err(io::Error::other)??;
        *self = rest;
        Ok(rows.map(Arc::new))
    }

    fn read(&mut self) -> io::Result<Option<RawTable>> {
        if self.from >= self.to {
            return Ok(None);
        }
        let mut bytes = [0; NUMBER];
        self.file.read_exact_at(&mut bytes, self.from)?;
        let len = u64::from_le_bytes(bytes);
        let mut chunk = vec![0; len as usize];
        self.file
            .read_exact_at(&mut chunk, self.from + NUMBER as u64)?;
        self.from += NUMBER as u64 + len;
        let rows = read(&mut &chunk[..]).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some(rows))
    }
}

/// Appends rows: the number of bytes of keys and of values, the number of inner tables, and then
/// all three.
fn write(rows: &RawTable, out: &mut Vec<u8>) {
    for len in [rows.keys.len(), rows.values.len(), rows.inner.len()] {
        out.extend_from_slice(&(len as u64).to_le_bytes());
    }
    out.extend_from_slice(&rows.keys);
    out.extend_from_slice(&rows.values);
    rows.inner.iter().for_each(|inner| write(inner, out));
}

/// Takes rows from the beginning of `bytes`; `None` if the rows are incomplete.
fn read(bytes: &mut &[u8]) -> Option<RawTable> {
    let mut take = |len: usize| bytes.split_off(..len);
    let mut number = || Some(u64::from_le_bytes(take(NUMBER)?.try_into().ok()?) as usize);
    let (keys, values, inner) = (number()?, number()?, number()?);
    let (keys, values) = (take(keys)?.to_vec(), take(values)?.to_vec());
    let inner = (0..inner).map(|_| read(bytes)).collect::<Option<_>>()?;
    Some(RawTable {
        keys,
        values,
        inner,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(keys: &[u8], values: &[u8], inner: Vec<RawTable>) -> RawTable {
        RawTable {
            keys: keys.to_vec(),
            values: values.to_vec(),
            inner,
        }
    }

    #[tokio::test]
    async fn rows_are_the_same_each_time() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let tables = [
            vec![
                rows(
                    &[1, 2],
                    &[10, 20],
                    vec![rows(&[3], &[4], Vec::new()), RawTable::default()],
                ),
                RawTable::default(),
            ],
            Vec::new(),
            vec![rows(&[], &[7; 300_000], Vec::new())],
        ];
        let mut keeping = Keeping::new(Spool::create(directory.path(), 0)?)?;
        let mut kept = Vec::new();
        for table in &tables {
            table.iter().try_for_each(|chunk| keeping.add(chunk))?;
            kept.push(keeping.finish());
        }
        for _ in 0..2 {
            for (table, kept) in tables.iter().zip(&kept) {
                let mut kept = kept.clone();
                for chunk in table {
                    assert_eq!(kept.chunk().await?.as_deref(), Some(chunk));
                }
                assert_eq!(kept.chunk().await?, None);
            }
        }
        Ok(())
    }
}
