//! The cost of each probe, by its README and by the daemon's trial.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use twinprobe_tests::probes::{self, index};
use twinprobe_tests::{Daemon, Topology};

use crate::expected::{DIRECTIONS, for_every_probe};

/// No probe of the library may cost more, in nanoseconds per packet.
const MOST: u64 = 200;
/// The number by which a trial may differ from what a README says: machines differ, and others use them as well.
const FACTOR: u64 = 3;
/// The least cost that trials tell apart, in nanoseconds.
const RESOLVED: u64 = 15;
/// Trials until one agrees.
const TRIALS: usize = 5;

#[test]
fn probes_cost_what_their_readmes_say() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for_every_probe(|name| {
        let said = index::entry(name)?["cost"].as_u64().context("a cost")?;
        ensure!(said <= MOST, "{said} ns per packet, at most {MOST} are allowed");
        let config = probes::configuration(name, "mon0")?;
        let mut least = u64::MAX;
        for _ in 0..TRIALS {
            let answer = daemon.post("/v1/validate", &config);
            ensure!(answer.status == 200, "{}", answer.text());
            least = least.min(cost(&answer.json())?);
            if least <= said.max(RESOLVED) * FACTOR {
                break;
            }
        }
        println!("{name}: {least} ns per packet");
        ensure!(
            least <= said.max(RESOLVED) * FACTOR && said <= least.max(RESOLVED) * FACTOR,
            "README says {said} ns per packet, a trial {least}"
        );
        Ok(())
    })
}

/// Returns the cost of the more costly direction.
fn cost(report: &Value) -> Result<u64> {
    let of = |direction: &&str| report["cost"]["directions"][*direction]["ns_per_packet"].as_f64();
    let most = DIRECTIONS.iter().filter_map(of).max_by(f64::total_cmp);
    Ok(most.with_context(|| format!("{} has no cost", report["cost"]))?.ceil() as u64)
}
