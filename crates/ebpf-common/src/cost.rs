//! The cost of a probe in a trial run before its attachment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::hook::Direction;

/// The cost of a probe's programs and maps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeCost {
    pub directions: BTreeMap<Direction, DirectionCost>,
    /// The memory of all full maps, in bytes. A map that each twin has for itself counts twice.
    pub map_bytes: u64,
}

/// The cost of one direction's program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionCost {
    /// The time of the runs; `None` for a program that was not run, because a run would send
    /// packets or might not end in time.
    #[serde(flatten)]
    pub run: Option<RunCost>,
    /// The number of instructions, subprograms included.
    pub instructions: u64,
    /// The number of instructions that the verifier has followed.
    pub verified: u64,
    /// The stack of the deepest chain of calls, in bytes.
    pub stack_bytes: u64,
}

/// The time of a program for the slowest of its sample frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCost {
    /// The median of all runs, in nanoseconds. The time of a program that does nothing is
    /// subtracted; the result is at least 1.
    pub ns_per_packet: u64,
    /// The distance between the lower and the upper quartile of the runs, in nanoseconds.
    pub noise_ns: u64,
    /// The name of the sample frame.
    pub frame: String,
}
