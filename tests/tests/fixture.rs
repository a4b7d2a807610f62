//! The fixture itself: no packet is lost between the generator and whoever counts, and every flow gets its share.

use anyhow::Result;
use twinprobe_tests::{
    Topology,
    counter::{Counter, Place},
    scaled,
    traffic::{Frame, FrameOptions, Generator, GeneratorOptions, Load, Protocol, Spread},
};

/// Not a multiple of the number of flows: some get one packet more.
fn packets() -> u64 {
    scaled(1_000_003, 100_000_003)
}

fn generator(topology: &Topology, options: GeneratorOptions) -> Result<Generator> {
    Generator::new(topology.generator(), "gen0", options)
}

fn assert_spread(counter: &Counter, spread: &Spread, sent: u64) {
    let flows = counter.flows().unwrap();
    assert_eq!(flows.len() as u64, spread.flows());
    for ((address, port), packets) in flows {
        assert_eq!(packets, spread.expected(address, port, sent), "{address}:{port}");
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
    let spread = Spread { addresses: 3, ports: 7, ..Spread::default() };
    let generator = generator(&topology, GeneratorOptions { spread, ..GeneratorOptions::default() })?;
    let packets = packets();
    let (generator, sent) =
        generator.spawn(Load { count: Some(packets), ..Load::default() }).into_generator()?;
    assert_eq!((sent, generator.sent()?, counter.packets()?), (packets, packets, packets));
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
    assert_eq!((ingress.packets()?, egress.packets()?, sink.packets()?), (packets, packets, packets));
    drop(forward);
    generator.send(1000)?;
    assert_eq!((ingress.packets()?, egress.packets()?), (packets + 1000, packets));
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
    let load = Load { count: Some(50_000), rate: Some(100_000), ..Load::default() };
    let start = std::time::Instant::now();
    let sent = generator(&topology, GeneratorOptions::default())?.spawn(load).join()?;
    assert_eq!((sent, counter.packets()?), (50_000, 50_000));
    assert!(start.elapsed().as_secs_f64() > 0.4, "50,000 packets at 100,000/s took {:?}", start.elapsed());
    Ok(())
}

/// The checksums are right in the eyes of the stack: `ping`, UDP and TCP counters of the receiving namespace see no
/// checksum error, and every packet is delivered to its protocol.
#[test]
fn frames_have_valid_checksums() -> Result<()> {
    for (protocol, length, vlan) in [
        (Protocol::Tcp, 60, None),
        (Protocol::Tcp, 1514, Some(5)),
        (Protocol::Udp, 61, None),
        (Protocol::Udp, 60, None),
        (Protocol::Icmp, 98, None),
    ] {
        let frame = Frame::build(&FrameOptions { protocol, length, vlan, ..FrameOptions::default() })?;
        let topology = Topology::new()?;
        let bad = checksum_errors(&topology, frame)?;
        assert_eq!(bad, 0, "{protocol:?} of {length} bytes");
    }
    Ok(())
}

/// Captures the generator's packets of 100 flows in a raw socket and counts those whose checksums are wrong.
fn checksum_errors(topology: &Topology, frame: Frame) -> Result<usize> {
    let spread = Spread { addresses: 10, ports: 10, ..Spread::default() };
    let mut generator =
        generator(topology, GeneratorOptions { frame, spread, ..GeneratorOptions::default() })?;
    let capture = capture::Capture::open(topology.monitor(), "mon0")?;
    generator.send(100)?;
    let packets = capture.frames(100)?;
    assert_eq!(packets.len(), 100);
    Ok(packets.iter().filter(|packet| !capture::checksums_are_right(packet)).count())
}

mod capture;
