//! Group commit: the first writer that comes writes the windows of all writers that wait.

use std::sync::{Condvar, Mutex};

use anyhow::{Result, anyhow};

use super::store::{Store, Window};

/// Writers that share the commits of a store.
pub struct Group<'a> {
    store: &'a dyn Store,
    state: Mutex<State>,
    committed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<(usize, u64, Vec<u8>)>,
    added: u64,
    committed: u64,
    writing: bool,
    failed: Option<String>,
}

impl<'a> Group<'a> {
    pub fn new(store: &'a dyn Store) -> Self {
        Self {
            store,
            state: Mutex::default(),
            committed: Condvar::new(),
        }
    }

    /// Returns once the window is synced to the disk.
    pub fn put(&self, window: Window<'_>) -> Result<()> {
        let mut state = self.state.lock().expect("no panic");
        state
            .waiting
            .push((window.writer, window.seq, window.content.to_vec()));
        state.added += 1;
        let ticket = state.added;
        loop {
            if let Some(reason) = &state.failed {
                return Err(anyhow!("{reason}"));
            }
            if state.committed >= ticket {
                return Ok(());
            }
            if state.writing {
                state = self.committed.wait(state).expect("no panic");
                continue;
            }
            state.writing = true;
            let (batch, target) = (std::mem::take(&mut state.waiting), state.added);
            drop(state);
            let windows: Vec<Window<'_>> = batch
                .iter()
                .map(|(writer, seq, content)| Window {
                    writer: *writer,
                    seq: *seq,
                    content,
                })
                .collect();
            let written = self.store.put(&windows);
            state = self.state.lock().expect("no panic");
            state.writing = false;
            match written {
                Ok(()) => state.committed = target,
                Err(error) => state.failed = Some(format!("{error:#}")),
            }
            self.committed.notify_all();
        }
    }
}
