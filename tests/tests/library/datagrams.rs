//! Datagrams that a program hands over at once (`UDP_SEGMENT`), as senders of QUIC do: probes count
//! the resulting frames, in both directions of an interface. The test compares them with the
//! interface's own counters.

use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

use anyhow::{Result, ensure};
use serde_json::Value;
use twinprobe_tests::netns::Namespace;
use twinprobe_tests::topology::interface_stats;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::wire::{Traffic, pair, switch_off};
use twinprobe_tests::{Daemon, Topology, probes};

use crate::wire::{SUMS, Sum, counted, is_reset};

const BELOW: &str = "u0";
/// The option of `linux/udp.h`.
const UDP_SEGMENT: libc::c_int = 103;
/// The datagrams that are sent at once, and how often: the last datagram of each is shorter.
const SIZE: u16 = 1200;
const DATA: usize = 40 * SIZE as usize + 77;
const TIMES: u64 = 20;
/// Ethernet, IPv4 and UDP.
const HEADERS: u64 = 14 + 20 + 8;

/// The probes that also count datagrams.
fn sums() -> impl Iterator<Item = &'static Sum> {
    SUMS.iter().filter(|sum| sum.probe != "tcp-flags")
}

fn end(namespace: &Namespace, n: u8, gro: &[&str]) -> Result<()> {
    let m = 3 - n;
    for command in [
        format!("link set {BELOW} address 02:00:00:00:78:0{n} up"),
        format!("address add 10.78.0.{n}/24 dev {BELOW}"),
        format!("neigh replace 10.78.0.{m} lladdr 02:00:00:00:78:0{m} dev {BELOW} nud permanent"),
    ] {
        namespace.run("ip", &command.split(' ').collect::<Vec<_>>())?;
    }
    if gro.is_empty() {
        return Ok(());
    }
    switch_off(namespace, BELOW)?;
    namespace.run("ethtool", &[&["-K", BELOW][..], gro].concat())
}

/// Sends datagrams to a port with a listening socket, and returns the packets on the wire.
fn send(
    from: &Namespace,
    to: &Namespace,
    (source, target): (&str, &str),
) -> Result<(Traffic, UdpSocket)> {
    let receiver = to.enter(|| UdpSocket::bind((target, 0)))??;
    let socket = from.enter(|| UdpSocket::bind((source, 0)))??;
    socket.connect(receiver.local_addr()?)?;
    let size = libc::c_int::from(SIZE);
    // SAFETY: the option is a number, which the pointer leads to.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_UDP,
            UDP_SEGMENT,
            (&raw const size).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    ensure!(set == 0, "UDP_SEGMENT: {}", std::io::Error::last_os_error());
    for _ in 0..TIMES {
        ensure!(socket.send(&[7; DATA])? == DATA, "all is sent at once");
    }
    let frames = TIMES * DATA.div_ceil(usize::from(SIZE)) as u64;
    Ok((
        Traffic {
            frames,
            bytes: TIMES * DATA as u64 + frames * HEADERS,
        },
        receiver,
    ))
}

fn put(daemon: &Daemon, probe: &str) -> Result<()> {
    let mut config = probes::configuration(probe, BELOW)?;
    if let Some(ingress) = config.get_mut("ingress").and_then(Value::as_object_mut) {
        ingress.insert("hook".to_owned(), "tc".into());
        ingress.remove("mode");
    }
    let status = daemon
        .put(&format!("/v1/probes/{probe}"), &config)
        .expect(201)
        .json();
    ensure!(status["interfaces"][0]["approximate"].is_null(), "{status}");
    Ok(())
}

/// `gro`: the GRO features at the receiving side; without any, frames cross the pair uncut.
fn datagrams_are_counted_as_the_frames_that_they_become(gro: &[&str]) -> Result<()> {
    let topology = Topology::new()?;
    let (near, far) = (topology.monitor(), topology.generator());
    pair(near, BELOW, far, BELOW)?;
    end(near, 1, gro)?;
    end(far, 2, gro)?;
    let daemon = Daemon::start(near)?;
    sums().try_for_each(|sum| put(&daemon, sum.probe))?;
    let before = interface_stats(near, BELOW)?;
    let (sent, _receiver) = send(near, far, ("10.78.0.1", "10.78.0.2"))?;
    let (received, _near_receiver) = send(far, near, ("10.78.0.2", "10.78.0.1"))?;
    for sum in sums() {
        // Some probes count only one direction.
        let mut found: [Option<Traffic>; 2] = [None; 2];
        let wanted = |of: Traffic| Traffic {
            frames: if sum.packets.is_some() { of.frames } else { 0 },
            bytes: if sum.bytes.is_some() { of.bytes } else { 0 },
        };
        wait_for("all frames are counted", PATIENCE, || {
            let document = daemon.json(&format!("/v1/probes/{}/metrics", sum.probe));
            ensure!(document["approximate"].is_null(), "{document}");
            for (found, direction) in found.iter_mut().zip(["ingress", "egress"]) {
                if document[direction]
                    .as_object()
                    .is_some_and(|metrics| !metrics.is_empty())
                {
                    let now = counted(&document, sum, direction)?;
                    *found = Some(if is_reset(sum.probe) {
                        found.unwrap_or_default() + now
                    } else {
                        now
                    });
                }
            }
            let is_all = |(found, sent): (&Option<Traffic>, Traffic)| {
                found.is_none_or(|found| found == wanted(sent))
            };
            let is_there = found.iter().zip([received, sent]).all(is_all) && found != [None; 2];
            ensure!(
                is_there,
                "{}: {found:?}, and {received:?} and {sent:?} were sent",
                sum.probe
            );
            Ok(())
        })?;
    }
    if !gro.is_empty() {
        // The pair counts frames after the cut, and received frames without their Ethernet headers.
        let now = interface_stats(near, BELOW)?;
        let left = Traffic {
            frames: now.tx_packets - before.tx_packets,
            bytes: now.tx_bytes - before.tx_bytes,
        };
        ensure!(
            left.frames == sent.frames,
            "ip -s link has {left:?}, and {sent:?} were sent"
        );
        let arrived = now.rx_packets - before.rx_packets;
        ensure!(
            arrived == received.frames,
            "ip -s link has {arrived}, and {received:?} were sent"
        );
    }
    Ok(())
}

#[test]
fn datagrams_that_cross_the_pair_uncut_are_counted_as_the_frames_that_they_become() -> Result<()> {
    datagrams_are_counted_as_the_frames_that_they_become(&[])
}

#[test]
fn datagrams_that_are_cut_are_counted_as_the_frames_that_they_are() -> Result<()> {
    datagrams_are_counted_as_the_frames_that_they_become(&["gro", "on"])
}

#[test]
fn datagrams_that_are_put_together_are_counted_as_the_frames_that_they_were() -> Result<()> {
    datagrams_are_counted_as_the_frames_that_they_become(&[
        "gro",
        "on",
        "rx-udp-gro-forwarding",
        "on",
    ])
}

#[test]
fn datagrams_that_are_listed_are_counted_as_the_frames_that_they_were() -> Result<()> {
    datagrams_are_counted_as_the_frames_that_they_become(&["gro", "on", "rx-gro-list", "on"])
}
