//! The estimate of the probe `port-scan` for scans of any size, by real packets.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::traffic::{Frame, FrameOptions, PacketSocket};
use twinprobe_tests::{Daemon, Topology};

use crate::expected::configuration;

/// The sizes of the scans: for each, one source tries this many ports.
const SIZES: [u16; 7] = [40, 250, 1000, 2500, 6000, 20_000, 60_000];
/// The place of the destination port in a frame of TCP over IPv4.
const PORT: usize = 36;

#[test]
fn scans_of_all_sizes_are_estimated() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon
        .put("/v1/probes/port-scan", &configuration("port-scan", "tc")?)
        .expect(201);
    let socket = topology
        .generator()
        .enter(|| PacketSocket::open("gen0"))??;
    let frame = Frame::build(&FrameOptions::default())?;
    for (size, source) in SIZES.iter().zip(1..) {
        let mut frame = frame.from_source(Ipv4Addr::new(203, 0, 113, source), 61_000);
        for port in 1..=*size {
            frame[PORT..PORT + 2].copy_from_slice(&port.to_be_bytes());
            socket.send(&frame)?;
        }
    }
    let document = daemon
        .get("/v1/probes/port-scan/metrics")
        .expect(200)
        .json();
    let entries = document["ingress"]["scan"]["entries"]
        .as_array()
        .context("entries")?;
    for (size, source) in SIZES.iter().zip(1..) {
        let key = format!("203.0.113.{source}");
        let entry = entries
            .iter()
            .find(|entry| entry["key"] == key.as_str())
            .context(key)?;
        let (tries, ports) = (
            &entry["value"]["tries"],
            &entry["value"]["ports"]["different"],
        );
        ensure!(tries == size, "{tries} of {size} packets");
        let ports = ports.as_f64().context("a number")?;
        let error = ports / f64::from(*size) - 1.0;
        ensure!(
            error.abs() < 0.08,
            "{ports} for {size} ports: {:.1} %",
            error * 100.0
        );
    }
    Ok(())
}
