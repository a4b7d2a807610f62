//! Conversations of the kernel's own TCP and UDP, recorded by dumpcap at the interface: probes
//! whose figures depend on connections, sources or times count in it what tshark finds.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::probes::capture::read_capture;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, Namespace, Topology, probes};

use crate::tshark::{Captures, disagreements};

/// The ports of the server, and how many connections each gets.
const SERVED: [(u16, usize); 2] = [(80, 7), (443, 5)];
/// Ports at which no program listens.
const CLOSED: [u16; 4] = [22, 23, 25, 8080];
const DATAGRAMS: usize = 30;
/// The sizes of a question and of an answer in bytes.
const QUESTION: usize = 300;
const ANSWER: usize = 20_000;

/// A connection that was opened and closed properly, for tshark.
const WHOLE: &str = "tcp.completeness == 31";
const BEGINS: &str = "tcp.flags.syn == 1 && tcp.flags.ack == 0";
const ACCEPTED: &str = "tcp.flags.syn == 1 && tcp.flags.ack == 1";
const REFUSED: &str = "tcp.flags.reset == 1 && tcp.flags.ack == 1";
/// The bytes that take a place in the order of a stream.
const SEGMENTS: &str =
    "tcp.flags.reset == 0 && (tcp.len > 0 || tcp.flags.syn == 1 || tcp.flags.fin == 1)";

