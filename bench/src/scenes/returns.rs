//! The time of a call that only returns: with mitigations of processors a return goes through a
//! thunk.

use anyhow::Result;
use twinprobe_tests::Topology;
use twinprobe_tests::traffic::Frame;

use super::runs::Bare;
use super::sources::RETURNS;
use crate::frame::paired::{Comparison, Estimate, Way};

const CALLS: u32 = 16;

/// Measures the nanoseconds of one call by two programs, with and without calls.
pub fn measure(topology: &Topology, rounds: u64, repeat: u32) -> Result<Estimate> {
    let load = |calls: u32| {
        Bare::load(
            RETURNS,
            "tc",
            "returns",
            &[format!("CALLS={calls}")],
            topology,
        )
    };
    let (mut without, mut with) = (load(0)?, load(CALLS)?);
    let frame = Frame::default();
    let compared = Comparison::measure(rounds, |way| match way {
        Way::Base => without.run("tc", frame.bytes(), repeat),
        Way::Other => with.run("tc", frame.bytes(), repeat),
    })?;
    let Estimate { value, low, high } = compared.difference();
    let [value, low, high] = [value, low, high].map(|time| time / f64::from(CALLS));
    Ok(Estimate { value, low, high })
}
