//! Rollouts while everything is killed and paused in turn.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::cluster::{Ended, pause};
use twinprobe_tests::random::Random;
use twinprobe_tests::scaled;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::Fleet;

/// The parts of a fleet that are killed and paused.
const PARTS: [&str; 7] = [
    "operator",
    "API server",
    "etcd",
    "agent of the canary",
    "agent",
    "daemon of the canary",
    "daemon",
];

/// Kills a part, and starts that part again.
fn kill(fleet: &mut Fleet, part: &str) -> Result<()> {
    match part {
        "operator" => {
            fleet.operator = None;
            fleet.start_operator()
        }
        "API server" => fleet.cluster.restart(|| Ok(())),
        "etcd" => fleet.cluster.restart_etcd(|| Ok(())),
        "agent of the canary" | "agent" => {
            let at = usize::from(part == "agent");
            fleet.nodes[at].agent = None;
            fleet.start_agent(at)
        }
        _ => fleet.nodes[usize::from(part == "daemon")].restart_daemon(),
    }
}

/// The process of a part.
fn process(fleet: &Fleet, part: &str) -> Result<u32> {
    let of = |program: &Option<Ended>| Ok(program.as_ref().context("it runs")?.0.id());
    match part {
        "operator" => of(&fleet.operator),
        "API server" => Ok(fleet.cluster.processes()[0]),
        "etcd" => Ok(fleet.cluster.processes()[1]),
        "agent of the canary" => of(&fleet.nodes[0].agent),
        "agent" => of(&fleet.nodes[1].agent),
        "daemon of the canary" => Ok(fleet.nodes[0].daemon().pid()),
        _ => Ok(fleet.nodes[1].daemon().pid()),
    }
}

/// Kills a random part of the cluster. Another part may be paused meanwhile. Returns a description.
fn strike(fleet: &mut Fleet, random: &mut Random) -> Result<String> {
    let mut choose = || PARTS[usize::try_from(random.below(7)).unwrap_or_default()];
    let (killed, paused) = (choose(), choose());
    // A restarted process waits for the API server, which waits for etcd.
    let is_needed =
        ["API server", "etcd"].contains(&paused) && ["API server", "etcd"].contains(&killed);
    if killed == paused || is_needed {
        kill(fleet, killed)?;
        return Ok(killed.to_owned());
    }
    let process = process(fleet, paused)?;
    pause(process, true)?;
    fleet.nodes.iter_mut().try_for_each(|node| node.send(500))?;
    let done = kill(fleet, killed);
    pause(process, false)?;
    done?;
    Ok(format!("{killed} while {paused} stood still"))
}

/// The revision of the probe on each node, which counts the times that the node has got another
/// configuration.
fn revisions(fleet: &Fleet) -> Vec<u64> {
    fleet
        .found()
        .into_iter()
        .map(|(_, revision)| revision)
        .collect()
}

/// A probe with this budget, whose windows all stay for the whole test.
fn probe_of(budget: &Value) -> Value {
    let window = json!({ "interval": "200ms", "retain": 50_000 });
    json!({ "config": { "window": window }, "rollout": { "budget": budget, "timeout": "120s" } })
}

#[test]
fn each_rollout_ends_whatever_is_killed_and_no_packet_is_lost() -> Result<()> {
    let mut fleet = Fleet::new(3)?;
    fleet.apply("revision 0", &probe_of(&json!({})))?;
    fleet.reaches("complete")?;
    let mut random = Random::new();
    let mut last = "revision 0".to_owned();
    for round in 1..=scaled(10, 50) {
        let help = format!("revision {round}");
        let is_bad = round % 3 == 0;
        let before = revisions(&fleet);
        let budget = if is_bad {
            json!({ "nsPerPacket": 0 })
        } else {
            json!({})
        };
        fleet.apply(&help, &probe_of(&budget))?;
        let mut struck = Vec::new();
        for _ in 0..2 {
            fleet.nodes.iter_mut().try_for_each(|node| node.send(500))?;
            struck.push(strike(&mut fleet, &mut random).with_context(|| fleet.logs())?);
        }
        let step = if is_bad { "rolled back" } else { "complete" };
        let seen = wait_for(&format!("the step {step}"), PATIENCE * 2, || {
            fleet.revive()?;
            fleet.is_at(step)
        });
        let status =
            seen.with_context(|| format!("round {round}, killed: {struck:?}\n{}", fleet.logs()))?;
        if is_bad {
            let stages = status["conditions"].to_string();
            ensure!(
                stages.contains("RolledBack") && status["failures"][0]["reason"].is_string(),
                "{status:#}"
            );
        } else {
            last = help;
        }
        wait_for("every node has what the object says", PATIENCE, || {
            let found: Vec<String> = fleet.found().into_iter().map(|(help, _)| help).collect();
            ensure!(
                found == vec![last.clone(); 3],
                "round {round}, killed {struck:?}: {found:?}"
            );
            Ok(())
        })?;
        // No step changes a node twice: each node has one change. With a bad revision only the
        // canary has changes, one to the revision and one back.
        let changes: Vec<u64> = revisions(&fleet)
            .iter()
            .zip(&before)
            .map(|(after, before)| after - before)
            .collect();
        let expected = if is_bad { vec![2, 0, 0] } else { vec![1; 3] };
        ensure!(
            changes == expected,
            "round {round}, killed {struck:?}: {changes:?} changes"
        );
    }
    for node in &fleet.nodes {
        let (counted, sent) = node.counted()?;
        ensure!(
            counted == sent,
            "{}: {counted} packets of {sent}",
            node.name
        );
    }
    Ok(())
}
