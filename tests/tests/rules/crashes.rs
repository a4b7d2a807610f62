//! A daemon that dies at each step of a decision. The next one continues: each window is judged
//! once, each action is taken.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::json;
use twinprobe_tests::{Daemon, DaemonOptions, Directories, Topology};

use crate::scene::{
    Receiver, close, close_until_death, counter, deploys, generator, rule, wait_for_rule,
};

/// The steps, and how often each comes before the daemon dies there.
const STEPS: [(&str, u32); 10] = [
    ("rule_judged", 1),
    ("rule_judged", 2),
    ("rule_loaded", 1),
    ("rule_decided", 1),
    ("rule_decided", 2),
    ("rule_acted", 1),
    ("rule_acted", 2),
    ("rule_acted", 3),
    ("rule_notified", 1),
    ("rule_ended", 1),
];

#[test]
fn actions_are_taken_once_whatever_step_is_the_last() -> Result<()> {
    let topology = Topology::new()?;
    let receiver = Receiver::new(&topology)?;
    for (step, times) in STEPS {
        crash(&topology, &receiver, step, times)
            .map_err(|error| error.context(format!("{step}:{times}")))?;
    }
    Ok(())
}

fn crash(topology: &Topology, receiver: &Receiver, step: &str, times: u32) -> Result<()> {
    receiver.identities.lock().expect("no panic").clear();
    let dying =
        DaemonOptions::default().environment("TWINPROBE_CRASH_AT", format!("{step}:{times}"));
    let daemon = Daemon::start_with(topology.monitor(), &dying)?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    let actions = json!([deploys("fine"), { "notify": receiver.url() }, deploys("finer")]);
    daemon.put("/v1/rules/many", &rule(&actions)).expect(201);
    let mut generator = generator(topology)?;
    generator.send(10)?;
    let closes_again = times == 2 && step != "rule_acted" || step == "rule_ended";
    close_until_death(&daemon, closes_again)?;
    let directories: Arc<Directories> = daemon.kill()?;
    let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    let closed = daemon.json("/v1/probes/p")["windows"]["newest"]
        .as_u64()
        .unwrap_or_default();
    ensure!(
        closed > 0,
        "the first window was on disk before it was judged"
    );
    wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["done"].is_string() && status["window"] == closed
    })?;
    if closed == 1 {
        let status = daemon.json("/v1/rules/many");
        ensure!(status["probes"] == json!(["fine", "finer"]), "{status}");
        close(&daemon);
    }
    wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["ended"].is_string()
    })?;
    daemon.get("/v1/probes/fine").expect(404);
    daemon.get("/v1/probes/finer").expect(404);
    generator.send(10)?;
    close(&daemon);
    let status = wait_for_rule(&daemon, "many", |status| {
        status["firings"][1]["done"].is_string()
    })?;
    let windows: Vec<_> = status["firings"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|firing| &firing["window"])
        .collect();
    ensure!(
        windows == [1, 3] && status["missed"] == 0 && status["window"] == 3,
        "{status}"
    );
    let told = receiver.identities.lock().expect("no panic").clone();
    let distinct: BTreeSet<&String> = told.iter().collect();
    ensure!(distinct.len() == 2 && told.len() <= 3, "{told:?}");
    daemon.delete("/v1/rules/many").expect(204);
    daemon.delete("/v1/probes/p").expect(204);
    drop(daemon.terminate()?);
    Ok(())
}
