//! The cost of each probe, by its README and by the daemon's trial.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use twinprobe_tests::probes::{self, index};
use twinprobe_tests::{Daemon, Topology, timed};

use crate::expected::{DIRECTIONS, for_every_probe};

/// No probe of the library may cost more, in nanoseconds per packet.
const MOST: u64 = 200;
/// The factor by which a trial may differ from the number in a README, after correction for the
/// machine's speed, because other programs also use the machine.
const FACTOR: f64 = 3.0;
/// The factor of speed between this machine and the READMEs' machine. Processors differ most
/// in the cost of calls and returns, because of the kernel's mitigations for processor bugs.
const MACHINE: f64 = 5.0;
/// The least number of probes for an estimate of the machine's speed.
const MANY: usize = 10;
/// The least cost that trials tell apart, in nanoseconds.
const RESOLVED: u64 = 15;
/// The number of trials of a probe. The smallest result counts.
const TRIALS: usize = 3;

/// Returns the cost that the README of a probe says.
fn said(name: &str) -> Result<u64> {
    let said = index::entry(name)?["cost"].as_u64().context("a cost")?;
    ensure!(
        said <= MOST,
        "{said} ns per packet, at most {MOST} are allowed"
    );
    Ok(said)
}

/// `make bench` compares the trials themselves with the READMEs.
#[test]
fn every_readme_says_a_cost_and_every_probe_has_one() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for_every_probe(|name| said(name).map(drop))?;
    let config = probes::configuration("packet-counter", "mon0")?;
    ensure!(cost(&daemon.post("/v1/validate", &config).expect(200).json())? > 0);
    Ok(())
}

#[timed("it measures the cost of each probe")]
fn probes_cost_what_their_readmes_say() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut ratios = Vec::new();
    for_every_probe(|name| {
        let said = said(name)?;
        let config = probes::configuration(name, "mon0")?;
        let mut least = u64::MAX;
        for _ in 0..TRIALS {
            let answer = daemon.post("/v1/validate", &config);
            ensure!(answer.status == 200, "{}", answer.text());
            least = least.min(cost(&answer.json())?);
        }
        println!("{name}: {least} ns per packet, its README says {said}");
        ratios.push((
            least.max(RESOLVED) as f64 / said.max(RESOLVED) as f64,
            name.to_owned(),
        ));
        Ok(())
    })?;
    ratios.sort_by(|one, other| one.0.total_cmp(&other.0));
    let machine = if ratios.len() < MANY {
        1.0
    } else {
        ratios[ratios.len() / 2].0
    };
    println!("this machine takes {machine:.2} times as long");
    ensure!(
        (1.0 / MACHINE..=MACHINE).contains(&machine),
        "every README is wrong: {machine:.2} times as long"
    );
    let wrong: Vec<String> = ratios
        .into_iter()
        .filter(|(ratio, _)| !(1.0 / FACTOR..=FACTOR).contains(&(ratio / machine)))
        .map(|(ratio, name)| format!("{name}: {:.2} times what its README says", ratio / machine))
        .collect();
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

/// Returns the cost of the more costly direction.
fn cost(report: &Value) -> Result<u64> {
    let of = |direction: &&str| report["cost"]["directions"][*direction]["ns_per_packet"].as_f64();
    let most = DIRECTIONS.iter().filter_map(of).max_by(f64::total_cmp);
    Ok(most
        .with_context(|| format!("{} has no cost", report["cost"]))?
        .ceil() as u64)
}
