//! The time that dispatchers and the probes that they call take for the packets of their interfaces.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use twinprobe_ebpf_common::hook::Hook;

use crate::attach::dispatcher::chain::Dispatcher;
use crate::attach::dispatcher::dispatchers::Dispatchers;
use crate::attach::hook::hook_point::HookPoint;
use crate::sys::object::{self, ObjectKind};
use crate::sys::prog::{self, ProgRuns};

/// The packets that one dispatcher has seen during a measurement.
#[derive(Clone, Debug)]
pub struct LiveRuns {
    pub interface: String,
    pub hook: Hook,
    /// The serials of the deployments that the dispatcher calls.
    pub serials: Vec<u64>,
    pub packets: u64,
    /// The time for all of these packets.
    pub nanoseconds: u64,
}

impl Dispatchers {
    /// Lets the kernel count the runs of programs for `time`, and returns those of the dispatchers. The kernel counts the
    /// runs of all programs of the machine meanwhile, which makes each run some ten nanoseconds slower. Needs
    /// CAP_SYS_ADMIN.
    pub fn measure(&self, time: Duration) -> io::Result<Vec<LiveRuns>> {
        let _statistics = prog::enable_statistics()?;
        let running = self.running()?;
        std::thread::sleep(time);
        let measured = running.into_iter().map(|(mut live, program, before)| {
            let after = prog::prog_runs(program.as_fd())?;
            live.packets = after.runs.saturating_sub(before.runs);
            live.nanoseconds = after.nanoseconds.saturating_sub(before.nanoseconds);
            Ok(live)
        });
        measured.collect()
    }

    /// Returns the programs of all dispatchers, with the runs that are counted so far.
    fn running(&self) -> io::Result<Vec<(LiveRuns, OwnedFd, ProgRuns)>> {
        let by_place = self.by_place.lock();
        let mut running = Vec::new();
        for (place, dispatcher) in by_place.values() {
            let program =
                dispatcher.program.map(|id| object::fd_by_id(ObjectKind::Program, id)).transpose()?.flatten();
            if let Some(program) = program {
                let runs = prog::prog_runs(program.as_fd())?;
                running.push((idle(place, dispatcher), program, runs));
            }
        }
        Ok(running)
    }
}

fn idle(place: &HookPoint, dispatcher: &Dispatcher) -> LiveRuns {
    LiveRuns {
        interface: place.interface.clone(),
        hook: place.hook,
        serials: dispatcher.entries.iter().map(|entry| entry.owner.0).collect(),
        packets: 0,
        nanoseconds: 0,
    }
}
