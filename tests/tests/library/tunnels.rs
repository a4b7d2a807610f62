//! Frames of a tunnel, whose inner headers repeat in each of them. The kernel hands over many
//! frames as one, in both directions of the interface below. The tests compare the counts of the
//! probes with the traffic that the kernel's own TCP has sent and that the interface has counted.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use twinprobe_tests::netns::Namespace;
use twinprobe_tests::probes;
use twinprobe_tests::topology::{InterfaceStats, interface_stats};
use twinprobe_tests::wire::{Connection, Traffic, pair, settled, switch_off};
use twinprobe_tests::{Daemon, Topology};

use crate::wire::{SENT, SUMS, Sum, counted, is_reset};

const BELOW: &str = "u0";
/// Ethernet, IPv4, UDP and VXLAN around each frame.
const AROUND: u64 = 14 + 20 + 8 + 8;
const ATTEMPTS: usize = 10;

/// The probes of [`SUMS`], without the one for TCP, because TCP is inside of the tunnel, and with
/// the one for tunnels.
fn sums() -> Vec<&'static Sum> {
    const TUNNEL: Sum = Sum {
        probe: "tunnel-inside",
        metric: "tunnel",
        packets: Some("packets_total"),
        bytes: Some("bytes_total"),
    };
    SUMS.iter()
        .filter(|sum| sum.probe != "tcp-flags")
        .chain([&TUNNEL])
        .collect()
}

/// Makes one end of the tunnel; the other end has the other number. Nothing asks for addresses.
fn end(namespace: &Namespace, number: u8) -> Result<()> {
    let other = 3 - number;
    let (own, far) = (format!("10.78.0.{number}"), format!("10.78.0.{other}"));
    let (mac, far_mac) = (
        format!("02:00:00:00:78:0{number}"),
        format!("02:00:00:00:78:0{other}"),
    );
    let (inside, far_inside) = (format!("10.79.0.{number}"), format!("10.79.0.{other}"));
    let (inner, far_inner) = (
        format!("02:00:00:00:79:0{number}"),
        format!("02:00:00:00:79:0{other}"),
    );
    let ip = |arguments: &str| namespace.run("ip", &arguments.split(' ').collect::<Vec<_>>());
    ip(&format!("link set {BELOW} address {mac} up"))?;
    ip(&format!("address add {own}/24 dev {BELOW}"))?;
    ip(&format!(
        "neigh replace {far} lladdr {far_mac} dev {BELOW} nud permanent"
    ))?;
    ip(&format!(
        "link add vx0 mtu 1450 address {inner} type vxlan id 77 local {own} remote {far} dstport 4789"
    ))?;
    ip("link set vx0 up")?;
    ip(&format!("address add {inside}/24 dev vx0"))?;
    ip(&format!(
        "neigh replace {far_inside} lladdr {far_inner} dev vx0 nud permanent"
    ))
}

struct Scene {
    daemon: Daemon,
    topology: Topology,
}

impl Scene {
    /// `cut`: frames are cut before they cross the pair, and put together after it; else they cross
    /// it uncut.
    fn new(cut: bool) -> Result<Self> {
        let topology = Topology::new()?;
        let (near, far) = (topology.monitor(), topology.generator());
        pair(near, BELOW, far, BELOW)?;
        for (namespace, number) in [(near, 1), (far, 2)] {
            if cut {
                switch_off(namespace, BELOW)?;
                namespace.run("ethtool", &["-K", BELOW, "tx-udp_tnl-segmentation", "off"])?;
                namespace.run(
                    "ethtool",
                    &["-K", BELOW, "tx-udp_tnl-csum-segmentation", "off"],
                )?;
                namespace.run("ethtool", &["-K", BELOW, "gro", "on"])?;
            }
            end(namespace, number)?;
        }
        let daemon = Daemon::start(near)?;
        for sum in sums() {
            let status = put(&daemon, sum.probe)?;
            let place = &status["interfaces"][0];
            ensure!(place["approximate"].is_null(), "{}: {place}", sum.probe);
        }
        // The probe counts the packets at the hook, where one packet may be several frames.
        put(&daemon, "entropy")?;
        Ok(Self { daemon, topology })
    }

    fn document(&self, probe: &str) -> Value {
        self.daemon.json(&format!("/v1/probes/{probe}/metrics"))
    }

    fn documents(&self) -> Vec<Value> {
        sums().iter().map(|sum| self.document(sum.probe)).collect()
    }

    fn stats(&self) -> Result<InterfaceStats> {
        interface_stats(self.topology.monitor(), BELOW)
    }
}

fn put(daemon: &Daemon, probe: &str) -> Result<Value> {
    let mut config = probes::configuration(probe, BELOW)?;
    if let Some(ingress) = config.get_mut("ingress").and_then(Value::as_object_mut) {
        ingress.insert("hook".to_owned(), "tc".into());
        ingress.remove("mode");
    }
    let answer = daemon.put(&format!("/v1/probes/{probe}"), &config);
    ensure!(
        answer.status == 201,
        "PUT {probe}: {} {}",
        answer.status,
        answer.text()
    );
    Ok(answer.json())
}

