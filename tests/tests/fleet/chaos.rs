//! Rollouts while everything is killed in turn.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use twinprobe_tests::random::Random;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::Fleet;

/// Kills, and starts again, what `at` says.
fn strike(fleet: &mut Fleet, at: u64) -> Result<&'static str> {
    match at {
        0 => {
            fleet.operator = None;
            fleet.start_operator()?;
            Ok("operator")
        }
        1 => {
            fleet.cluster.restart(|| Ok(()))?;
            Ok("API server")
        }
        2 => {
            fleet.nodes[0].agent = None;
            fleet.start_agent(0)?;
            Ok("agent of the canary")
        }
        3 => {
            fleet.nodes[1].agent = None;
            fleet.start_agent(1)?;
            Ok("agent")
        }
        _ => {
            fleet.nodes[1].restart_daemon()?;
            Ok("daemon")
        }
    }
}

#[test]
fn each_rollout_ends_whatever_is_killed_and_no_packet_is_lost() -> Result<()> {
    let mut fleet = Fleet::new(3)?;
    fleet.apply("revision 0", &json!({}))?;
    fleet.reaches("complete")?;
    let mut random = Random::new();
    let mut last = "revision 0".to_owned();
    for round in 1..=10 {
        let help = format!("revision {round}");
        let is_bad = round % 3 == 0;
        let budget = if is_bad { json!({ "nsPerPacket": 0 }) } else { json!({}) };
        fleet.apply(&help, &json!({ "rollout": { "budget": budget, "timeout": "120s" } }))?;
        let mut struck = Vec::new();
        for _ in 0..2 {
            fleet.nodes.iter_mut().try_for_each(|node| node.send(500))?;
            struck.push(strike(&mut fleet, random.below(5))?);
        }
        let step = if is_bad { "rolled back" } else { "complete" };
        fleet.reaches(step).with_context(|| format!("round {round}, killed: {struck:?}"))?;
        if !is_bad {
            last = help;
        }
        wait_for("every node has what the object says", PATIENCE, || {
            let found: Vec<String> = fleet.found().into_iter().map(|(help, _)| help).collect();
            ensure!(found == vec![last.clone(); 3], "round {round}, killed {struck:?}: {found:?}");
            Ok(())
        })?;
    }
    for node in &fleet.nodes {
        let (counted, sent) = node.counted()?;
        ensure!(counted == sent, "{}: {counted} packets of {sent}", node.name);
    }
    Ok(())
}
