//! redb: a copy-on-write B-tree in one file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use redb::{Database, StorageBackend, TableDefinition};

use super::store::{Store, Window};

const WINDOWS: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("windows");

pub struct Redb {
    database: Database,
    syncs: Arc<AtomicU64>,
}

/// A file whose syncs are counted.
#[derive(Debug)]
struct Counted {
    file: File,
    syncs: Arc<AtomicU64>,
}

impl StorageBackend for Counted {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }
}

impl Redb {
    pub fn open(root: &Path) -> Result<Box<dyn Store>> {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(root.join("redb"))?;
        let syncs = Arc::new(AtomicU64::new(0));
        let backend = Counted {
            file,
            syncs: Arc::clone(&syncs),
        };
        Ok(Box::new(Self {
            database: Database::builder().create_with_backend(backend)?,
            syncs,
        }))
    }
}

impl Store for Redb {
    fn put(&self, windows: &[Window<'_>]) -> Result<()> {
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(WINDOWS)?;
            for window in windows {
                table.insert((window.writer as u64, window.seq), window.content)?;
                if let Some(seq) = window.superseded() {
                    table.remove((window.writer as u64, seq))?;
                }
            }
        }
        Ok(transaction.commit()?)
    }

    fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}
