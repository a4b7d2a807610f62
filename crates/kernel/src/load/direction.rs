//! A direction of a probe between loading and attachment.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use twinprobe_ebpf_common::finding::Finding;

use crate::admit::verdicts::Verdicts;
use crate::load::maps::{ProbeMaps, TwinMap, Twins};
use crate::plan::probe_plan::DirectionPlan;
use crate::sys::prog::prog_identity;

/// One direction of a probe, loaded and ready to be attached.
#[derive(Debug)]
pub struct LoadedDirection {
    pub plan: Arc<DirectionPlan>,
    /// The program, or its twins.
    pub programs: Twins<OwnedFd>,
    /// The verdicts that the programs can return.
    pub verdicts: Verdicts,
    /// The maps that the metrics read, in the order of the plan.
    pub maps: Vec<TwinMap>,
    /// All maps of the program.
    pub own: Arc<ProbeMaps>,
    /// Warnings about capabilities that this kernel lacks.
    pub warnings: Vec<Finding>,
}

impl LoadedDirection {
    /// Tells whether each verdict that the programs can return takes effect without a change, so
    /// that a dispatcher need not look at it.
    pub fn stands(&self) -> bool {
        self.verdicts
            .stand(self.plan.attach.hook, self.plan.attach.verdict)
    }

    /// Tells whether the map that a metric reads is a map of the replaced deployment.
    pub fn takes_over(&self, metric: usize) -> bool {
        self.own.inherited[self.plan.metrics[metric].map].is_taken_over()
    }

    /// Returns the directions of the replaced deployment whose map continues in the map that a
    /// metric reads.
    pub fn origins(&self, metric: usize) -> &[usize] {
        &self.own.origins[self.plan.metrics[metric].map]
    }
}

/// Returns the ids of the programs for even and odd epochs.
pub fn program_ids(programs: &Twins<OwnedFd>) -> io::Result<[u32; 2]> {
    let id = |parity| io::Result::Ok(prog_identity(programs.of_twin(parity).as_fd())?.id);
    Ok([id(0)?, id(1)?])
}
