//! Faults: the disk is full, or the process dies.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::file::directory::Step;

/// The faults of the file system, shared with the test.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    full: bool,
    /// The number of steps that still succeed; all later ones fail, as if the process had been killed.
    left: Option<usize>,
}

impl Faults {
    pub fn at(&self, step: Step) -> io::Result<()> {
        let mut state = self.0.lock();
        match &mut state.left {
            Some(0) => return Err(io::Error::other("killed")),
            Some(left) => *left -= 1,
            None => {}
        }
        if state.full && step == Step::Write { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// Makes every step fail that needs room on the disk, or none.
    pub fn set_full(&self, full: bool) {
        self.0.lock().full = full;
    }

    /// Makes all steps fail after this number of further steps.
    pub fn kill_after(&self, steps: usize) {
        self.0.lock().left = Some(steps);
    }
}
