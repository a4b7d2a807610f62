//! The base of the open window: the sums of all windows before it, and rows that belong to the open window and are in
//! no map.
//!
//! The newest window holds the sums. A baseline is written where the newest window is not enough: before a replacement
//! is committed, in the layouts of the new deployment, as `SEQ.SERIAL.baseline`. The baseline counts for the deployment
//! with this serial, until the file of window SEQ exists. So a committed replacement has its sums, and a replacement
//! that is not committed leaves the sums of the old deployment as they are.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter};

use serde::{Deserialize, Serialize};

use crate::file::format::{self, Encoder, FileHead, Unusable};
use crate::file::part::{Part, ages_as_rows, ages_of};
use crate::file::stored::WindowError;
use crate::windows::Windows;

/// The rows that the windows before the open one have left.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Base {
    /// The last window in the sums.
    pub through: u64,
    pub parts: Vec<Part>,
}

/// The reason why the base of the open window is not known. No window can be closed before the base is known.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    #[error(
        "the sums of the windows so far can't be read, and nothing is overwritten until they can: {file}: {reason}"
    )]
    Unreadable { file: String, reason: String },
    #[error("{0}")]
    Blocked(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct BaselineHead<'a> {
    probe: Cow<'a, str>,
    /// The number of the open window.
    seq: u64,
    /// The parts, in the order of the places that chunks of rows name. The ages of the entries have the places after
    /// those of all parts.
    parts: Cow<'a, [Part]>,
}

impl FileHead for BaselineHead<'_> {
    const MAGIC: &'static [u8; 6] = b"tpbase";
    /// Version 1 had one metric for each map.
    const VERSION: u8 = 2;

    fn tables(&self) -> usize {
        2 * self.parts.len()
    }
}

impl Windows {
    /// Writes the base of the open window `seq` to disk, for the deployment with this serial.
    pub fn write_baseline(&self, probe: &str, seq: u64, serial: u64, parts: &[Part]) -> io::Result<()> {
        self.expect_open()?;
        let _turn = self.changes.lock();
        let head = BaselineHead { probe: probe.into(), seq, parts: parts.into() };
        let mut encoder = Encoder::new(BufWriter::new(self.directory.create()?), &head)?;
        for (place, part) in parts.iter().enumerate() {
            encoder.rows(place, &part.rows)?;
            encoder.rows(parts.len() + place, &ages_as_rows(&part.ages))?;
        }
        let file = encoder.finish()?.0.into_inner().map_err(io::IntoInnerError::into_error)?;
        self.directory.publish_baseline(file, seq, serial)?;
        self.index.lock().baselines.insert((seq, serial));
        self.weigh();
        Ok(())
    }

    /// Gives the baseline of serial `from` to serial `to` as well, although the baseline can't be read now.
    pub fn pass_baseline_on(&self, from: Option<u64>, to: u64) -> io::Result<()> {
        let _turn = self.changes.lock();
        let Some((seq, from)) = self.index.lock().baseline_of(from) else { return Ok(()) };
        self.directory.link_baseline(seq, from, to)?;
        self.index.lock().baselines.insert((seq, to));
        self.weigh();
        Ok(())
    }

    /// Forgets the baseline of a deployment that was not committed.
    pub fn forget_baseline(&self, serial: u64) {
        let _turn = self.changes.lock();
        self.forget_baselines(|_, other| other == serial);
    }

    /// Forgets the baselines of all deployments but the one with this serial.
    pub fn forget_other_baselines(&self, serial: u64) {
        let _turn = self.changes.lock();
        self.forget_baselines(|_, other| other != serial);
    }

    /// Forgets the baselines that are needless because window `seq` has a file. The caller holds `changes`.
    pub fn forget_old_baselines(&self, seq: u64) {
        self.forget_baselines(|of, _| of <= seq);
    }

    fn forget_baselines(&self, is_gone: impl Fn(u64, u64) -> bool) {
        let mut gone = Vec::new();
        self.index.lock().baselines.retain(|&(seq, serial)| {
            let gone_too = is_gone(seq, serial);
            gone.extend(gone_too.then_some((seq, serial)));
            !gone_too
        });
        if !gone.is_empty() {
            gone.into_iter().for_each(|(seq, serial)| self.directory.remove_baseline(seq, serial));
            self.weigh();
        }
    }

    /// Returns the base of the open window of the deployment with this serial, or of the newest deployment if the
    /// serial is not known; `None` if there is no base. A damaged file is set aside and reported, and the file before
    /// it is used.
    pub fn base(&self, serial: Option<u64>) -> Result<Option<Base>, BaseError> {
        self.expect_open().map_err(|error| BaseError::Blocked(error.to_string()))?;
        loop {
            let unreadable = self.index.lock().newest_unreadable().map(|(seq, _)| seq);
            unreadable.into_iter().for_each(|seq| self.look_again(seq));
            let baseline = self.index.lock().baseline_of(serial);
            if let Some((seq, serial)) = baseline {
                match self.read_baseline(seq, serial) {
                    Ok(base) => return Ok(Some(base)),
                    Err(Unusable::Damaged(reason)) => {
                        let path = self.directory.baseline(seq, serial);
                        let path = path.display();
                        tracing::error!(%path, reason, "the baseline of a window is damaged and set aside");
                        self.directory.set_baseline_aside(seq, serial);
                        self.index.lock().baselines.remove(&(seq, serial));
                        let _turn = self.changes.lock();
                        self.weigh();
                        continue;
                    }
                    Err(error) => {
                        let file = self.directory.baseline(seq, serial).display().to_string();
                        return Err(BaseError::Unreadable { file, reason: error.to_string() });
                    }
                }
            }
            let index = self.index.lock();
            if let Some((seq, reason)) = index.newest_unreadable() {
                let (file, reason) = (format!("window {seq}"), reason.to_owned());
                return Err(BaseError::Unreadable { file, reason });
            }
            let Some(newest) = index.newest().cloned() else { return Ok(None) };
            drop(index);
            let read = newest.open().and_then(|reader| {
                let parts = reader.sums().map_err(WindowError::Io)?;
                Ok(Base { through: newest.seq(), parts })
            });
            let reason = match read {
                Ok(base) => return Ok(Some(base)),
                // The window was set aside.
                Err(WindowError::Gone | WindowError::Damaged(_)) => continue,
                Err(WindowError::Io(error)) => error.to_string(),
                Err(WindowError::Newer(reason)) => reason,
            };
            return Err(BaseError::Unreadable { file: format!("window {}", newest.seq()), reason });
        }
    }

    fn read_baseline(&self, seq: u64, serial: u64) -> Result<Base, Unusable> {
        let file = File::open(self.directory.baseline(seq, serial))?;
        let (head, chunks) = format::examine::<BaselineHead<'_>>(&file)?;
        if head.seq != seq {
            return Err(Unusable::Damaged(format!("it is of window {}", head.seq)));
        }
        let mut parts = head.parts.into_owned();
        let (rows, ages) = chunks.split_at(parts.len());
        for ((part, rows), ages) in parts.iter_mut().zip(rows).zip(ages) {
            part.through = seq - 1;
            part.rows = format::read_all(&file, rows)?;
            part.ages = ages_of(&format::read_all(&file, ages)?);
        }
        Ok(Base { through: seq - 1, parts })
    }
}
