//! Streams: the windows per second that a stream sends into a server, and the processor time of
//! each.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::measure::{ProcessorTime, Sample, processor_seconds};
use twinprobe_tests::servers::kafka::KafkaBroker;
use twinprobe_tests::servers::nats::NatsServer;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Spread};
use twinprobe_tests::{Daemon, DaemonOptions, Topology, helper};

use crate::frame::client::Client;
use crate::frame::options::Bench;
use crate::frame::paired::Estimate;
use crate::frame::section::{Claim, Section};
use crate::frame::table::Table;
use crate::scenes::pairs::pairs;

/// The rounds of each way. Each round has its own stream, whose name is in the configurations of
/// the probes.
const ROUNDS: u64 = 5;
/// The most probes of an interface at XDP.
const PER_HOOK: usize = 16;
/// The goals: windows or entries per second, and the processor time divided by that of rendering
/// the document.
const SMALL_NATS: f64 = 5_000.0;
const LARGE_NATS: f64 = 30_000.0;
const LARGE_KAFKA: f64 = 5_000.0;
const PARQUET: f64 = 1e6;
const RENDERED: f64 = 2.0;

/// The most entries that a packet adds.
const STEP: u32 = 1_000;

/// A source that adds many entries for each packet, so that few packets are enough for a window of
/// any size.
const SOURCE: &str = r#"
#include <twinprobe.h>

TP_HASH(counts, __u32, struct tp_counters, ROOM);
static __u32 next;

TP_PROBE(count, packet)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < STEP; i++) {
		__u32 key = next++ % ENTRIES;
		tp_count(counts, &key, 64);
	}
	return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
"#;

/// Windows that wait for the stream.
struct Case {
    name: &'static str,
    probes: usize,
    /// The windows of each probe.
    windows: u64,
    entries: u32,
    ways: &'static [Way],
}

/// A receiver, and the rate that it should reach.
struct Way {
    name: &'static str,
    receiver: Receiver,
    /// The least number of windows per second, or of entries of a table.
    goal: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiver {
    Nats,
    Kafka { exactly_once: bool },
    Parquet,
}

const TRANSACTIONS: Receiver = Receiver::Kafka { exactly_once: true };
const PLAIN: Receiver = Receiver::Kafka {
    exactly_once: false,
};

const CASES: [Case; 3] = [
    Case {
        name: "small",
        probes: 100,
        windows: 200,
        entries: 1,
        ways: &[
            Way {
                name: "NATS",
                receiver: Receiver::Nats,
                goal: Some(SMALL_NATS),
            },
            Way {
                name: "Kafka, transactions",
                receiver: TRANSACTIONS,
                goal: None,
            },
        ],
    },
    Case {
        name: "4 KiB",
        probes: 100,
        windows: 200,
        entries: 78,
        ways: &[
            Way {
                name: "NATS",
                receiver: Receiver::Nats,
                goal: Some(LARGE_NATS),
            },
            Way {
                name: "Kafka, transactions",
                receiver: TRANSACTIONS,
                goal: Some(LARGE_KAFKA),
            },
            Way {
                name: "Kafka, plain",
                receiver: PLAIN,
                goal: None,
            },
        ],
    },
    Case {
        name: "100,000 entries",
        probes: 1,
        windows: 20,
        entries: 100_000,
        ways: &[Way {
            name: "Parquet files",
            receiver: Receiver::Parquet,
            goal: Some(PARQUET),
        }],
    },
];

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Streams",
        "How many windows per second does a stream send, and what does each cost?",
        "Windows of probes wait in the daemon. `twinprobe-stream --once` sends all of them to a server on the same two CPUs. \
         Beside it the daemon renders each document for a client that reads and does nothing else. Medians of the rounds with \
         intervals of 95 % (bootstrap).",
    );
    let mut table = Table::new(&[
        "windows of",
        "bytes",
        "receiver",
        "sent",
        "rounds",
        "windows/s",
        "entries/s",
        "goal",
        "stream, µs",
        "daemon, µs",
        "server, µs",
        "rendering, µs",
        "stream / rendering",
    ]);
    let mut told = Vec::new();
    for case in &CASES {
        let scene = Scene::new(bench, case)?;
        for way in case.ways {
            let measured = scene.measure(bench, way.receiver)?;
            let rate = scene.rate(&measured);
            if way.goal.is_some() {
                told.push(format!(
                    "{}, {}: {}",
                    way.name,
                    case.name,
                    Estimate::of(&rate).show(0)
                ));
            }
            table.row(scene.cells(case, way, &measured));
        }
    }
    section.tables.push(table);
    section.generator = Some(
        "the generator of the tests (`traffic`): one packet for at most 1,000 entries".to_owned(),
    );
    section.details = "The wall time is that of the whole command: its start, its connections, all windows, all \
        acknowledgements. The server's answer confirms the storage of a window; then the stream acknowledges the window. `bytes` are those of a \
        document. Times are processor times for each window. Servers: nats-server with JetStream in files; one broker of \
        Kafka in KRaft mode, which the rounds share, and transactions of the batches that wait; Parquet files with one row for each entry."
        .to_owned();
    section.meaning = "The daemon, the stream and the server share two processors, and all of them are busy: the sum of their times \
        limits the rate. A stream that has fallen behind gets up to 100 windows with a request. The entries of a table cost far more than \
        their rendering: the stream parses the text, makes columns of the numbers, encodes and compresses these, and writes files."
        .to_owned();
    section.claims.push(Claim {
        claim: "windows per second into NATS and Kafka, entries into Parquet",
        paper: "goals 5,000, 30,000, 5,000 and 1 M",
        ours: told.join("; "),
        peers: String::new(),
    });
    Ok(section)
}

