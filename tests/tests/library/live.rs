//! Each probe at each of its hooks, on a veth over which its capture comes; then by a replay of the
//! capture, and with the commands of its README. One daemon does all of it, so it compiles each
//! source once.

use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use twinprobe_tests::probes::capture::{of_direction, read_capture};
use twinprobe_tests::probes::{self, index};
use twinprobe_tests::stream::Stream;
use twinprobe_tests::traffic::PacketSocket;
use twinprobe_tests::{Daemon, Topology};

use crate::expected::{PARTS, agree, comparable, configuration, for_part, without_timed};
use crate::{output, replay};

/// A daemon, and an interface that packets can be sent to and from.
struct Scene {
    daemon: Daemon,
    arriving: PacketSocket,
    leaving: PacketSocket,
    _topology: Topology,
}

impl Scene {
    fn new() -> Result<Self> {
        let topology = Topology::new()?;
        // With GRO several packets would reach TC as one.
        topology
            .monitor()
            .run("ethtool", &["-K", "mon0", "gro", "off"])?;
        Ok(Self {
            daemon: Daemon::start(topology.monitor())?,
            arriving: topology
                .generator()
                .enter(|| PacketSocket::open("gen0"))??,
            leaving: topology.monitor().enter(|| PacketSocket::open("mon0"))??,
            _topology: topology,
        })
    }

    /// Deploys a probe at mon0, its ingress at this hook, sends its captures, and returns the
    /// document and the events.
    fn document(&self, name: &str, hook: &str) -> Result<Value> {
        let config = configuration(name, hook)?;
        let answer = self.daemon.put(&format!("/v1/probes/{name}"), &config);
        anyhow::ensure!(
            answer.status == 201,
            "PUT: {} {}",
            answer.status,
            answer.text()
        );
        let status: Value = answer.json();
        let events = status["events"]
            .as_array()
            .is_some_and(|events| !events.is_empty());
        let stream = events
            .then(|| {
                Stream::open(
                    &self.daemon,
                    &format!("/v1/probes/{name}/events"),
                    "application/x-ndjson",
                )
            })
            .transpose()?;
        self.send(name, &config)?;
        let mut document = self.daemon.json(&format!("/v1/probes/{name}/metrics"));
        if let Some(mut stream) = stream {
            // The number that is expected; the program's own counters would tell of more.
            let expected = probes::json(name, "expected.json")?["events"]
                .as_array()
                .map_or(0, Vec::len);
            let event = || {
                Ok(serde_json::from_str(
                    &stream.line()?.context("the stream has ended")?,
                )?)
            };
            let events: Vec<Value> = std::iter::repeat_with(event)
                .take(expected)
                .collect::<Result<_>>()?;
            document["events"] = events.into();
        }
        self.daemon
            .delete(&format!("/v1/probes/{name}"))
            .expect(204);
        Ok(document)
    }

    /// Sends `capture.pcap` to the interface, and `egress.pcap` (or the same file) out of the
    /// interface, for each direction of the probe, in the order of time.
    fn send(&self, name: &str, config: &Value) -> Result<()> {
        let mut packets = Vec::new();
        for (direction, socket) in [("ingress", &self.arriving), ("egress", &self.leaving)] {
            if config.get(direction).is_some() {
                let capture = read_capture(&of_direction(name, direction))?;
                packets.extend(capture.into_iter().map(|packet| (packet, socket)));
            }
        }
        packets.sort_by_key(|(packet, _)| packet.time);
        for (packet, socket) in &packets {
            socket
                .send(&packet.bytes)
                .with_context(|| format!("send {} bytes", packet.bytes.len()))?;
        }
        Ok(())
    }
}

/// Checks the probes of one of the parts, which run beside each other.
fn captures_give_what_is_expected_at_every_hook(part: usize) -> Result<()> {
    let scene = Scene::new()?;
    for_part(part, |name| {
        let entry = index::entry(name)?;
        let hooks = entry["hooks"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        for (i, hook) in hooks.enumerate() {
            check(&scene, name, hook, i == 0).with_context(|| format!("{hook}, live"))?;
            replay::check(&scene.daemon, name, hook, i == 0)
                .with_context(|| format!("{hook}, replayed"))?;
        }
        output::check(&scene.daemon, name).context("the tables of its README")
    })
}

#[test]
fn captures_give_what_is_expected_1() -> Result<()> {
    captures_give_what_is_expected_at_every_hook(0)
}

#[test]
fn captures_give_what_is_expected_2() -> Result<()> {
    captures_give_what_is_expected_at_every_hook(1)
}

#[test]
fn captures_give_what_is_expected_3() -> Result<()> {
    captures_give_what_is_expected_at_every_hook(2)
}

#[test]
fn captures_give_what_is_expected_4() -> Result<()> {
    const { assert!(PARTS == 4, "each part has its test") };
    captures_give_what_is_expected_at_every_hook(3)
}

fn check(scene: &Scene, name: &str, hook: &str, first: bool) -> Result<()> {
    let found = comparable(&scene.document(name, hook)?);
    let path = probes::directory().join(name).join("expected.json");
    // Look at the figures before you commit them. Replays write the figures that depend on times.
    if first && std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, serde_json::to_string_pretty(&found)? + "\n")?;
    }
    let (expected, check) = (
        probes::json(name, "expected.json")?,
        probes::json(name, "check.json")?,
    );
    agree(
        &without_timed(comparable(&expected), &check),
        &without_timed(found, &check),
    )
}

/// Captures do not contain the marks of connections, so this test sends packets.
#[test]
fn packets_count_by_the_mark_of_their_connection() -> Result<()> {
    let scene = Scene::new()?;
    scene
        .daemon
        .put(
            "/v1/probes/conntrack-marks",
            &probes::configuration("conntrack-marks", "mon0")?,
        )
        .expect(201);
    for (mark, packets) in [(0, 7), (0x10, 5), (0x20, 3)] {
        scene.leaving.mark(mark)?;
        for _ in 0..packets {
            scene.leaving.send(&[0; 62])?;
        }
    }
    let document = scene.daemon.json("/v1/probes/conntrack-marks/metrics");
    let counted = |mark: &str, packets: u64| json!({ "key": { "mark": mark }, "value": { "packets_total": packets, "bytes_total": packets * 62 } });
    let found = comparable(&document)["egress"]["mark"]["entries"].clone();
    assert_eq!(
        found,
        json!([
            counted("0x00000000", 7),
            counted("0x00000010", 5),
            counted("0x00000020", 3)
        ])
    );
    Ok(())
}
