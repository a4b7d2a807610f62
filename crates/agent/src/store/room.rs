//! The room on the disk that probes take beside their windows: configurations, revisions and
//! compiled sources. If there is too little room for a change, the oldest revisions are removed
//! first. If that is not enough, the daemon refuses the change.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use twinprobe_store::Connection;

use crate::limits::options::RequestLimits;
use crate::store::error::StoreError;
use crate::store::spool::room;
use crate::store::{REVISIONS, Store};

/// The size in bytes of a record without its configuration: the deployment, with the ids of its
/// maps.
const RECORD: u64 = 16 << 10;
/// The factor between the room that changes leave free and the room that windows leave free, so
/// that a disk full of configurations has room for windows.
const KEEP_FREE_TIMES: u64 = 2;

/// The rows and files that a change of a probe is about to add.
#[derive(Debug)]
pub struct WantedRoom<'a> {
    pub name: &'a str,
    pub revision: u64,
    /// The size of the configuration in bytes.
    pub config: u64,
    /// The compiled sources.
    pub objects: Vec<&'a [u8]>,
}

/// The revisions that are removed: for each probe, the number up to which all revisions are
/// removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dropped(pub BTreeMap<String, u64>);

#[derive(Debug, thiserror::Error)]
pub enum RoomError {
    #[error("{0}")]
    NoRoom(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the free room of the disk is not known")]
    Disk(#[from] io::Error),
}

/// The sizes of everything that is stored, without windows.
#[derive(Debug, Default)]
struct Used {
    /// The sizes of the revisions of each probe, the oldest first.
    revisions: BTreeMap<String, Vec<(u64, u64)>>,
    /// The sizes of other records, by the name of their probe.
    records: BTreeMap<String, u64>,
    objects: u64,
}

impl Used {
    fn all(&self) -> u64 {
        let revisions = self.revisions.values().flatten().map(|(_, bytes)| bytes);
        revisions.chain(self.records.values()).sum::<u64>() + self.objects
    }

    fn revisions_of(&self, name: &str) -> u64 {
        self.revisions
            .get(name)
            .into_iter()
            .flatten()
            .map(|(_, bytes)| bytes)
            .sum()
    }

    /// Removes the oldest revision of a probe, but never one of its `kept` newest revisions.
    /// Returns the number of the removed revision.
    fn drop_oldest(&mut self, name: &str, kept: usize) -> Option<(u64, u64)> {
        let revisions = self.revisions.get_mut(name)?;
        (revisions.len() > kept).then(|| revisions.remove(0))
    }

    /// Removes the revisions of a probe that are beyond the limit once the probe has the revision
    /// `newest`.
    fn drop_outdated(&mut self, name: &str, newest: u64) {
        while let Some(oldest) = self
            .revisions
            .get(name)
            .and_then(|revisions| revisions.first())
            && oldest.0 <= newest.saturating_sub(REVISIONS)
        {
            self.drop_oldest(name, 0);
        }
    }

    /// Returns the probe whose earlier revisions take the most room. The newest revision of a probe
    /// does not count, because it runs. For the probe `own`, which gets a new revision now, all
    /// revisions count.
    fn largest(&self, own: &str) -> Option<String> {
        let earlier = |(name, revisions): (&String, &Vec<(u64, u64)>)| {
            let kept = usize::from(name != own);
            let earlier = revisions.len().saturating_sub(kept);
            (earlier > 0).then(|| {
                (
                    revisions[..earlier]
                        .iter()
                        .map(|(_, bytes)| bytes)
                        .sum::<u64>(),
                    name.clone(),
                )
            })
        };
        self.revisions
            .iter()
            .filter_map(earlier)
            .max()
            .map(|(_, name)| name)
    }
}

impl Store {
    /// Finds the revisions that must be removed to make room for a change, within
    /// `--max-stored-bytes` and on the disk. This function changes nothing, and nothing else may
    /// change during the call.
    pub fn find_room(
        &self,
        wanted: &WantedRoom<'_>,
        limits: &RequestLimits,
    ) -> Result<Dropped, RoomError> {
        let (name, limit) = (wanted.name, limits.max_stored_bytes);
        let mut used = self.used()?;
        let rows = 2 * wanted.config + RECORD;
        let objects: u64 = wanted.objects.iter().map(|elf| elf.len() as u64).sum();
        let mut dropped = Dropped::default();
        // Revisions beyond the limit are removed in any case.
        used.drop_outdated(name, wanted.revision);
        let own = rows + objects;
        while own.saturating_add(used.revisions_of(name)) > limit.each {
            let Some((revision, _)) = used.drop_oldest(name, 0) else {
                return Err(RoomError::NoRoom(format!(
                    "the configuration, its revision and its compiled sources take {own} bytes; --max-stored-bytes allows {} for each \
                     probe: make the sources smaller",
                    limit.each
                )));
            };
            dropped.0.insert(name.to_owned(), revision);
        }
        used.records.remove(name);
        let new: u64 = wanted
            .objects
            .iter()
            .filter(|elf| !self.has_object(elf))
            .map(|elf| elf.len() as u64)
            .sum();
        while (rows + new).saturating_add(used.all()) > limit.all {
            let largest = used.largest(name);
            let oldest = largest.and_then(|name| Some((used.drop_oldest(&name, 0)?.0, name)));
            let Some((revision, of)) = oldest else {
                return Err(RoomError::NoRoom(format!(
                    "the configuration, its revision and its compiled sources take {} bytes and those of all others {}; \
                     --max-stored-bytes allows {} in all: remove a probe that is not needed",
                    rows + new,
                    used.all(),
                    limit.all
                )));
            };
            dropped.0.insert(of, revision);
        }
        // Removals of the same change leave room in the file.
        let mut freed = 0;
        loop {
            match self.expect_room(rows, new, freed, limits.keep_free_bytes)? {
                None => return Ok(dropped),
                Some(message) => match used.drop_oldest(name, 0) {
                    Some((revision, bytes)) => {
                        freed += bytes;
                        dropped.0.insert(name.to_owned(), revision);
                    }
                    None => return Err(RoomError::NoRoom(message)),
                },
            }
        }
    }

    /// Returns the reason why the disk has no room for rows and files of these sizes; `None` if it
    /// has room. `freed` is the size of the rows that the same change removes.
    fn expect_room(
        &self,
        rows: u64,
        files: u64,
        freed: u64,
        keep_free: u64,
    ) -> io::Result<Option<String>> {
        let room = room(&self.state_dir, keep_free)?;
        let keep = room.keep_free.saturating_mul(KEEP_FREE_TIMES);
        // Rows go to the log, which keeps its largest size so far, and then to the file.
        let log = fs::metadata(self.database.log()).map_or(0, |log| log.len());
        let reused = self.database.unused().saturating_add(freed);
        let needed = rows.saturating_sub(log) + rows.saturating_sub(reused) + files;
        Ok((room.free < needed.saturating_add(keep)).then(|| {
            format!(
                "No space left on device: {} bytes are free, the change needs {needed}, and {keep} stay free for windows, twice \
                 what --keep-free-bytes says: make room on the disk of --state-dir, or remove a probe that is not needed",
                room.free
            )
        }))
    }

    fn used(&self) -> Result<Used, StoreError> {
        let mut used = self.read("what is stored", |connection: &Connection| {
            let mut used = Used::default();
            let mut statement = connection.prepare_cached(
                "SELECT name, revision, length(record) FROM revisions ORDER BY name, revision",
            )?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                used.revisions.entry(row.get(0)?).or_default().push((row.get(1)?, row.get(2)?));
            }
            let mut statement = connection.prepare_cached(
                "SELECT name, length(record) FROM probes UNION ALL SELECT name, length(record) FROM expired \
                 UNION ALL SELECT name, length(record) FROM unreadable",
            )?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                *used.records.entry(row.get(0)?).or_default() += row.get::<_, u64>(1)?;
            }
            Ok(used)
        })?;
        let sizes = fs::read_dir(&self.objects).into_iter().flatten().flatten();
        used.objects = sizes
            .filter_map(|entry| Some(entry.metadata().ok()?.len()))
            .sum();
        Ok(used)
    }
}
