//! The table `history`: a row for each change of a probe, which outlives the probe.

use jiff::{SignedDuration, Timestamp};
use twinprobe_api::HistoryEntry;
use twinprobe_store::{Connection, params};

use crate::store::Store;
use crate::store::error::StoreError;

/// The most changes that are kept for one name of a probe, and for all names together. So a client
/// that changes probes all the time can't fill the disk.
const EACH: u64 = 1000;
const ALL: u64 = 50_000;

/// Adds a change to the history, and removes changes that are too old or too many. This is a part
/// of the commit of the change itself.
pub fn add(
    connection: &Connection,
    entry: &HistoryEntry,
    oldest: Timestamp,
) -> twinprobe_store::Result<()> {
    let time = entry.time.parse().unwrap_or_else(|_| Timestamp::now());
    // Numbers and strings alone can always be written.
    let record = serde_json::to_vec(entry).unwrap_or_default();
    connection
        .prepare_cached("DELETE FROM history WHERE time < ?1")?
        .execute([oldest.as_microsecond()])?;
    connection
        .prepare_cached(
            "DELETE FROM history WHERE id IN (SELECT id FROM history WHERE name = ?1 ORDER BY id DESC LIMIT -1 OFFSET ?2)",
        )?
        .execute(params![entry.probe, EACH - 1])?;
    connection
        .prepare_cached("DELETE FROM history WHERE id <= (SELECT max(id) FROM history) - ?1")?
        .execute([ALL - 1])?;
    connection
        .prepare_cached("INSERT INTO history (name, time, record) VALUES (?1, ?2, ?3)")?
        .execute(params![entry.probe, time.as_microsecond(), record])
        .map(drop)
}

impl Store {
    /// Returns the time before which no change is kept.
    pub fn oldest_change(&self) -> Timestamp {
        let kept = SignedDuration::try_from(self.keep_history).unwrap_or(SignedDuration::MAX);
        Timestamp::now().checked_sub(kept).unwrap_or(Timestamp::MIN)
    }

    /// Returns up to `limit` of the newest changes that are kept, oldest first: the changes of the
    /// probe with this name, or of all probes.
    pub fn history(
        &self,
        name: Option<&str>,
        limit: usize,
    ) -> Result<Vec<HistoryEntry>, StoreError> {
        let sql = "SELECT record FROM history WHERE (?1 IS NULL OR name = ?1) AND time >= ?2 ORDER BY id DESC LIMIT ?3";
        let oldest = self.oldest_change().as_microsecond();
        let records = self.read("the history", |connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map(params![name, oldest, limit as u64], |row| {
                row.get::<_, Vec<u8>>(0)
            })?;
            rows.collect::<twinprobe_store::Result<Vec<_>>>()
        })?;
        let mut found = Vec::new();
        for record in records.iter().rev() {
            match serde_json::from_slice(record) {
                Ok(entry) => found.push(entry),
                // A later version may know other changes.
                Err(error) => {
                    tracing::warn!(%error, "a change in the history can't be read and is left out");
                }
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use twinprobe_api::ChangeKind;
    use twinprobe_store::Durable;

    use super::*;

    fn entry(probe: &str, revision: u64, time: Timestamp) -> HistoryEntry {
        HistoryEntry {
            time: time.to_string(),
            probe: probe.to_owned(),
            change: ChangeKind::Replaced,
            revision,
            instance: "4f0c".to_owned(),
            who: Some("uid:0".to_owned()),
            from: None,
            message: Some("why".to_owned()),
            cost_before: None,
            cost_after: None,
        }
    }

    fn added(store: &Store, entries: Vec<HistoryEntry>) {
        let oldest = store.oldest_change();
        let change: twinprobe_store::Change = Box::new(move |connection| {
            entries
                .iter()
                .try_for_each(|entry| add(connection, entry, oldest))
        });
        store.database.commit(Durable::Now, false, change).unwrap();
    }

    fn revisions(store: &Store, name: Option<&str>) -> Vec<u64> {
        store
            .history(name, 1 << 20)
            .unwrap()
            .iter()
            .map(|entry| entry.revision)
            .collect()
    }

    #[test]
    fn changes_are_kept_for_their_time_and_no_more_than_so_many_of_a_name() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), Duration::from_secs(60)).unwrap();
        let (now, past) = (
            Timestamp::now(),
            Timestamp::now() - SignedDuration::from_secs(61),
        );
        added(
            &store,
            vec![entry("a", 1, past), entry("b", 2, now), entry("a", 3, now)],
        );
        assert_eq!(revisions(&store, None), [2, 3]);
        assert_eq!(revisions(&store, Some("a")), [3]);
        assert_eq!(store.history(None, 1).unwrap(), [entry("a", 3, now)]);
        let many = (0..EACH + 5)
            .map(|revision| entry("a", revision, now))
            .collect();
        added(&store, many);
        assert_eq!(revisions(&store, Some("a")), Vec::from_iter(5..EACH + 5));
        assert_eq!(revisions(&store, Some("b")), [2]);
        drop(store);
        let store = Store::open(directory.path(), Duration::ZERO).unwrap();
        assert_eq!(revisions(&store, None), [0; 0]);
    }
}
