//! Lets the disk be full, or the process die.

use std::io;
use std::sync::{Arc, Mutex};

use crate::file::directory::Step;
use crate::windows::lock;

/// What the file system does to those who change it.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    full: bool,
    /// Steps that are still made; none after them, as if the process had been killed.
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

    /// Nothing that needs room can be done.
    pub fn set_full(&self, full: bool) {
        lock(&self.0).full = full;
    }

    /// After so many steps more there are none.
    pub fn kill_after(&self, steps: usize) {
        lock(&self.0).left = Some(steps);
    }
}