/// The packets that one side has sent through the tunnel: the frames outside, and the IP packets
/// inside.
fn through(sent: Traffic) -> (Traffic, u64) {
    let outside = Traffic {
        frames: sent.frames,
        bytes: sent.bytes + sent.frames * AROUND,
    };
    (outside, sent.bytes - sent.frames * 14)
}

/// Sends in both directions. Returns the packets that the daemon's side has received and sent.
fn transfer(scene: &Scene, open: &mut Vec<Connection>) -> Result<(Traffic, Traffic)> {
    let (near, far) = (scene.topology.monitor(), scene.topology.generator());
    let there = Connection::transfer(far, near, "10.79.0.1:0", SENT)?;
    let back = Connection::transfer(near, far, "10.79.0.2:0", SENT)?;
    let sent = settled(&there).and_then(|there| Ok((there, settled(&back)?)));
    open.extend([there, back]);
    let ((client, server), (near_client, far_server)) = sent?;
    Ok((client + far_server, server + near_client))
}

fn frames_of_tunnels_are_counted_with_all_their_headers(cut: bool) -> Result<()> {
    let (scene, mut open) = (Scene::new(cut)?, Vec::new());
    for attempt in 0.. {
        let (before, stats) = (scene.documents(), scene.stats()?);
        scene.document("entropy");
        match transfer(&scene, &mut open) {
            Ok(sent) => return compare(&scene, cut, sent, (&before, stats)),
            Err(error) if attempt < ATTEMPTS => eprintln!("{error:#}; all is sent once more"),
            Err(error) => bail!(error),
        }
    }
    Ok(())
}

fn compare(
    scene: &Scene,
    cut: bool,
    (received, sent): (Traffic, Traffic),
    (before, stats): (&[Value], InterfaceStats),
) -> Result<()> {
    let (after, entropy, now) = (scene.documents(), scene.document("entropy"), scene.stats()?);
    let ((received, inside), (sent, inside_sent)) = (through(received), through(sent));
    if cut {
        // Frames are cut before they are counted. With GRO a veth counts them without their
        // Ethernet headers.
        let counted = |frames, bytes| Traffic {
            frames,
            bytes: bytes + frames * 14,
        };
        let arrived = counted(
            now.rx_packets - stats.rx_packets,
            now.rx_bytes - stats.rx_bytes,
        );
        let left = counted(
            now.tx_packets - stats.tx_packets,
            now.tx_bytes - stats.tx_bytes,
        );
        ensure!(
            (arrived, left) == (received, sent),
            "ip -s link has {arrived:?} and {left:?}, {received:?} and {sent:?} were sent"
        );
    }
    for (direction, wanted, inner) in [("ingress", received, inside), ("egress", sent, inside_sent)]
    {
        let merged = packets_of(&entropy, direction)?;
        ensure!(
            merged < wanted.frames / 2,
            "{direction}: {merged} packets for {} frames",
            wanted.frames
        );
        let has_any = |document: &Value| {
            document[direction]
                .as_object()
                .is_some_and(|metrics| !metrics.is_empty())
        };
        let of_direction = before
            .iter()
            .zip(&after)
            .filter(|(_, after)| has_any(after));
        for (before, after) in of_direction {
            let sum = sums()
                .into_iter()
                .find(|sum| after["probe"] == sum.probe)
                .context("a probe")?;
            let first = if is_reset(sum.probe) {
                Traffic::default()
            } else {
                counted(before, sum, direction)?
            };
            let found = counted(after, sum, direction)?;
            let found = Traffic {
                frames: found.frames - first.frames,
                bytes: found.bytes - first.bytes,
            };
            let wanted = Traffic {
                frames: if sum.packets.is_some() {
                    wanted.frames
                } else {
                    0
                },
                bytes: if sum.bytes.is_some() { wanted.bytes } else { 0 },
            };
            ensure!(
                found == wanted,
                "{}, {direction}: {found:?}, and {wanted:?} were sent",
                sum.probe
            );
        }
        let of = |documents: &[Value]| {
            let tunnel = documents
                .last()
                .map(|document| document[direction]["tunnel"]["entries"].clone());
            let entries = tunnel
                .as_ref()
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            entries
                .filter_map(|entry| entry["value"]["inner_bytes_total"].as_u64())
                .sum::<u64>()
        };
        let found = of(&after) - of(before);
        ensure!(
            found == inner,
            "{direction}: {found} bytes inside, and {inner} were sent"
        );
    }
    Ok(())
}

/// Returns the packets that the hook has got since the reading before.
fn packets_of(document: &Value, direction: &str) -> Result<u64> {
    let entries = document[direction]["entropy"]["entries"]
        .as_array()
        .context("entries")?;
    Ok(entries
        .iter()
        .filter_map(|entry| entry["value"]["packets"].as_u64())
        .sum())
}

#[test]
fn frames_of_tunnels_that_cross_the_pair_uncut_are_counted_with_all_their_headers() -> Result<()> {
    frames_of_tunnels_are_counted_with_all_their_headers(false)
}

#[test]
fn frames_of_tunnels_that_are_put_together_are_counted_with_all_their_headers() -> Result<()> {
    frames_of_tunnels_are_counted_with_all_their_headers(true)
}
