//! The daemon's store: SQLite, with rows in the order of the windows.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use parking_lot::Mutex;
use twinprobe_store::{Connection, Database, Durable, params};

use super::store::{Store, Window};

/// The ids of rows.
#[derive(Default)]
struct Ids {
    /// The kept windows, by writer and number.
    kept: HashMap<(usize, u64), i64>,
    /// The id of the newest row.
    last: i64,
}

pub struct Sqlite {
    database: Arc<Database>,
    ids: Mutex<Ids>,
    syncs: AtomicU64,
}

impl Sqlite {
    pub fn open(root: &Path) -> Result<Box<dyn Store>> {
        let (database, ids) = (Database::open(root)?, Mutex::default());
        Ok(Box::new(Self {
            database,
            ids,
            syncs: AtomicU64::new(0),
        }))
    }
}

impl Store for Sqlite {
    fn put(&self, windows: &[Window<'_>]) -> Result<()> {
        let mut ids = self.ids.lock();
        let (mut rows, mut gone) = (Vec::new(), Vec::new());
        for window in windows {
            ids.last += 1;
            let id = ids.last;
            ids.kept.insert((window.writer, window.seq), id);
            rows.push((
                id,
                window.writer as i64,
                window.seq,
                window.content.to_vec(),
            ));
            gone.extend(
                window
                    .superseded()
                    .and_then(|seq| ids.kept.remove(&(window.writer, seq))),
            );
        }
        drop(ids);
        let change = move |connection: &Connection| {
            for (id, series, seq, body) in &rows {
                connection
                    .prepare_cached(
                        "INSERT INTO windows VALUES (?1, ?2, '', ?3, 0, 0, '', '', 0, 0, x'', ?4)",
                    )?
                    .execute(params![id, series, seq, body])?;
            }
            for id in &gone {
                connection
                    .prepare_cached("DELETE FROM windows WHERE id = ?1")?
                    .execute([id])?;
            }
            Ok(())
        };
        self.database
            .commit(Durable::Now, false, Box::new(change))?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}
