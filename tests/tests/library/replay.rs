//! Each probe at each of its hooks, by a replay of its capture: no interface is needed, and clocks
//! follow the capture.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::Daemon;
use twinprobe_tests::probes;
use twinprobe_tests::probes::capture::{of_direction, read_capture};
use twinprobe_tests::replays::{self, replay};

use crate::expected::{agree, comparable, configuration};
use crate::promtool;

pub fn check(daemon: &Daemon, name: &str, hook: &str, first: bool) -> Result<()> {
    let config = configuration(name, hook)?;
    let (mut captures, mut packets) = (Vec::new(), 0);
    for (direction, part) in [("ingress", "capture"), ("egress", "egress-capture")] {
        if config.get(direction).is_some() {
            let path = of_direction(name, direction);
            packets += read_capture(&path)?.len();
            captures.push((part, fs::read(&path)?));
        }
    }
    let captures: Vec<_> = captures
        .iter()
        .map(|(part, bytes)| (*part, bytes.as_slice()))
        .collect();
    let answer = replay(daemon, &config, &captures);
    ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
    let document: Value = answer.json();
    ensure!(
        document["replayed"]["packets"] == packets,
        "{} of {packets} packets",
        document["replayed"]
    );
    let found = comparable(&document);
    let path = probes::directory().join(name).join("expected.json");
    if first && std::env::var_os("UPDATE_GOLDEN").is_some() {
        // Live probes alone show events.
        let mut wanted = found.clone();
        if let Some(events) = probes::json(name, "expected.json")?.get("events") {
            wanted["events"] = events.clone();
        }
        fs::write(&path, serde_json::to_string_pretty(&wanted)? + "\n")?;
    }
    if first {
        let text = config.to_string();
        let parts = [&[("config", text.as_bytes())], &captures[..]].concat();
        let (content_type, body) = replays::body(&parts);
        let headers = [("Content-Type", content_type.as_str()), promtool::TEXT];
        let page = daemon
            .request("POST", "/v1/replay", &headers, &body)
            .expect(200);
        promtool::lint(page.text()).context("as Prometheus reads it")?;
    }
    let mut expected = comparable(&probes::json(name, "expected.json")?);
    expected["events"] = json!({});
    agree(&expected, &found)
}
