//! The deployment that a replacement takes over.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::load::maps::{ProbeMaps, TwinFds};
use crate::plan::probe_plan::MapPlan;

/// The deployment that is being replaced, as one direction sees it.
#[derive(Clone, Debug)]
pub struct Predecessor {
    pub maps: Arc<ProbeMaps>,
    /// Which of its twins sees packets, where it has twins.
    pub active: usize,
    /// Names of maps with counts that are kept elsewhere: sums of windows, and what an earlier map had counted.
    pub more_known: BTreeSet<String>,
}

impl Predecessor {
    /// Descriptors of the old map that is `map` now: for both twins, or for both at once. `None` in a place: that twin
    /// needs a map of its own.
    pub fn reuse(&self, map: &MapPlan) -> io::Result<[Option<OwnedFd>; 2]> {
        let active = self.active & 1;
        Ok(match (self.maps.by_name(&map.name), map.private) {
            (None, _) => [None, None],
            (Some((_, TwinFds::Shared(fd))), false) => [Some(fd.try_clone()?), None],
            (Some((_, TwinFds::Private(fds))), true) => {
                [Some(fds[0].try_clone()?), Some(fds[1].try_clone()?)]
            }
            // What was live becomes the open window, and the other way round.
            (Some((_, TwinFds::Shared(fd))), true) => {
                let mut fds = [None, None];
                fds[active] = Some(fd.try_clone()?);
                fds
            }
            (Some((_, TwinFds::Private(fds))), false) => [Some(fds[active].try_clone()?), None],
        })
    }
}