/// The probes and the questions to tshark, as in `check.json`. They can't be compared on the
/// captures of other probes. `entropy` and `inter-arrival` count packets in the form in which they
/// come, and the kernel has not cut them before TC egress.
fn checks() -> [(&'static str, Vec<Value>); 8] {
    let packets = |direction: &str, filter: &str, metric: &str, value: &str| json!({ "direction": direction, "filter": filter, "count": "packets", "metric": metric, "value": value });
    let each = |filter: &str, metric: &str, value: &str| {
        ["ingress", "egress"].map(|direction| packets(direction, filter, metric, value))
    };
    let both = |filter: &str, count: Value, metric: &str, value: &str| json!({ "passes": "both", "filter": filter, "count": count, "metric": metric, "value": value });
    let streams = json!({ "distinct": "tcp.stream" });
    let flows = vec![
        packets("ingress", "tcp || udp", "flows", "IN_PKTS"),
        json!({ "filter": "tcp || udp", "count": "bytes", "metric": "flows", "value": "IN_BYTES" }),
        json!({ "filter": "tcp", "count": streams, "metric": "flows", "key": { "PROTOCOL": "TCP" },
            "value": "entries" }),
    ];
    [
        ("flow-features", flows),
        (
            "distinct-sources",
            each("ip", "sources", "packets").to_vec(),
        ),
        (
            "entropy",
            vec![packets("ingress", "ip", "entropy", "packets")],
        ),
        (
            "inter-arrival",
            vec![
                json!({ "filter": "frame.number > 1", "count": "packets", "metric": "inter_arrival_nanoseconds" }),
            ],
        ),
        (
            "connection-states",
            vec![
                both(
                    BEGINS,
                    streams.clone(),
                    "tcp_connection_events",
                    "begun_total",
                ),
                both(
                    ACCEPTED,
                    streams.clone(),
                    "tcp_connection_events",
                    "opened_total",
                ),
                both(
                    WHOLE,
                    streams.clone(),
                    "tcp_connection_events",
                    "closed_total",
                ),
                both(
                    REFUSED,
                    streams.clone(),
                    "tcp_connection_events",
                    "refused_total",
                ),
            ],
        ),
        (
            "handshake-latency",
            vec![
                both(BEGINS, streams.clone(), "tcp_handshake", "begun_total"),
                both(
                    ACCEPTED,
                    streams.clone(),
                    "tcp_handshake",
                    "completed_total",
                ),
                both(REFUSED, streams, "tcp_handshake", "refused_total"),
            ],
        ),
        (
            "port-scan",
            vec![packets("ingress", "tcp.flags == 2 || udp", "scan", "tries")],
        ),
        (
            "retransmissions",
            each(SEGMENTS, "tcp", "segments_total").to_vec(),
        ),
    ]
}

/// Frames as they are on a wire, between two addresses that no host asks for.
fn scene() -> Result<Topology> {
    let topology = Topology::new()?;
    let ends = [
        (topology.generator(), "gen0", 1),
        (topology.monitor(), "mon0", 2),
    ];
    for (namespace, interface, number) in ends {
        let off = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"];
        namespace.run("ethtool", &[&["-K", interface][..], &off].concat())?;
        let mac = |number: u8| format!("02:00:00:00:80:0{number}");
        namespace.run(
            "ip",
            &[
                "link",
                "set",
                interface,
                "address",
                &mac(number),
                "arp",
                "on",
            ],
        )?;
        namespace.run(
            "ip",
            &[
                "address",
                "add",
                &format!("10.80.0.{number}/24"),
                "dev",
                interface,
            ],
        )?;
        let other = format!("10.80.0.{}", 3 - number);
        let neighbour = [
            &other[..],
            "lladdr",
            &mac(3 - number),
            "dev",
            interface,
            "nud",
            "permanent",
        ];
        namespace.run("ip", &[&["neigh", "replace"][..], &neighbour].concat())?;
    }
    Ok(topology)
}

/// dumpcap, which writes the packets of an interface. It ends on drop.
struct Recording(Child);

impl Recording {
    fn start(namespace: &Namespace, interface: &str, file: &Path) -> Result<Self> {
        let mut command = Command::new("dumpcap");
        command
            .args(["-P", "-i", interface, "-w"])
            .arg(file)
            .stderr(Stdio::piped());
        let child = namespace
            .enter(|| command.spawn())?
            .context("start dumpcap, which comes with tshark")?;
        let mut recording = Self(child);
        let mut said = BufReader::new(recording.0.stderr.take().context("an output")?);
        let mut line = String::new();
        // The program prints this line when it listens.
        while !line.starts_with("File: ") {
            line.clear();
            ensure!(said.read_line(&mut line)? > 0, "dumpcap does not run");
        }
        // The program's further output must not fill the pipe.
        thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Ok(recording)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Clients ask and are answered, try closed ports, and send datagrams.
/// Returns the receiver of the datagrams, without which the kernel would answer them.
fn talk(topology: &Topology) -> Result<UdpSocket> {
    let (client, server) = (topology.generator(), topology.monitor());
    for (port, connections) in SERVED {
        let listener = server.enter(|| TcpListener::bind(("10.80.0.2", port)))??;
        let answering = thread::spawn(move || -> Result<()> {
            for _ in 0..connections {
                let mut stream = listener.accept()?.0;
                stream.read_exact(&mut [0; QUESTION])?;
                stream.write_all(&[7; ANSWER])?;
                // The client closes first.
                ensure!(stream.read(&mut [0])? == 0, "more than a question");
            }
            Ok(())
        });
        for _ in 0..connections {
            let mut stream = client.enter(|| TcpStream::connect(("10.80.0.2", port)))??;
            stream.write_all(&[1; QUESTION])?;
            stream.read_exact(&mut [0; ANSWER])?;
            stream.shutdown(Shutdown::Write)?;
            ensure!(stream.read(&mut [0])? == 0, "more than an answer");
        }
        answering.join().expect("no panic")?;
    }
    for port in CLOSED {
        ensure!(
            client
                .enter(|| TcpStream::connect(("10.80.0.2", port)))?
                .is_err(),
            "{port} is open"
        );
    }
    let receiver = server.enter(|| UdpSocket::bind("10.80.0.2:514"))??;
    let sender = client.enter(|| UdpSocket::bind("10.80.0.1:0"))??;
    for number in 0..DATAGRAMS {
        sender.send_to(&vec![9; 20 + number], "10.80.0.2:514")?;
    }
    Ok(receiver)
}

/// Writes incoming and outgoing packets to separate files, by the address of the sender.
fn directions(capture: &Path, directory: &Path) -> Result<[PathBuf; 2]> {
    let files = ["in", "out"].map(|name| directory.join(name));
    for (file, address) in files.iter().zip(["10.80.0.1", "10.80.0.2"]) {
        let mut command = Command::new("tshark");
        command
            .arg("-r")
            .arg(capture)
            .args(["-Y", &format!("ip.src == {address}"), "-F", "pcap", "-w"])
            .arg(file);
        let output = command
            .output()
            .context("start tshark: `make setup` installs it")?;
        ensure!(
            output.status.success(),
            "tshark: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(files)
}

#[test]
fn tshark_counts_the_same_of_connections_of_the_kernel() -> Result<()> {
    let topology = scene()?;
    let daemon = Daemon::start(topology.monitor())?;
    for (name, _) in checks() {
        let mut config = probes::configuration(name, "mon0")?;
        if let Some(ingress) = config.get_mut("ingress").and_then(Value::as_object_mut) {
            ingress.insert("hook".to_owned(), json!("tc"));
            ingress.remove("mode");
        }
        let answer = daemon.put(&format!("/v1/probes/{name}"), &config);
        ensure!(
            answer.status == 201,
            "PUT {name}: {} {}",
            answer.status,
            answer.text()
        );
    }
    let directory = tempfile::tempdir()?;
    let capture = directory.path().join("all");
    File::create(&capture)?;
    let recording = Recording::start(topology.monitor(), "mon0", &capture)?;
    let before = topology.mon0_stats()?;
    let _receiver = talk(&topology)?;
    wait_for("all is recorded and at rest", PATIENCE, || {
        let now = topology.mon0_stats()?;
        let passed = now.rx_packets - before.rx_packets + now.tx_packets - before.tx_packets;
        let recorded = read_capture(&capture)?.len() as u64;
        ensure!(
            recorded == passed && passed > 100,
            "{recorded} of {passed} packets"
        );
        Ok(())
    })?;
    let documents = checks().map(|(name, _)| daemon.json(&format!("/v1/probes/{name}/metrics")));
    drop(recording);
    let captures = Captures::new(directions(&capture, directory.path())?)?;
    let mut wrong = String::new();
    for ((name, checks), document) in checks().iter().zip(&documents) {
        for line in disagreements(document, checks, &Value::Null, &captures)? {
            wrong += &format!("{name}: {line}\n");
        }
    }
    ensure!(wrong.is_empty(), "\n{wrong}");
    // The figures are not all 0: the numbers of connections agree.
    let opened: usize = SERVED.iter().map(|(_, connections)| connections).sum();
    let events = &documents[4]["ingress"]["tcp_connection_events"]["entries"][0]["value"];
    assert_eq!(events["opened_total"], opened, "{events}");
    assert_eq!(events["refused_total"], CLOSED.len(), "{events}");
    Ok(())
}
