//! The place of a body: the store, or a file.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;

/// A body in memory, as the store has given it, or in a file of its own.
#[derive(Debug)]
pub enum Content {
    Bytes(Vec<u8>),
    File(File),
}

impl Content {
    /// The length in bytes.
    pub fn len(&self) -> io::Result<u64> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.len() as u64),
            Self::File(file) => Ok(file.metadata()?.len()),
        }
    }

    /// Writes the whole body to `out`.
    pub fn copy_to(&self, out: &mut impl io::Write) -> io::Result<()> {
        match self {
            Self::Bytes(bytes) => out.write_all(bytes),
            Self::File(file) => io::copy(&mut &*file, out).map(drop),
        }
    }

    /// Reads the whole body.
    pub fn into_memory(self) -> io::Result<Self> {
        let Self::File(mut file) = self else {
            return Ok(self);
        };
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(length);
        file.seek(SeekFrom::Start(0))?;
        file.take(length as u64).read_to_end(&mut bytes)?;
        Ok(Self::Bytes(bytes))
    }

    /// Returns a part of a body that is in memory; `None` if the body is not in memory, or does not
    /// have this part.
    pub fn part(&self, offset: u64, length: u64) -> Option<&[u8]> {
        let Self::Bytes(bytes) = self else {
            return None;
        };
        let (from, length) = (usize::try_from(offset).ok()?, usize::try_from(length).ok()?);
        bytes.get(from..)?.get(..length)
    }

    /// Fills `out` from `offset` on. Fails with `UnexpectedEof` if the body ends earlier.
    pub fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Bytes(bytes) => {
                let from = usize::try_from(offset)
                    .ok()
                    .and_then(|from| bytes.get(from..));
                let part = from
                    .and_then(|rest| rest.get(..out.len()))
                    .ok_or(io::ErrorKind::UnexpectedEof)?;
                out.copy_from_slice(part);
                Ok(())
            }
            Self::File(file) => file.read_exact_at(out, offset),
        }
    }
}
