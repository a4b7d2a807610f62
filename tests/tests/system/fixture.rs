//! Tests of the fixture: no packet is lost between the generator and a counter, and every flow gets
//! its share.

use std::{collections::BTreeSet, fs, path::PathBuf};

use crate::capture;
use anyhow::{Context as _, Result};
use twinprobe_tests::wait::PATIENCE;
use twinprobe_tests::{
    Topology,
    counter::{Counter, Place},
    netns::pin_to_cpu,
    scaled,
    traffic::{
        Frame, FrameOptions, Generator, GeneratorOptions, Load, PacedSender, Protocol, Spread,
    },
    wait::wait_for,
};

/// Returns the number of packets, which is not a multiple of the number of flows: some flows get
/// one packet more.
fn packets() -> u64 {
    scaled(1_000_003, 100_000_003)
}

/// The number of packets that may wait in the ring of a veth end.
const RING: u64 = 256;

fn generator(topology: &Topology, options: GeneratorOptions) -> Result<Generator> {
    Generator::new(topology.generator(), "gen0", options)
}

fn assert_spread(counter: &Counter, spread: &Spread, sent: u64) {
    let flows = counter.flows().unwrap();
    assert_eq!(flows.len() as u64, spread.flows());
    for ((address, port), packets) in flows {
        assert_eq!(
            packets,
            spread.expected(address, port, sent),
            "{address}:{port}"
        );
    }
}

#[test]
fn native_xdp_receives_every_packet() -> Result<()> {
    let topology = Topology::new()?;
    let counter = Counter::attach_with_flows(topology.monitor(), "mon0", Place::XdpDrop, 30_000)?;
    let mut generator = generator(&topology, GeneratorOptions::default())?;
    let packets = packets();
    generator.send(packets)?;
    assert_eq!(generator.sent()?, packets);
    assert_eq!(counter.packets()?, packets);
    assert_eq!(counter.bytes()?, packets * 60);
    if packets >= generator.spread().flows() {
        assert_spread(&counter, generator.spread(), packets);
    }
    Ok(())
}

#[test]
fn tc_ingress_receives_every_packet_in_the_background() -> Result<()> {
    let topology = Topology::new()?;
    let counter = Counter::attach_with_flows(topology.monitor(), "mon0", Place::TcIngress, 100)?;
    let spread = Spread {
        addresses: 3,
        ports: 7,
        ..Spread::default()
    };
    let generator = generator(
        &topology,
        GeneratorOptions {
            spread,
            ..GeneratorOptions::default()
        },
    )?;
    let packets = packets();
    let (generator, sent) = generator
        .spawn(Load {
            count: Some(packets),
            ..Load::default()
        })
        .into_generator()?;
    assert_eq!(
        (sent, generator.sent()?, counter.packets()?),
        (packets, packets, packets)
    );
    assert_spread(&counter, &spread, packets);
    assert_eq!(topology.mon0_stats()?.rx_packets, packets);
    Ok(())
}

#[test]
fn what_arrives_leaves_through_the_egress_hook() -> Result<()> {
    let topology = Topology::new()?;
    let ingress = Counter::attach(topology.monitor(), "mon0", Place::TcIngress)?;
    let egress = Counter::attach(topology.monitor(), "mon1", Place::TcEgress)?;
    let sink = Counter::attach(topology.sink(), "sink0", Place::XdpDrop)?;
    let mut generator = generator(&topology, GeneratorOptions::default())?;
    let packets = packets();
    let forward = topology.forward_to_egress()?;
    generator.send(packets)?;
    assert_eq!(
        (ingress.packets()?, egress.packets()?, sink.packets()?),
        (packets, packets, packets)
    );
    drop(forward);
    generator.send(1000)?;
    assert_eq!(
        (ingress.packets()?, egress.packets()?),
        (packets + 1000, packets)
    );
    Ok(())
}

#[test]
fn stopped_traffic_has_sent_what_it_says() -> Result<()> {
    let topology = Topology::new()?;
    let counter = Counter::attach(topology.monitor(), "mon0", Place::XdpDrop)?;
    let running = generator(&topology, GeneratorOptions::default())?.spawn(Load::default());
    while running.sent() == 0 && !running.is_finished() {
        std::thread::yield_now();
    }
    let sent = running.stop()?;
    assert!(sent > 0);
    assert_eq!(counter.packets()?, sent);
    Ok(())
}

#[test]
fn a_rate_is_kept_on_average() -> Result<()> {
    let topology = Topology::new()?;
    let counter = Counter::attach(topology.monitor(), "mon0", Place::XdpDrop)?;
    let load = Load {
        count: Some(50_000),
        rate: Some(100_000),
        ..Load::default()
    };
    let start = std::time::Instant::now();
    let sent = generator(&topology, GeneratorOptions::default())?
        .spawn(load)
        .join()?;
    assert_eq!((sent, counter.packets()?), (50_000, 50_000));
    assert!(
        start.elapsed().as_secs_f64() > 0.4,
        "50,000 packets at 100,000/s took {:?}",
        start.elapsed()
    );
    Ok(())
}

