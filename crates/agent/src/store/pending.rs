//! The commit that decides which configuration of a probe is the stored one.

use twinprobe_api::HistoryEntry;
use twinprobe_store::{OptionalExtension as _, params};

use crate::store::error::StoreError;
use crate::store::record::{StoredProbe, StoredRevision};
use crate::store::room::Dropped;
use crate::store::{REVISIONS, Store, format, history};

/// A state of a probe that is about to become the stored state. A drop discards the state.
#[derive(Debug)]
#[must_use]
pub struct PendingRecord<'a> {
    pub store: &'a Store,
    pub name: String,
    /// The number of the revision.
    pub number: u64,
    pub record: Vec<u8>,
    /// The record of the revision; `None` if the store already has the record.
    pub revision: Option<Vec<u8>>,
    /// The revisions that the commit removes.
    pub dropped: Dropped,
    /// The change that the history shows; `None` if the change was made by neither a request nor a
    /// file.
    pub change: Option<HistoryEntry>,
}

impl Store {
    /// Prepares the state of a probe for [`PendingRecord::commit`], with its revision and the
    /// sender's `message`. Makes the probe's objects durable, which must already be stored.
    pub fn prepare(
        &self,
        name: &str,
        probe: &StoredProbe,
        message: Option<String>,
    ) -> Result<PendingRecord<'_>, StoreError> {
        let of = format!("revision {} of probe {name}", probe.revision);
        let known = self
            .record(name, probe.revision)?
            .and_then(|record| format::parse_revision(&record));
        // A probe that is deployed anew has the revision already, with the time when it was first
        // deployed.
        let is_it = |known: &StoredRevision| {
            let says_so = message.is_none() || known.message == message;
            known.config == probe.config && known.pushed_by == probe.pushed_by && says_so
        };
        let encoded = |source| StoreError::Write {
            what: of.clone(),
            source,
        };
        let mut revision = None;
        if !known.as_ref().is_some_and(is_it) {
            let (created, config) = (jiff::Timestamp::now().to_string(), probe.config.clone());
            let pushed_by = probe.pushed_by.clone();
            let content = StoredRevision {
                created,
                pushed_by,
                message,
                config,
            };
            revision = Some(format::file(&content).map_err(encoded)?);
        }
        let record = format::file(probe).map_err(encoded)?;
        // A committed state names objects. The objects must exist after a power failure, even if an
        // earlier daemon wrote them.
        self.sync_objects(
            probe
                .running
                .iter()
                .flat_map(|running| running.objects.values()),
        )?;
        let (name, number) = (name.to_owned(), probe.revision);
        let dropped = Dropped::default();
        Ok(PendingRecord {
            store: self,
            name,
            number,
            record,
            revision,
            dropped,
            change: None,
        })
    }
}

impl PendingRecord<'_> {
    /// Makes this state the stored state. After an error the store is unchanged, and the caller
    /// must restore the stored state in the kernel as well.
    pub fn commit(self) -> Result<(), StoreError> {
        let Self {
            store,
            name,
            number,
            record,
            revision,
            dropped,
            change: entry,
        } = self;
        let oldest = store.oldest_change();
        // An unreadable record is kept for a daemon that can read it, or for the operator.
        let is_unreadable = has_unreadable(store, &name)?;
        if is_unreadable {
            tracing::warn!(
                probe = name,
                "an unreadable configuration is replaced; the store keeps it aside"
            );
        }
        let what = format!("probe {name}");
        let change = move |connection: &twinprobe_store::Connection| {
            if is_unreadable {
                connection.execute(
                    "INSERT OR REPLACE INTO unreadable SELECT name, record FROM probes WHERE name = ?1",
                    [&name],
                )?;
            }
            // Removals come first: they leave room in the file for the rest.
            let old = number.saturating_sub(REVISIONS);
            let gone = dropped
                .0
                .iter()
                .map(|(name, last)| (name, *last))
                .chain([(&name, old)]);
            for (name, last) in gone {
                connection
                    .prepare_cached("DELETE FROM revisions WHERE name = ?1 AND revision <= ?2")?
                    .execute(params![name, last])?;
            }
            if let Some(revision) = &revision {
                connection
                    .prepare_cached("INSERT OR REPLACE INTO revisions VALUES (?1, ?2, ?3)")?
                    .execute(params![name, number, revision])?;
            }
            if let Some(entry) = &entry {
                history::add(connection, entry, oldest)?;
            }
            // The probe takes over the windows of an expired one of its name.
            connection
                .prepare_cached("DELETE FROM expired WHERE name = ?1")?
                .execute([&name])?;
            connection
                .prepare_cached("INSERT OR REPLACE INTO probes VALUES (?1, ?2)")?
                .execute(params![name, record])
                .map(drop)
        };
        store.commit(&what, false, Box::new(change))
    }
}

/// Tells whether the stored record of a probe can't be read.
fn has_unreadable(store: &Store, name: &str) -> Result<bool, StoreError> {
    let record = store.read("a probe", |connection| {
        let mut statement =
            connection.prepare_cached("SELECT record FROM probes WHERE name = ?1")?;
        statement
            .query_row([name], |row| row.get::<_, Vec<u8>>(0))
            .optional()
    })?;
    Ok(record.is_some_and(|record| format::parse(&record).is_err()))
}
