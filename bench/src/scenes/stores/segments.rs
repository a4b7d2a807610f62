//! Two segments, used in turns, with preallocated blocks: one write and one sync for all windows
//! that wait. With files, each window has a file beside it, which is not synced until a segment is
//! used again; the daemon does this. Without files, windows live in the segments and in memory
//! only.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::Result;

use super::single;
use super::store::{Kept, Store, Window};

const FULL: u64 = 16 << 20;
const BLOCK: usize = 4096;
/// The longest window that is written to a segment as well.
const LONGEST: usize = 256 * 1024;

pub struct Segments {
    root: PathBuf,
    with_files: bool,
    state: Mutex<State>,
}

struct State {
    segments: [File; 2],
    place: usize,
    end: u64,
    syncs: u64,
    kept: Kept,
}

impl Segments {
    pub fn with_files(root: &Path) -> Result<Box<dyn Store>> {
        Self::open(root, true)
    }

    pub fn alone(root: &Path) -> Result<Box<dyn Store>> {
        Self::open(root, false)
    }

    fn open(root: &Path, with_files: bool) -> Result<Box<dyn Store>> {
        let segment = |place: usize| -> Result<File> {
            let path = root.join(format!("log-{place}"));
            let file = File::options()
                .read(true)
                .write(true)
                .create_new(true)
                .open(path)?;
            file.write_all_at(&vec![0; FULL as usize], 0)?;
            file.sync_all()?;
            Ok(file)
        };
        let segments = [segment(0)?, segment(1)?];
        let state = State {
            segments,
            place: 0,
            end: 0,
            syncs: 0,
            kept: Kept::new(),
        };
        Ok(Box::new(Self {
            root: root.to_owned(),
            with_files,
            state: Mutex::new(state),
        }))
    }
}

impl Store for Segments {
    fn put(&self, windows: &[Window<'_>]) -> Result<()> {
        let mut state = self.state.lock().expect("no panic");
        let mut blocks = Vec::new();
        for window in windows {
            let mut is_synced = false;
            if self.with_files {
                let (directory, file) = single::write(&self.root, window)?;
                is_synced = window.content.len() > LONGEST;
                if is_synced {
                    file.sync_all()?;
                }
                single::publish(&directory, window)?;
                if is_synced {
                    File::open(&directory)?.sync_all()?;
                    state.syncs += 2;
                }
            }
            if !is_synced {
                for number in [
                    window.writer as u64,
                    window.seq,
                    window.content.len() as u64,
                ] {
                    blocks.extend_from_slice(&number.to_le_bytes());
                }
                blocks.extend_from_slice(window.content);
            }
        }
        blocks.resize(blocks.len().next_multiple_of(BLOCK), 0);
        if state.end + blocks.len() as u64 > FULL {
            // The content of the other segment must be in files, or is superseded.
            if self.with_files {
                rustix::fs::syncfs(&state.segments[0])?;
                state.syncs += 1;
            }
            (state.place, state.end) = (1 - state.place, 0);
        }
        if !blocks.is_empty() {
            let segment = &state.segments[state.place];
            segment.write_all_at(&blocks, state.end)?;
            segment.sync_data()?;
            state.end += blocks.len() as u64;
            state.syncs += 1;
        }
        for window in windows {
            if self.with_files {
                single::supersede(&self.root.join(window.writer.to_string()), window)?;
            } else {
                state
                    .kept
                    .insert((window.writer, window.seq), window.content.to_vec());
                window
                    .superseded()
                    .map(|seq| state.kept.remove(&(window.writer, seq)));
            }
        }
        Ok(())
    }

    fn syncs(&self) -> u64 {
        self.state.lock().expect("no panic").syncs
    }
}
