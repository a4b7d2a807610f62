//! The probes `retransmissions` and `port-scan` over paths with round trips from 0.1 to 200 ms and
//! known losses, compared with the kernel's own TCP, and with tshark on the same frames.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use twinprobe_tests::traffic::{LossyWay, WayLosses};
use twinprobe_tests::{Daemon, Namespace, Topology, alone};

use crate::expected::{configuration, entries};

/// Every `LOST`th segment is lost.
const LOST: u64 = 50;
/// The data of a segment over Ethernet, with times.
const SEGMENT: usize = 1448;
/// The bytes after a gap that a receiver keeps; the kernel doubles them for its own needs.
const WINDOW: usize = 128 << 10;
/// The time after which a transfer has failed.
const LIMIT: Duration = Duration::from_secs(60);
/// The ports to which clients try to connect. All ports are closed.
const PORTS: std::ops::Range<u16> = 1000..1030;

/// A sender and a receiver with a way between them, and a daemon beside the receiver.
struct Scene {
    topology: Topology,
    daemon: Daemon,
    round_trip: Duration,
    directory: tempfile::TempDir,
}

impl Scene {
    fn new(probe: &str, round_trip: Duration) -> Result<Self> {
        let topology = Topology::new()?;
        for interface in ["mon0", "mon1"] {
            topology
                .monitor()
                .run("ethtool", &["-K", interface, "gro", "off"])?;
        }
        let ends = [
            (topology.generator(), "gen0", "10.77.0.1/24"),
            (topology.sink(), "sink0", "10.77.0.2/24"),
        ];
        for (namespace, interface, address) in ends {
            // Frames as they are on a wire, with checksums.
            let off = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"];
            namespace.run("ethtool", &[&["-K", interface][..], &off].concat())?;
            namespace.run("ip", &["link", "set", interface, "arp", "on"])?;
            namespace.run("ip", &["address", "add", address, "dev", interface])?;
        }
        keep_order(topology.monitor(), "mon0")?;
        keep_order(topology.sink(), "sink0")?;
        let daemon = Daemon::start(topology.sink())?;
        let mut config = configuration(probe, "tc")?;
        config["interface"] = "sink0".into();
        daemon
            .put(&format!("/v1/probes/{probe}"), &config)
            .expect(201);
        Ok(Self {
            topology,
            daemon,
            round_trip,
            directory: tempfile::tempdir()?,
        })
    }

    fn way(&self, losses: WayLosses) -> Result<LossyWay> {
        let monitor = self.topology.monitor();
        LossyWay::between(
            monitor,
            ["mon0", "mon1"],
            self.round_trip / 2,
            losses,
            &self.capture(),
        )
    }

    fn capture(&self) -> std::path::PathBuf {
        self.directory.path().join("arrived.pcap")
    }

