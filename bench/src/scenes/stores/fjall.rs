//! fjall: a log-structured merge tree.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::store::{Store, Window};

pub struct Fjall {
    database: Database,
    windows: Keyspace,
    syncs: AtomicU64,
}

impl Fjall {
    pub fn open(root: &Path) -> Result<Box<dyn Store>> {
        let database = Database::builder(root.join("fjall")).open()?;
        let windows = database.keyspace("windows", KeyspaceCreateOptions::default)?;
        Ok(Box::new(Self {
            database,
            windows,
            syncs: AtomicU64::new(0),
        }))
    }
}

fn key(writer: usize, seq: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&(writer as u64).to_be_bytes());
    key[8..].copy_from_slice(&seq.to_be_bytes());
    key
}

impl Store for Fjall {
    fn put(&self, windows: &[Window<'_>]) -> Result<()> {
        let mut batch = self
            .database
            .batch()
            .durability(Some(PersistMode::SyncData));
        for window in windows {
            batch.insert(
                &self.windows,
                key(window.writer, window.seq),
                window.content,
            );
            if let Some(seq) = window.superseded() {
                batch.remove(&self.windows, key(window.writer, seq));
            }
        }
        batch.commit()?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}
