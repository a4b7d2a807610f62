//! The time that dispatchers and their probes take for the packets of interfaces.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use twinprobe_ebpf_common::hook::Hook;

use crate::attach::dispatcher::chain::Dispatcher;
use crate::attach::dispatcher::dispatchers::Dispatchers;
use crate::attach::dispatcher::entry::DispatcherEntry;
use crate::attach::hook::hook_point::HookPoint;
use crate::profile::owners::Owners;
use crate::profile::sampler::Sampler;
use crate::sys::object::{self, ObjectKind};
use crate::sys::prog::{self, ProgRuns};

/// The packets that one dispatcher has seen during a measurement.
#[derive(Clone, Debug)]
pub struct LiveRuns {
    pub interface: String,
    pub hook: Hook,
    /// The deployments that the dispatcher calls.
    pub called: Vec<LiveCall>,
    /// The id of the dispatcher's program, and the number of samples of CPUs' clocks that met this
    /// program itself, and not a program that it calls. Dispatchers with equal calls share a
    /// program and its samples.
    pub own: (u32, u64),
    pub packets: u64,
    /// The time for all of these packets.
    pub nanoseconds: u64,
}

/// A deployment that a dispatcher calls.
#[derive(Clone, Debug)]
pub struct LiveCall {
    pub serial: u64,
    /// The ids of the programs of its twins.
    pub programs: [u32; 2],
    /// The number of samples of CPUs' clocks that met one of these programs, called by any
    /// dispatcher.
    pub samples: u64,
}

impl Dispatchers {
    /// Lets the kernel count the runs of programs for `time`, and returns the runs of the
    /// dispatchers. During this time, the kernel counts the runs of all programs of the machine,
    /// which makes each run some ten nanoseconds slower. The time of a dispatcher includes the
    /// programs that it calls; samples of the clocks show the part of each program. Needs
    /// CAP_SYS_ADMIN, and for the samples CAP_PERFMON and CAP_SYSLOG.
    pub fn measure(&self, time: Duration) -> io::Result<Vec<LiveRuns>> {
        let _statistics = prog::enable_statistics()?;
        let running = self.running()?;
        let programs = running.iter().flat_map(|(live, ..)| {
            live.called
                .iter()
                .flat_map(|call| call.programs)
                .chain([live.own.0])
        });
        let owners = Owners::of(programs)?;
        // Without samples the result has only the times of the dispatchers.
        let sampler = Sampler::start()
            .inspect_err(|error| tracing::debug!(%error, "the clocks of CPUs can't be sampled"));
        std::thread::sleep(time);
        let mut samples: HashMap<u32, u64> = HashMap::new();
        sampler.into_iter().for_each(|sampler| {
            sampler.finish(|stack| {
                owners
                    .of_stack(stack)
                    .into_iter()
                    .for_each(|id| *samples.entry(id).or_default() += 1);
            });
        });
        let of = |id: u32| samples.get(&id).copied().unwrap_or(0);
        let measured = running.into_iter().map(|(mut live, program, before)| {
            let after = prog::prog_runs(program.as_fd())?;
            live.packets = after.runs.saturating_sub(before.runs);
            live.nanoseconds = after.nanoseconds.saturating_sub(before.nanoseconds);
            live.own.1 = of(live.own.0);
            for LiveCall {
                programs: [one, other],
                samples,
                ..
            } in &mut live.called
            {
                *samples = of(*one) + if one == other { 0 } else { of(*other) };
            }
            Ok(live)
        });
        measured.collect()
    }

    /// Returns the programs of all dispatchers, with the runs that are counted so far.
    fn running(&self) -> io::Result<Vec<(LiveRuns, OwnedFd, ProgRuns)>> {
        let by_place = self.by_place.lock();
        let mut running = Vec::new();
        for (place, dispatcher) in by_place.values() {
            let program = dispatcher
                .program
                .map(|id| object::fd_by_id(ObjectKind::Program, id))
                .transpose()?
                .flatten();
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
        called: dispatcher.entries.iter().map(called).collect(),
        own: (dispatcher.program.unwrap_or(0), 0),
        packets: 0,
        nanoseconds: 0,
    }
}

fn called(entry: &DispatcherEntry) -> LiveCall {
    LiveCall {
        serial: entry.owner.0,
        programs: entry.slots.programs,
        samples: 0,
    }
}