/// A daemon whose windows wait for streams of several names.
struct Scene {
    _topology: Topology,
    daemon: Daemon,
    windows: u64,
    entries: u64,
    bytes: usize,
    /// The daemon's processor time for the rendering of a document, in seconds.
    rendering: f64,
}

/// The results of the rounds: the number of seconds for all windows.
#[derive(Default)]
struct Measured {
    wall: Sample,
    stream: Sample,
    daemon: Sample,
    server: Sample,
}

impl Scene {
    fn new(bench: &Bench, case: &Case) -> Result<Self> {
        let (probes, windows, entries) = if bench.quick {
            (
                case.probes.min(3),
                case.windows.min(4),
                case.entries.min(500),
            )
        } else {
            (case.probes, case.windows, case.entries)
        };
        let (step, topology) = (entries.min(STEP), Topology::new()?);
        let options = DaemonOptions::default()
            .argument("--node-name")
            .argument("gw-1");
        let daemon = Daemon::start_with(
            topology.monitor(),
            &options.argument("--retain-bytes").argument("4294967296"),
        )?;
        let ends = pairs(&topology, 2 * probes.div_ceil(PER_HOOK))?;
        for end in &ends {
            topology.monitor().run("ip", &["link", "set", end, "up"])?;
        }
        let collectors: Vec<String> = (0..case.ways.len() as u64 * bench.rounds(ROUNDS, 1))
            .map(name)
            .collect();
        let metric = json!({ "name": "counts", "map": "counts", "snapshot": true, "init": true });
        for probe in 0..probes {
            let config = json!({
                "interface": ends[2 * (probe / PER_HOOK)],
                "ingress": { "source": SOURCE, "metrics": [metric],
                    "defines": { "ENTRIES": entries.to_string(), "STEP": step.to_string(), "ROOM": (2 * entries).to_string() } },
                "window": { "retain": 10_000, "retain_bytes": 2_u64 << 30, "collectors": collectors },
            });
            daemon.put(&path(probe), &config).expect(201);
        }
        let sender = |end: &Vec<String>| {
            let options = GeneratorOptions {
                spread: Spread::single(),
                ..GeneratorOptions::default()
            };
            Generator::new(topology.monitor(), &end[1], options)
        };
        let mut senders = ends
            .chunks(2)
            .map(<[String]>::to_vec)
            .map(|end| sender(&end))
            .collect::<Result<Vec<_>>>()?;
        for _ in 0..windows {
            senders
                .iter_mut()
                .try_for_each(|sender| sender.send((entries / step).into()).map(drop))?;
            for probe in 0..probes {
                daemon
                    .request("POST", &format!("{}/windows", path(probe)), &[], b"")
                    .expect(201);
            }
        }
        let (bytes, rendering) = render(&daemon, probes, windows)?;
        let windows = probes as u64 * windows;
        Ok(Self {
            _topology: topology,
            daemon,
            windows,
            entries: entries.into(),
            bytes,
            rendering,
        })
    }

    fn measure(&self, bench: &Bench, receiver: Receiver) -> Result<Measured> {
        let mut measured = Measured::default();
        let rounds = 0..bench.rounds(ROUNDS, 1);
        let directory = tempfile::tempdir()?;
        match receiver {
            Receiver::Nats => {
                for round in rounds {
                    let server = NatsServer::new(&directory.path().join(round.to_string()))?;
                    let to = json!({ "nats": { "servers": [server.url()], "stream": "WINDOWS" } });
                    self.round(&to, Some(server.pid()?), &mut measured)?;
                }
            }
            Receiver::Kafka { exactly_once } => {
                // A new broker is slow at first, so all rounds use the same broker.
                let broker = KafkaBroker::new()?;
                let brokers = [format!("127.0.0.1:{}", broker.ports[0])];
                for round in rounds {
                    let options = json!({ "brokers": brokers, "topic": format!("windows-{round}"),
                        "exactlyOnce": exactly_once, "tls": "disable" });
                    self.round(
                        &json!({ "kafka": options }),
                        Some(broker.pid()?),
                        &mut measured,
                    )?;
                }
            }
            Receiver::Parquet => {
                for round in rounds {
                    let options = json!({ "directory": directory.path().join(round.to_string()) });
                    self.round(&json!({ "file": options }), None, &mut measured)?;
                }
            }
        }
        Ok(measured)
    }

