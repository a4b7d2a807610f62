//! A node with windows of flows, and a stream that sends them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::probes::capture::{of_direction, read_capture};
use twinprobe_tests::probes::configuration;
use twinprobe_tests::traffic::PacketSocket;
use twinprobe_tests::{Daemon, Topology};

use crate::scene::{COLLECTOR, stream};

const PROBE: &str = "flow-features";

/// A node whose probe makes tables of flows.
pub struct FlowNode {
    daemon: Daemon,
    packets: PacketSocket,
    _topology: Topology,
}

impl FlowNode {
    /// Deploys the probe. Each window ends by [`FlowNode::window`] alone.
    pub fn new() -> Result<Self> {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        let mut config = configuration(PROBE, "mon0")?;
        let ingress = config["ingress"].as_object_mut().context("ingress")?;
        ingress.insert(
            "defines".to_owned(),
            json!({ "FEATURES": "15", "F_IN_OCTETS": "1", "F_END_REASON": "1" }),
        );
        config["window"] = json!({ "retain": 1_000, "collectors": [COLLECTOR] });
        let answer = daemon.put(&format!("/v1/probes/{PROBE}"), &config);
        ensure!(answer.status == 201, "{}", answer.text());
        let packets = topology
            .generator()
            .enter(|| PacketSocket::open("gen0"))??;
        Ok(Self {
            daemon,
            packets,
            _topology: topology,
        })
    }

    /// Sends the capture of the probe, and ends the window. Returns its document.
    pub fn window(&self) -> Result<Value> {
        for packet in read_capture(&of_direction(PROBE, "ingress"))? {
            self.packets.send(&packet.bytes)?;
        }
        let answer = self
            .daemon
            .request("POST", &format!("/v1/probes/{PROBE}/windows"), &[], b"");
        Ok(answer.expect(201).json())
    }

    /// The windows that the stream has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        let list = self
            .daemon
            .json(&format!("/v1/probes/{PROBE}/windows?collector={COLLECTOR}"));
        list["windows"].as_array().map_or(0, Vec::len)
    }

    /// Writes a configuration that sends the windows to this receiver.
    pub fn configuration(&self, directory: &Path, to: &Value) -> Result<PathBuf> {
        let server = format!("unix:{}", self.daemon.directories().socket().display());
        let config = json!({ "name": COLLECTOR, "from": { "servers": [server] }, "to": [to] });
        let path = directory.join("stream.json");
        std::fs::write(&path, config.to_string())?;
        Ok(path)
    }
}

/// Sends the available windows, and ends. Returns the stream's output.
pub fn send_all(config: &Path) -> Result<String> {
    let output = stream(&["-f", &config.display().to_string(), "--once"])?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{told}");
    Ok(told)
}
