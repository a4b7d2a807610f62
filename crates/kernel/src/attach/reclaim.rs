//! Waiting until the kernel has freed what was removed, which it does in the background: once a DELETE is
//! answered, nothing of the probe is left.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use crate::load::pins::Pins;
use crate::sys::object::{self, ObjectKind};
use crate::sys::{map, prog};

/// The kernel frees after a few grace periods of 10 ms; a tool that looks at the object keeps it longer.
const LIMIT: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(1);

/// Programs and maps that are about to go.
#[derive(Debug, Default)]
pub struct Reclaim {
    ids: Vec<(ObjectKind, u32)>,
}

impl Reclaim {
    /// The program and every map it uses. What can't be asked for is not waited for.
    pub fn add_program(&mut self, program: BorrowedFd<'_>) {
        if let Ok((id, maps)) = prog::prog_ids(program) {
            self.ids.push((ObjectKind::Program, id));
            self.ids.extend(maps.into_iter().map(|map| (ObjectKind::Map, map)));
        }
    }

    pub fn add_map(&mut self, map: BorrowedFd<'_>) {
        self.ids.extend(map::map_id(map).map(|id| (ObjectKind::Map, id)));
    }

    /// Adds what is pinned beside the programs and their maps.
    pub fn add_pinned(&mut self, pins: &Pins) {
        if let Ok((_, map)) = pins.note() {
            self.add_map(map.as_fd());
        }
    }

    /// To be called when the last descriptors and pins are gone.
    pub fn wait(self) {
        let limit = Instant::now() + LIMIT;
        for (kind, id) in self.ids {
            // Listing ids takes CAP_SYS_ADMIN; without it nobody can see what is left either.
            while object::exists(kind, id).unwrap_or(false) && Instant::now() < limit {
                std::thread::sleep(STEP);
            }
        }
    }
}
