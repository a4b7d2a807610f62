//! A wait until the kernel has freed removed objects, which happens in the background: once a
//! DELETE is answered, the kernel has nothing of the probe any more.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use crate::load::pins::DeploymentPins;
use crate::sys::object::{self, ObjectKind};
use crate::sys::{map, prog};

/// The longest wait. The kernel frees objects after a few grace periods of 10 ms, but a tool that
/// has opened an object keeps it for longer.
const LIMIT: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(1);

/// The programs and maps that the kernel is about to free.
#[derive(Debug, Default)]
pub struct Reclaim {
    ids: Vec<(ObjectKind, u32)>,
}

impl Reclaim {
    /// Adds the program and every map it uses. It does not wait for an object whose id can't be
    /// read.
    pub fn add_program(&mut self, program: BorrowedFd<'_>) {
        if let Ok((id, maps)) = prog::prog_ids(program) {
            self.ids.push((ObjectKind::Program, id));
            self.ids
                .extend(maps.into_iter().map(|map| (ObjectKind::Map, map)));
        }
    }

    pub fn add_map(&mut self, map: BorrowedFd<'_>) {
        self.ids
            .extend(map::map_id(map).map(|id| (ObjectKind::Map, id)));
    }

    /// Adds the map with the note, which is pinned beside the programs and their maps.
    pub fn add_pinned(&mut self, pins: &DeploymentPins) {
        if let Ok((_, map)) = pins.note() {
            self.add_map(map.as_fd());
        }
    }

    /// Waits until the objects are freed, at most [`LIMIT`] in all. Call this after the last
    /// descriptors and pins are removed.
    pub fn wait(self) {
        let limit = Instant::now() + LIMIT;
        for (kind, id) in self.ids {
            // Listing ids needs CAP_SYS_ADMIN; without it a left object can't be seen.
            while object::exists(kind, id).unwrap_or(false) && Instant::now() < limit {
                std::thread::sleep(STEP);
            }
        }
    }
}