/// Frames have checksums that the network stack accepts: the ICMP, UDP and TCP counters of the
/// receiving namespace show no checksum error, and every packet is delivered to its protocol.
#[test]
fn frames_have_valid_checksums() -> Result<()> {
    for (protocol, length, vlan) in [
        (Protocol::Tcp, 60, None),
        (Protocol::Tcp, 1514, Some(5)),
        (Protocol::Udp, 61, None),
        (Protocol::Udp, 60, None),
        (Protocol::Icmp, 98, None),
    ] {
        let frame = Frame::build(&FrameOptions {
            protocol,
            length,
            vlan,
            ..FrameOptions::default()
        })?;
        let topology = Topology::new()?;
        let bad = checksum_errors(&topology, frame)?;
        assert_eq!(bad, 0, "{protocol:?} of {length} bytes");
    }
    Ok(())
}

/// The receiver of a paced sender gets every packet, even if the receiver runs only while the
/// sender waits.
#[test]
fn a_receiver_that_lags_behind_loses_no_packet_of_a_paced_sender() -> Result<()> {
    let kernel = fs::read_to_string("/proc/2/comm");
    if kernel.map_or(true, |name| name.trim() != "kthreadd") {
        println!(
            "not tried: in this process namespace no thread of the kernel can be seen, nor moved"
        );
        return Ok(());
    }
    let topology = Topology::new()?;
    let counter = Counter::attach_with_flows(topology.monitor(), "mon0", Place::XdpDrop, 30_000)?;
    let cpu = 0;
    receive_on_a_thread(&topology, cpu)?;
    // The scene is valid if the generator, which never waits, overflows the receiver's ring.
    let lossy = GeneratorOptions {
        cpu: Some(cpu),
        ..GeneratorOptions::default()
    };
    let packets = 30_000;
    generator(&topology, lossy)?.send(packets)?;
    let received = counter.packets()?;
    assert!(
        received < packets - RING,
        "the receiver keeps up with the generator: {received}"
    );
    drop(counter);

    // The test uses a new scene, because the packets of the generator that are left in the ring
    // would count for this sender.
    let topology = Topology::new()?;
    let counter = Counter::attach_with_flows(topology.monitor(), "mon0", Place::XdpDrop, 30_000)?;
    receive_on_a_thread(&topology, cpu)?;
    let spread = Spread::default();
    let mut sender = PacedSender::new(topology.generator(), "gen0", Frame::default(), spread)?;
    pin_to_cpu(cpu)?;
    // The second run continues with the flow where the first has ended.
    sender.send(packets / 3)?;
    sender.send(packets - packets / 3)?;
    assert_eq!((sender.sent(), counter.packets()?), (packets, packets));
    assert_spread(&counter, &spread, packets);
    Ok(())
}

/// Lets `mon0` receive on a thread of the processor `cpu`. That thread has the lowest priority: it
/// runs when others wait.
fn receive_on_a_thread(topology: &Topology, cpu: usize) -> Result<()> {
    let threads = || -> Result<BTreeSet<String>> {
        let processes = fs::read_dir("/proc")?.filter_map(Result::ok);
        let receives = |path: PathBuf| {
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            name.starts_with("napi/mon0-")
        };
        let found = processes.filter(|process| receives(process.path()));
        Ok(found
            .map(|process| process.file_name().to_string_lossy().into_owned())
            .collect())
    };
    let before = threads()?;
    // `ip netns exec` shows the namespace's own /sys.
    let name = topology
        .monitor()
        .path()
        .file_name()
        .context("a namespace has a name")?
        .to_string_lossy();
    let script = "echo 1 >/sys/class/net/mon0/threaded";
    topology
        .monitor()
        .run("ip", &["netns", "exec", &name, "sh", "-c", script])?;
    let thread = wait_for("the receiving thread", PATIENCE, || {
        threads()?
            .difference(&before)
            .next()
            .cloned()
            .context("none so far")
    })?;
    topology
        .monitor()
        .run("taskset", &["-pc", &cpu.to_string(), &thread])?;
    topology
        .monitor()
        .run("chrt", &["--idle", "-p", "0", &thread])
}

/// Captures the generator's packets of 100 flows in a raw socket and counts those whose checksums
/// are wrong.
fn checksum_errors(topology: &Topology, frame: Frame) -> Result<usize> {
    let spread = Spread {
        addresses: 10,
        ports: 10,
        ..Spread::default()
    };
    let mut generator = generator(
        topology,
        GeneratorOptions {
            frame: frame.clone(),
            spread,
            ..GeneratorOptions::default()
        },
    )?;
    let capture = capture::Capture::open(topology.monitor(), "mon0")?;
    generator.send(100)?;
    let packets = capture.frames(100)?;
    assert_eq!(packets.len(), 100);
    let mut paced = PacedSender::new(topology.generator(), "gen0", frame, spread)?;
    paced.send(100)?;
    // Both senders make the same frames.
    assert_eq!(capture.frames(100)?, packets);
    Ok(packets
        .iter()
        .filter(|packet| !capture::checksums_are_right(packet))
        .count())
}