    /// Sends all windows once, as a stream of the next name.
    fn round(&self, to: &Value, server: Option<u32>, measured: &mut Measured) -> Result<()> {
        let directory = tempfile::tempdir()?;
        let config = directory.path().join("stream.json");
        let from = format!("unix:{}", self.daemon.directories().socket().display());
        let name = self.next()?;
        let document = json!({ "name": name, "from": { "servers": [from] }, "to": [to] });
        std::fs::write(&config, document.to_string())?;
        let busy = || server.map_or(Ok(0.0), processor_seconds);
        let (daemon, served) = (processor_seconds(self.daemon.pid())?, busy()?);
        let children = ProcessorTime::of(std::process::id())?.children;
        let started = Instant::now();
        let sent = send(&config)?;
        measured.wall.add(started.elapsed().as_secs_f64());
        measured
            .stream
            .add(ProcessorTime::of(std::process::id())?.children - children);
        measured
            .daemon
            .add(processor_seconds(self.daemon.pid())? - daemon);
        measured.server.add(busy()? - served);
        ensure!(
            sent == self.windows,
            "{sent} of {} windows were sent",
            self.windows
        );
        Ok(())
    }

    /// The first name whose windows have no acknowledgement yet.
    fn next(&self) -> Result<String> {
        let waits = |name: &String| {
            let list = self
                .daemon
                .json(&format!("{}/windows?collector={name}", path(0)));
            list["windows"]
                .as_array()
                .is_some_and(|windows| !windows.is_empty())
        };
        (0..64)
            .map(name)
            .find(waits)
            .context("a collector whose windows wait")
    }

    /// The number of windows per second, or of entries per second for windows that are tables.
    fn rate(&self, measured: &Measured) -> Sample {
        let count = if self.entries >= 500 {
            self.windows * self.entries
        } else {
            self.windows
        };
        measured
            .wall
            .values()
            .iter()
            .map(|seconds| count as f64 / seconds)
            .collect()
    }

    fn cells(&self, case: &Case, way: &Way, measured: &Measured) -> Vec<String> {
        let windows = self.windows as f64;
        let wall = Estimate::of(&measured.wall);
        let each = |sample: &Sample| {
            Estimate::of(
                &sample
                    .values()
                    .iter()
                    .map(|time| 1e6 * time / windows)
                    .collect(),
            )
        };
        let per_second = Estimate::of(&self.rate(measured));
        let (goal, share) = (
            way.goal.map(|goal| per_second.at_least(goal)),
            each(&measured.stream),
        );
        let rendering = 1e6 * self.rendering;
        let ratio = Estimate {
            value: share.value / rendering,
            low: share.low / rendering,
            high: share.high / rendering,
        };
        vec![
            case.name.to_owned(),
            self.bytes.to_string(),
            way.name.to_owned(),
            self.windows.to_string(),
            measured.wall.len().to_string(),
            wall.inverse(windows).show(0),
            format!("{:.0}", windows * self.entries as f64 / wall.value),
            goal.unwrap_or_default().to_owned(),
            share.show(0),
            format!("{:.0}", each(&measured.daemon).value),
            format!("{:.0}", each(&measured.server).value),
            format!("{rendering:.0}"),
            format!(
                "{} (<= {RENDERED}: {})",
                ratio.show(1),
                ratio.at_most(RENDERED)
            ),
        ]
    }
}

fn path(probe: usize) -> String {
    format!("/v1/probes/p{probe}")
}

fn name(number: u64) -> String {
    format!("stream-{number}")
}

/// Reads documents. Returns the bytes of one document, and the daemon's processor time for each.
fn render(daemon: &Daemon, probes: usize, windows: u64) -> Result<(usize, f64)> {
    let mut client = Client::new(daemon);
    let (mut answer, mut read) = (Vec::new(), 0.0);
    client.get(&format!("{}/windows/1", path(0)), &mut answer)?;
    let body = answer
        .windows(4)
        .position(|bytes| bytes == b"\r\n\r\n")
        .context("the end of the head")?
        + 4;
    let before = processor_seconds(daemon.pid())?;
    for probe in 0..probes {
        for seq in 1..=windows.min(20) {
            client.count(&format!("{}/windows/{seq}", path(probe)))?;
            read += 1.0;
        }
    }
    Ok((
        answer.len() - body,
        (processor_seconds(daemon.pid())? - before) / read,
    ))
}

/// Runs a stream to its end. Returns the number of sent windows.
fn send(config: &Path) -> Result<u64> {
    let mut command = Command::new(helper("twinprobe-stream")?);
    command
        .args(["--once", "--log-level", "warn", "-f"])
        .arg(config)
        .stdin(Stdio::null());
    let output = command.output().context("twinprobe-stream runs")?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{told}");
    let sent = told
        .lines()
        .find_map(|line| line.strip_prefix("sent ")?.split(' ').next());
    sent.with_context(|| told.clone())?
        .parse()
        .with_context(|| told.clone())
}
