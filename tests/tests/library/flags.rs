//! TCP flags of packets that the kernel later cuts into several frames: the test expects the flags
//! of these frames.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::traffic::PacketSocket;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, Topology};

use crate::expected::{configuration, entries};

const FRAMES: u64 = 3;
const SIZE: u16 = 1000;
/// FIN, PSH, ACK, ECE and CWR.
const FLAGS: u8 = 0xd9;

/// A TCP packet over IPv4 that the kernel must cut, after the header that demands this.
fn packet() -> Vec<u8> {
    let data = FRAMES as u16 * SIZE;
    // The header for the kernel: a checksum is missing, the packet is TCP over IPv4 with flags of
    // ECN, the length of the headers, the size of segments, and the place of the checksum.
    let mut packet = vec![1, 0x81];
    packet.extend([54, SIZE, 34, 16].map(u16::to_ne_bytes).concat());
    packet.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0]);
    packet.extend((40 + data).to_be_bytes());
    packet.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 78, 0, 1, 10, 78, 0, 2]);
    packet.extend([
        4, 210, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, FLAGS, 0, 1, 0, 0, 0, 0,
    ]);
    packet.resize(packet.len() + usize::from(data), 7);
    packet
}

/// Returns the number of a metric's entry.
fn number(
    document: &Value,
    direction: &str,
    metric: &str,
    key: &str,
    field: Option<&str>,
) -> Result<u64> {
    let found = entries(document, direction, metric)?
        .iter()
        .find(|entry| entry["key"] == key);
    let value =
        &found.with_context(|| format!("no {direction}.{metric}.{key} in {document}"))?["value"];
    field
        .map_or(value, |field| &value[field])
        .as_u64()
        .with_context(|| value.to_string())
}

/// ECE is in each frame, CWR in the first, FIN and PSH in the last: before and after the kernel
/// cuts the packet.
#[test]
fn flags_are_those_of_the_frames_before_and_after_they_are_cut() -> Result<()> {
    let topology = Topology::new()?;
    let (near, far) = (topology.monitor(), topology.generator());
    for (namespace, name) in [(near, "mon0"), (far, "gen0")] {
        namespace.run(
            "ethtool",
            &["-K", name, "tso", "off", "gso", "off", "gro", "off"],
        )?;
    }
    let (sender, receiver) = (Daemon::start(near)?, Daemon::start(far)?);
    for probe in ["dscp-ecn", "tcp-flags"] {
        let mut config = configuration(probe, "tc")?;
        sender
            .put(&format!("/v1/probes/{probe}"), &config)
            .expect(201);
        config["interface"] = json!("gen0");
        receiver
            .put(&format!("/v1/probes/{probe}"), &config)
            .expect(201);
    }
    near.enter(|| PacketSocket::uncut("mon0"))??
        .send(&packet())?;
    for (daemon, direction) in [(&sender, "egress"), (&receiver, "ingress")] {
        let [signals, flags] =
            ["dscp-ecn", "tcp-flags"].map(|probe| format!("/v1/probes/{probe}/metrics"));
        let count = |key| {
            number(
                &daemon.json(&signals),
                direction,
                "ecn_tcp_packets_total",
                key,
                None,
            )
        };
        wait_for("the frames have arrived", PATIENCE, || count("CWR"))?;
        ensure!(
            count("ECE")? == FRAMES,
            "{direction}: {} frames with ECE",
            count("ECE")?
        );
        ensure!(
            count("CWR")? == 1,
            "{direction}: {} frames with CWR",
            count("CWR")?
        );
        let document = daemon.json(&flags);
        for (key, frames) in [("ACK", FRAMES - 1), ("FIN_PSH_ACK", 1)] {
            let found = number(
                &document,
                direction,
                "tcp_flags",
                key,
                Some("packets_total"),
            )?;
            ensure!(found == frames, "{direction}: {found} frames with {key}");
            let found = number(&document, direction, "tcp_flags", key, Some("bytes_total"))?;
            ensure!(
                found == frames * (u64::from(SIZE) + 54),
                "{direction}: {found} bytes with {key}"
            );
        }
    }
    Ok(())
}
