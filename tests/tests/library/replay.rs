//! Each probe at each of its hooks, by a replay of its capture: no interface is needed, and clocks follow the capture.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::probes::capture::{of_direction, read_capture};
use twinprobe_tests::probes::{self, index};
use twinprobe_tests::replays::replay;
use twinprobe_tests::{Daemon, Topology};

use crate::expected::{agree, comparable, configuration, for_every_probe};

#[test]
fn replays_give_what_is_expected_at_every_hook() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for_every_probe(|name| {
        let entry = index::entry(name)?;
        let hooks = entry["hooks"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for (i, hook) in hooks.enumerate() {
            check(&daemon, name, hook, i == 0).with_context(|| hook.to_owned())?;
        }
        Ok(())
    })
}

fn check(daemon: &Daemon, name: &str, hook: &str, first: bool) -> Result<()> {
    let config = configuration(name, hook)?;
    let (mut captures, mut packets) = (Vec::new(), 0);
    for (direction, part) in [("ingress", "capture"), ("egress", "egress-capture")] {
        if config.get(direction).is_some() {
            let path = of_direction(name, direction);
            packets += read_capture(&path)?.len();
            captures.push((part, fs::read(&path)?));
        }
    }
    let captures: Vec<_> = captures.iter().map(|(part, bytes)| (*part, bytes.as_slice())).collect();
    let answer = replay(daemon, &config, &captures);
    ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
    let document: Value = answer.json();
    ensure!(document["replayed"]["packets"] == packets, "{} of {packets} packets", document["replayed"]);
    let found = comparable(&document);
    let path = probes::directory().join(name).join("expected.json");
    if first && std::env::var_os("UPDATE_GOLDEN").is_some() {
        // Only live probes show events.
        let mut wanted = found.clone();
        if let Some(events) = probes::json(name, "expected.json")?.get("events") {
            wanted["events"] = events.clone();
        }
        fs::write(&path, serde_json::to_string_pretty(&wanted)? + "\n")?;
    }
    let mut expected = comparable(&probes::json(name, "expected.json")?);
    expected["events"] = json!({});
    agree(&expected, &found)
}
