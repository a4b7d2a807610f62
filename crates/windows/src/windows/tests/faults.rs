//! Faults: the disk is full, or the process dies.

use std::io;
use std::sync::{Arc, Mutex};

use crate::file::directory::Step;
use crate::retention::lock;

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
        let mut state = lock(&self.0);
        match &mut state.left {
            Some(0) => return Err(io::Error::other("killed")),
            Some(left) => *left -= 1,
            None => {}
        }
        if state.full && step == Step::Write { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    /// Makes every step fail that needs room on the disk, or none.
    pub fn set_full(&self, full: bool) {
        lock(&self.0).full = full;
    }

    /// Makes all steps fail after this number of further steps.
    pub fn kill_after(&self, steps: usize) {
        lock(&self.0).left = Some(steps);
    }
}