    /// Waits until nothing has been under way for some round trips.
    fn settle(&self, way: &LossyWay) -> Result<()> {
        let (begun, mut last, mut since) = (Instant::now(), None, Instant::now());
        while since.elapsed() < 3 * self.round_trip + Duration::from_millis(400) {
            ensure!(
                begun.elapsed() < Duration::from_secs(60),
                "the way does not come to rest"
            );
            thread::sleep(Duration::from_millis(5));
            let now = way.at_rest();
            if now.is_none() || now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// Returns the number of packets that the kernel lost between the ends of a veth pair.
    fn dropped_by_kernel(&self) -> Result<u64> {
        let (topology, mut dropped) = (&self.topology, 0);
        let ends = [(topology.generator(), "gen0"), (topology.monitor(), "mon0")];
        let ends = ends
            .into_iter()
            .chain([(topology.monitor(), "mon1"), (topology.sink(), "sink0")]);
        for (namespace, interface) in ends {
            let links: Value = serde_json::from_str(
                &namespace.output("ip", &["-j", "-s", "link", "show", interface])?,
            )?;
            for way in ["rx", "tx"] {
                let lost = links[0]["stats64"][way]["dropped"].as_u64();
                dropped += lost.with_context(|| format!("dropped in {links}"))?;
            }
        }
        Ok(dropped)
    }

    /// Sends this many bytes. Returns the port of the receiving server, and the open sockets: a
    /// busy machine may send the end of a connection twice, which is a segment without data.
    fn transfer(&self, bytes: usize) -> Result<(u16, [TcpStream; 2])> {
        let listener = self
            .topology
            .sink()
            .enter(|| TcpListener::bind("10.77.0.2:0"))??;
        // At most four gaps are open at once, however late a busy machine sends again: the probe
        // remembers eight.
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, WINDOW)?;
        let address = listener.local_addr()?;
        let receiver = thread::spawn(move || -> Result<TcpStream> {
            let mut stream = listener.accept()?.0;
            stream.set_read_timeout(Some(LIMIT))?;
            stream.read_exact(&mut vec![0; bytes])?;
            Ok(stream)
        });
        let mut stream = self
            .topology
            .generator()
            .enter(|| TcpStream::connect(address))??;
        stream.set_write_timeout(Some(LIMIT))?;
        stream.write_all(&vec![7; bytes])?;
        let received = receiver.join().expect("the receiver does not panic")?;
        Ok((address.port(), [stream, received]))
    }
}

/// Has one CPU receive all packets of an interface (RPS). Otherwise each CPU that sends into a veth
/// pair has a queue of its own, and packets of a sender that moves to another CPU can overtake
/// those before them.
fn keep_order(namespace: &Namespace, interface: &str) -> Result<()> {
    let first_cpu = format!("echo 1 > /sys/class/net/{interface}/queues/rx-0/rps_cpus");
    // The mount shows the interfaces of the namespace, and ends with the command.
    let script = format!("mount -t sysfs sysfs /sys && {first_cpu}");
    namespace.run("unshare", &["--mount", "sh", "-c", &script])
}

/// Returns a counter of the TCP of a namespace.
fn counter(namespace: &Namespace, name: &str) -> Result<u64> {
    let text = namespace.enter(|| fs::read_to_string("/proc/thread-self/net/snmp"))??;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (
        lines.next().context("names")?,
        lines.next().context("values")?,
    );
    let found = names
        .split(' ')
        .zip(values.split(' '))
        .find(|(known, _)| *known == name);
    Ok(found.with_context(|| name.to_owned())?.1.parse()?)
}

/// Returns how many segments with data arrived after later ones, or a second time, by the sequence
/// numbers in tshark's output. The verdicts of tshark itself (`tcp.analysis`) depend on the time
/// between segments, and differ in each run.
fn late_by_tshark(capture: &Path) -> Result<u64> {
    let fields = ["-T", "fields", "-e", "tcp.seq", "-e", "tcp.len"];
    let filter = ["-Y", "ip.src == 10.77.0.1 && tcp.len > 0"];
    let output = Command::new("tshark")
        .arg("-r")
        .arg(capture)
        .args(filter)
        .args(fields)
        .output()?;
    ensure!(
        output.status.success(),
        "tshark: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let (mut late, mut next) = (0, 0);
    for line in String::from_utf8(output.stdout)?.lines() {
        let (number, length) = line.split_once('\t').with_context(|| line.to_owned())?;
        let (number, length): (u64, u64) = (number.parse()?, length.parse()?);
        late += u64::from(number < next);
        next = next.max(number + length);
    }
    Ok(late)
}

/// Repeated segments differ from late ones. The probe finds as many repeated segments as the
/// sender's kernel has repeated, as many gaps as segments were lost, and no overtaken segment: this
/// path keeps the order.
fn what_is_lost_was_sent_again(round_trip: Duration, segments: u64) -> Result<()> {
    let scene = Scene::new("retransmissions", round_trip)?;
    // A loss at the end leaves no gap, because no later segment shows it.
    let way = scene.way(WayLosses {
        one_in: LOST,
        until: segments * 3 / 4,
    })?;
    let (port, ends) = scene.transfer(segments as usize * SEGMENT)?;
    scene.settle(&way)?;
    let lost = way.passed.lost.load(Ordering::SeqCst);
    let sent_again = counter(scene.topology.generator(), "RetransSegs")?;
    // A segment that was lost just before the window closed is the next one that the receiver gets.
    let hidden = way.passed.hidden.load(Ordering::SeqCst);
    let (gaps, late) = (lost - hidden, sent_again - hidden);
    let document = scene.daemon.json("/v1/probes/retransmissions/metrics");
    drop((ends, way));
    let found = &document["ingress"]["tcp"]["entries"][0]["value"];
    let field = |name: &str| {
        found[name]
            .as_u64()
            .with_context(|| format!("{name} in {found}"))
    };
    ensure!(lost >= segments * 3 / 4 / LOST, "{lost} lost");
    let dropped = scene.dropped_by_kernel()?;
    ensure!(
        dropped == 0,
        "the kernel itself lost {dropped} packets: {found}"
    );
    let overtaken = field("out_of_order_segments_total")?;
    assert_eq!(
        field("retransmitted_segments_total")? + overtaken,
        late,
        "{lost} lost, {hidden} hidden: {found}"
    );
    // An acknowledgement of a repeated segment tells the sender that an earlier segment is lost
    // (RACK). The sender waits for a quarter of a round trip, and may send new data meanwhile. In a
    // short round trip, the sender's clock shows the same millisecond for both.
    let most = if round_trip < Duration::from_millis(4) {
        sent_again / 10
    } else {
        0
    };
    ensure!(
        overtaken <= most,
        "{overtaken} taken for overtaken: {found}"
    );
    assert_eq!(
        field("gaps_total")?,
        gaps,
        "{lost} lost, {hidden} hidden: {found}"
    );
    assert_eq!(
        field("lost_before_segments_total")? + overtaken,
        gaps,
        "{found}"
    );
    assert_eq!(
        late_by_tshark(&scene.capture())?,
        late,
        "{hidden} hidden: {found}"
    );
    // There is only one connection, so its server's port has all counts.
    let ports = entries(&document, "ingress", "tcp_port")?;
    ensure!(
        ports.len() == 1 && ports[0]["key"]["server_port"] == port,
        "{port}: {ports:?}"
    );
    for (name, value) in ports[0]["value"].as_object().into_iter().flatten() {
        assert_eq!(*value, found[name], "{name} of {found}");
    }
    Ok(())
}

#[alone(
    "the traffic of other tests fills the queues of this processor, and the kernel drops packets"
)]
fn what_is_lost_over_100_microseconds_was_sent_again() -> Result<()> {
    what_is_lost_was_sent_again(Duration::from_micros(100), 4000)
}

