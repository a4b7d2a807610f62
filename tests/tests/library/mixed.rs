//! All probes at once on one mixed traffic: the captures of all probes, in both directions of one
//! interface. Each probe counts what tshark finds in the traffic, including packets from the
//! captures of other probes. A check that can't hold on foreign traffic gives the reason (`alone`
//! in `check.json`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use twinprobe_tests::probes;
use twinprobe_tests::probes::capture::{Packet, of_direction, read_capture};
use twinprobe_tests::replays::pcap;
use twinprobe_tests::traffic::PacketSocket;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, Topology};

use crate::expected::{DIRECTIONS, configuration};
use crate::tshark::{Captures, disagreements};
use crate::wire::table_of_page;

/// The most probes at a hook.
const MOST: usize = 16;

/// The packets of all probes: those of a probe by time, with their direction.
fn packets() -> Result<Vec<(usize, Packet)>> {
    let mut all = Vec::new();
    for name in probes::names()? {
        let mut own = Vec::new();
        for (number, direction) in DIRECTIONS.iter().enumerate() {
            let capture = read_capture(&of_direction(&name, direction))?;
            own.extend(capture.into_iter().map(|packet| (number, packet)));
        }
        own.sort_by_key(|(_, packet)| packet.time);
        all.extend(own);
    }
    Ok(all)
}

/// Sends the packets. Returns captures of incoming and outgoing packets, with their times.
fn send(
    topology: &Topology,
    packets: &[(usize, Packet)],
    directory: &Path,
) -> Result<[PathBuf; 2]> {
    let sockets = [
        topology
            .generator()
            .enter(|| PacketSocket::open("gen0"))??,
        topology.monitor().enter(|| PacketSocket::open("mon0"))??,
    ];
    let mut sent: [Vec<(u64, &[u8])>; 2] = Default::default();
    let before = topology.mon0_stats()?;
    for (direction, packet) in packets {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        sockets[*direction].send(&packet.bytes)?;
        sent[*direction].push((u64::try_from(now.as_nanos())?, &packet.bytes));
    }
    wait_for("all packets have arrived", PATIENCE, || {
        let now = topology.mon0_stats()?;
        let passed = [
            now.rx_packets - before.rx_packets,
            now.tx_packets - before.tx_packets,
        ];
        ensure!(
            passed == [0, 1].map(|direction: usize| sent[direction].len() as u64),
            "{passed:?} packets"
        );
        Ok(())
    })?;
    let files = DIRECTIONS.map(|direction| directory.join(direction));
    for (file, packets) in files.iter().zip(sent) {
        fs::write(file, pcap(packets))?;
    }
    Ok(files)
}

/// Deploys a part of the probes, sends, and compares the counts.
fn mixed_traffic(part: usize, hook: &str) -> Result<()> {
    let topology = Topology::new()?;
    // With GRO several packets would reach TC as one.
    topology
        .monitor()
        .run("ethtool", &["-K", "mon0", "gro", "off"])?;
    let daemon = Daemon::start(topology.monitor())?;
    let names: Vec<String> = probes::names()?.into_iter().skip(part).step_by(2).collect();
    ensure!(
        names.len() <= MOST,
        "more than {MOST} probes need a third part"
    );
    for name in &names {
        let answer = daemon.put(&format!("/v1/probes/{name}"), &configuration(name, hook)?);
        ensure!(
            answer.status == 201,
            "PUT {name}: {} {}",
            answer.status,
            answer.text()
        );
    }
    let directory = tempfile::tempdir()?;
    let captures = Captures::new(send(&topology, &packets()?, directory.path())?)?;
    let mut wrong = String::new();
    for name in &names {
        let document = daemon.json(&format!("/v1/probes/{name}/metrics"));
        let check = probes::json(name, "check.json")?;
        let checks: Vec<&Value> = check["tshark"].as_array().into_iter().flatten().collect();
        let checks = checks
            .into_iter()
            .filter(|check| check.get("alone").is_none());
        for line in disagreements(&document, checks, &check["options"], &captures)? {
            wrong += &format!("{name}: {line}\n");
        }
    }
    ensure!(wrong.is_empty(), "\n{wrong}");
    Ok(())
}

#[test]
fn tshark_counts_the_same_of_mixed_traffic_at_xdp() -> Result<()> {
    mixed_traffic(0, "xdp")
}

#[test]
fn tshark_counts_the_same_of_mixed_traffic_at_tc() -> Result<()> {
    mixed_traffic(1, "tc")
}

/// The page lists every reason to compare a figure only on the capture of its probe, with the
/// number of such figures.
#[test]
fn the_page_says_which_figures_are_compared_alone_and_why() -> Result<()> {
    let (mut reasons, mut all) = (BTreeMap::<String, (usize, BTreeSet<String>)>::new(), 0);
    for name in probes::names()? {
        let check = probes::json(&name, "check.json")?;
        for figure in check["tshark"].as_array().into_iter().flatten() {
            all += 1;
            let Some(reason) = figure.get("alone") else {
                continue;
            };
            let reason = reason.as_str().context("a reason")?.to_owned();
            let (count, probes) = reasons.entry(reason).or_default();
            *count += 1;
            probes.insert(name.clone());
        }
    }
    let alone: usize = reasons.values().map(|(count, _)| count).sum();
    let mut table = String::from("| figures | why | probes |\n|---|---|---|\n");
    for (reason, (count, probes)) in reasons {
        let probes: Vec<&str> = probes.iter().map(String::as_str).collect();
        table += &format!("| {count} | {reason} | {} |\n", probes.join(", "));
    }
    table += &format!("| {} | (compared in all traffic) | |\n", all - alone);
    table_of_page("library::mixed", &table)
}
