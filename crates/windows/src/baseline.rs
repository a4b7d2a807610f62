//! The base of the open window: the sums of all windows before it, and rows of the open window
//! outside of all maps.
//!
//! The newest window holds the sums. Before the commit of a replacement that is not enough: the
//! daemon writes a baseline in the layouts of the new deployment. The baseline counts for the
//! deployment with its serial, until the store has a window with its number. So a committed
//! replacement has its sums, and an uncommitted one leaves the sums of the old deployment
//! unchanged.

use std::borrow::Cow;
use std::io;

use serde::{Deserialize, Serialize};
use twinprobe_store::Durable;

use crate::body::content::Content;
use crate::body::draft::Body;
use crate::body::format::{self, BodyDigest, Encoder, FileHead, Unusable};
use crate::body::part::{BaselinePart, ages_as_rows, ages_of};
use crate::body::stored::WindowError;
use crate::rows::{self, Baseline, SqlTable};
use crate::windows::Windows;

/// The rows that the windows before the open window have left.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Base {
    /// The last window in the sums.
    pub through: u64,
    pub parts: Vec<BaselinePart>,
}

/// The reason why the base of the open window is not known. No window can be closed before the base
/// is known.
#[derive(Debug, thiserror::Error)]
#[error(
    "the sums of the windows so far can't be read, and nothing is overwritten until they can: {file}: {reason}"
)]
pub struct BaseError {
    file: String,
    reason: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct BaselineHead<'a> {
    probe: Cow<'a, str>,
    /// The number of the open window.
    seq: u64,
    /// The parts, in the order of the places that chunks of rows name. The places of the entries'
    /// ages come after the places of all parts.
    parts: Cow<'a, [BaselinePart]>,
}

impl FileHead for BaselineHead<'_> {
    const MAGIC: &'static [u8; 6] = b"tpbase";
    /// Version 1 had one metric for each map, version 2 no times by the wall clock, version 3 no
    /// sums of 128 bits.
    const VERSION: u8 = 4;

    fn tables(&self) -> usize {
        2 * self.parts.len()
    }
}

impl Windows {
    /// Writes the base of the open window `seq`, for the deployment with this serial.
    pub fn write_baseline(
        &self,
        (seq, serial): (u64, u64),
        parts: &[BaselinePart],
        durable: Durable,
    ) -> io::Result<()> {
        let probe = &*self.name;
        let head = BaselineHead {
            probe: probe.into(),
            seq,
            parts: parts.into(),
        };
        let mut encoder = Encoder::new(self.bodies.draft(), &head)?;
        for (place, part) in parts.iter().enumerate() {
            encoder.rows(place, &part.rows)?;
            encoder.rows(parts.len() + place, &ages_as_rows(&part.ages))?;
        }
        self.add_baseline((seq, serial), encoder.finish()?.0.finish()?, durable)
    }

    fn add_baseline(&self, key: (u64, u64), body: Body, durable: Durable) -> io::Result<()> {
        let turn = self.turn();
        let baseline = Baseline {
            id: body.id,
            bytes: body.bytes,
            is_file: body.content.is_none(),
        };
        let change = self.index.lock().add_baseline(key, baseline);
        self.finish(self.submit(turn, change, Some(body), durable))
    }

    /// Gives the baseline of serial `from` to serial `to` as well, although the baseline can't be
    /// read now.
    pub fn pass_baseline_on(&self, from: Option<u64>, to: u64) -> io::Result<()> {
        let Some(((seq, _), baseline)) = self.index.lock().baseline_of(from) else {
            return Ok(());
        };
        let mut draft = self.bodies.draft();
        self.baseline_content(&baseline)?.copy_to(&mut draft)?;
        self.add_baseline((seq, to), draft.finish()?, Durable::Soon)
    }

    /// Forgets the baseline of a deployment that was not committed.
    pub fn forget_baseline(&self, serial: u64) {
        self.forget_baselines(|_, other| other == serial);
    }

    /// Forgets the baselines of all deployments except the deployment with this serial.
    pub fn forget_other_baselines(&self, serial: u64) {
        self.forget_baselines(|_, other| other != serial);
    }

    fn forget_baselines(&self, is_gone: impl Fn(u64, u64) -> bool) {
        let turn = self.turn();
        let change = self.index.lock().forget_baselines(is_gone);
        // The next window removes the baselines that could not be removed now.
        let _ = self.change(turn, change, Durable::Soon);
    }

    /// Returns the base of the open window of the deployment with this serial, or of the newest
    /// deployment if the serial is not known; `None` if there is no base. A damaged base is
    /// reported, and the one before it is used.
    pub fn base(&self, serial: Option<u64>) -> Result<Option<Base>, BaseError> {
        loop {
            let baseline = self.index.lock().baseline_of(serial);
            if let Some((key, baseline)) = baseline {
                match self.read_baseline(key.0, &baseline) {
                    Ok(base) => return Ok(Some(base)),
                    Err(Unusable::Damaged(reason)) => {
                        let probe = &self.name;
                        tracing::error!(
                            probe,
                            seq = key.0,
                            reason,
                            "the baseline of a window is damaged"
                        );
                        self.forget_baselines(|seq, serial| (seq, serial) == key);
                        self.index.lock().baselines.remove(&key);
                        continue;
                    }
                    Err(error) => {
                        let file = format!("the baseline of window {}", key.0);
                        return Err(BaseError {
                            file,
                            reason: error.to_string(),
                        });
                    }
                }
            }
            let Some(newest) = self.newest() else {
                return Ok(None);
            };
            let read = newest.open().and_then(|reader| {
                let parts = reader.sums().map_err(WindowError::Io)?;
                Ok(Base {
                    through: newest.seq(),
                    parts,
                })
            });
            let reason = match read {
                Ok(base) => return Ok(Some(base)),
                // The window is damaged, and was set aside.
                Err(WindowError::Gone | WindowError::Damaged(_))
                    if self.newest().is_none_or(|now| now.id != newest.id) =>
                {
                    continue;
                }
                Err(WindowError::Io(error)) => error.to_string(),
                Err(error) => error.to_string(),
            };
            return Err(BaseError {
                file: format!("window {}", newest.seq()),
                reason,
            });
        }
    }

    fn baseline_content(&self, baseline: &Baseline) -> io::Result<Content> {
        if baseline.is_file {
            return self.bodies.open(baseline.id).map(Content::File);
        }
        let body = rows::body(&self.database, SqlTable::Baselines, baseline.id)?;
        body.map(Content::Bytes)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn read_baseline(&self, seq: u64, baseline: &Baseline) -> Result<Base, Unusable> {
        let content = self
            .baseline_content(baseline)
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => Unusable::Damaged("it is no longer there".to_owned()),
                _ => Unusable::Io(error),
            })?;
        let (head, chunks) = format::examine::<BaselineHead<'_>>(&content, BodyDigest::Unknown)?;
        if head.seq != seq {
            return Err(Unusable::Damaged(format!("it is of window {}", head.seq)));
        }
        let mut parts = head.parts.into_owned();
        let (rows, ages) = chunks.split_at(parts.len());
        for ((part, rows), ages) in parts.iter_mut().zip(rows).zip(ages) {
            part.through = seq - 1;
            part.rows = format::read_all(&content, rows)?;
            part.ages = ages_of(&format::read_all(&content, ages)?);
        }
        Ok(Base {
            through: seq - 1,
            parts,
        })
    }
}