#[alone(
    "the traffic of other tests fills the queues of this processor, and the kernel drops packets"
)]
fn what_is_lost_over_1_millisecond_was_sent_again() -> Result<()> {
    what_is_lost_was_sent_again(Duration::from_millis(1), 4000)
}

#[alone(
    "the traffic of other tests fills the queues of this processor, and the kernel drops packets"
)]
fn what_is_lost_over_3_milliseconds_was_sent_again() -> Result<()> {
    what_is_lost_was_sent_again(Duration::from_millis(3), 4000)
}

#[alone(
    "the traffic of other tests fills the queues of this processor, and the kernel drops packets"
)]
fn what_is_lost_over_20_milliseconds_was_sent_again() -> Result<()> {
    what_is_lost_was_sent_again(Duration::from_millis(20), 1200)
}

#[alone(
    "the traffic of other tests fills the queues of this processor, and the kernel drops packets"
)]
fn what_is_lost_over_200_milliseconds_was_sent_again() -> Result<()> {
    what_is_lost_was_sent_again(Duration::from_millis(200), 300)
}

/// A scanner by connections of the kernel: each port counts once. Each arriving attempt counts too,
/// also the second one at a port after a lost first one.
fn ports_are_counted(round_trip: Duration) -> Result<()> {
    let scene = Scene::new("port-scan", round_trip)?;
    let way = scene.way(WayLosses {
        one_in: 7,
        until: u64::MAX,
    })?;
    thread::scope(|scope| {
        let attempt = |port: u16| {
            let address = SocketAddr::from(([10, 77, 0, 2], port));
            scene
                .topology
                .generator()
                .enter(|| TcpStream::connect_timeout(&address, LIMIT))
        };
        let attempts: Vec<_> = PORTS
            .map(|port| scope.spawn(move || attempt(port)))
            .collect();
        for attempt in attempts {
            let refused = attempt
                .join()
                .expect("no panic")?
                .err()
                .map(|error| error.kind());
            ensure!(refused == Some(ErrorKind::ConnectionRefused), "{refused:?}");
        }
        Ok(())
    })?;
    scene.settle(&way)?;
    let (lost, arrived) = (&way.passed.lost, &way.passed.attempts);
    let (lost, arrived) = (lost.load(Ordering::SeqCst), arrived.load(Ordering::SeqCst));
    let document = scene.daemon.json("/v1/probes/port-scan/metrics");
    let entries = document["ingress"]["scan"]["entries"]
        .as_array()
        .context("entries")?;
    ensure!(entries.len() == 1, "one source: {entries:?}");
    let value: &Value = &entries[0]["value"];
    ensure!(lost >= 4, "{lost} lost");
    ensure!(
        value["tries"] == arrived && arrived >= PORTS.len() as u64,
        "{arrived} arrived: {}",
        value["tries"]
    );
    ensure!(
        value["ports"]["different"] == PORTS.len(),
        "{}",
        value["ports"]["different"]
    );
    ensure!(
        value["addresses"]["different"] == 1,
        "{}",
        value["addresses"]["different"]
    );
    Ok(())
}

#[test]
fn ports_are_counted_over_100_microseconds() -> Result<()> {
    ports_are_counted(Duration::from_micros(100))
}

#[test]
fn ports_are_counted_over_1_millisecond() -> Result<()> {
    ports_are_counted(Duration::from_millis(1))
}

#[test]
fn ports_are_counted_over_3_milliseconds() -> Result<()> {
    ports_are_counted(Duration::from_millis(3))
}

#[test]
fn ports_are_counted_over_20_milliseconds() -> Result<()> {
    ports_are_counted(Duration::from_millis(20))
}

#[test]
fn ports_are_counted_over_200_milliseconds() -> Result<()> {
    ports_are_counted(Duration::from_millis(200))
}
