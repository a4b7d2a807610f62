//! Events at increasing rates: `GET /v1/probes/{name}/events` against a minimal libbpf consumer in C, with the same
//! program, ring and traffic, one after the other. Only the sender is pinned to a CPU.

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use twinprobe_tests::measure::{Sample, processor_seconds};
use twinprobe_tests::stream::Stream;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{Daemon, Topology, bpf, netns};

use crate::frame::options::Bench;
use crate::frame::paired::Estimate;
use crate::frame::section::{Claim, Section};
use crate::frame::table::Table;

const SOURCE: &str = include_str!("../../../tests/bpf/event_load.bpf.c");
/// The rates in events per second; the last one is more than there are packets.
const RATES: [u64; 6] = [1_000, 10_000, 50_000, 200_000, 500_000, 10_000_000];
const PAYLOADS: [u64; 2] = [0, 4096];
/// The size of an event without payload.
const EVENT: u64 = 156;

/// The result of one consumer in one run.
struct Run {
    delivered: u64,
    lost: u64,
    /// The lost events that the reader of the stream was too slow for.
    missed: u64,
    seconds: f64,
    cpu: f64,
}

impl Run {
    fn sent(&self) -> u64 {
        self.delivered + self.lost
    }

    /// Returns the microseconds of processor time for an event.
    fn per_event(&self) -> f64 {
        1e6 * self.cpu / self.delivered.max(1) as f64
    }
}

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Events",
        "What does an event cost from the ring to a client, and when are events lost?",
        "The same program writes events into a RINGBUF of the same size at the same traffic; the consumers take turns: a \
         minimal libbpf consumer in C that only counts (`bench/peers/consumer.c`), the same printing each event as JSON to a \
         pipe, and `GET /v1/probes/{name}/events` of the daemon with a client that reads and does not look. `lost` is \
         counted by the program: what the ring had no room for; in brackets what a stream dropped since its reader was too slow. \
         The last rate is more than there are packets. `us CPU/event` counts all threads of the consumer; `null` is that of the \
         consumer that prints, in one turn against the next. Above 200,000 events of 4 KiB per second the consumers share one \
         CPU with their reader, and figures there are of overload. Medians of the turns, with intervals of 95 % (bootstrap).",
    );
    section.generator = Some("the generator of the tests (`traffic`), on CPU 0".into());
    let duration = Duration::from_millis(bench.times(2_000, 200));
    let turns = bench.times(3, 1);
    let directory = tempfile::tempdir()?;
    let consumer = compile_consumer(directory.path())?;
    let mut table = Table::new(&[
        "bytes",
        "wanted/s",
        "consumer",
        "sent/s",
        "delivered",
        "lost (by a slow reader)",
        "lost, %",
        "us CPU/event",
        "to libbpf JSON",
        "null",
    ]);
    let mut against = Vec::new();
    for payload in PAYLOADS {
        for rate in bench.cases(&RATES, &[50_000]) {
            let defines = [format!("PAYLOAD={payload}"), format!("INTERVAL={}", 1_000_000_000 / rate)];
            let object = directory.path().join("load.o");
            fs::write(&object, bpf::compile(SOURCE, &defines)?)?;
            let mut runs: [Vec<Run>; 3] = Default::default();
            for _ in 0..turns {
                runs[0].push(libbpf(&consumer, &object, "count", duration)?);
                runs[1].push(libbpf(&consumer, &object, "json", duration)?);
                runs[2].push(twinprobe(payload, rate, duration)?);
            }
            let names = ["libbpf, counts", "libbpf, prints JSON", "twinprobe, JSON over HTTP"];
            for (consumer, (name, runs_of)) in names.into_iter().zip(&runs).enumerate() {
                let ratio: Sample = runs_of
                    .iter()
                    .zip(&runs[1])
                    .map(|(run, json)| run.per_event() / json.per_event())
                    .collect();
                let null: Sample =
                    runs[1].windows(2).map(|pair| pair[1].per_event() / pair[0].per_event()).collect();
                let total = |count: fn(&Run) -> u64| runs_of.iter().map(count).sum::<u64>();
                let (sent, delivered, lost) =
                    (total(Run::sent), total(|run| run.delivered), total(|run| run.lost));
                ensure!(delivered > 0, "{name} was given no event");
                let seconds: f64 = runs_of.iter().map(|run| run.seconds).sum();
                let ours = consumer == 2;
                if ours && rate == 50_000 {
                    against.push(format!("{:.2} ({} bytes)", ratio.median(), EVENT + payload));
                }
                table.row([
                    (EVENT + payload).to_string(),
                    rate.to_string(),
                    name.to_owned(),
                    format!("{:.0}", sent as f64 / seconds),
                    delivered.to_string(),
                    format!("{lost} ({})", total(|run| run.missed)),
                    format!("{:.3}", 100.0 * lost as f64 / sent.max(1) as f64),
                    Estimate::of(&runs_of.iter().map(Run::per_event).collect()).show(3),
                    if ours { Estimate::of(&ratio).show(2) } else { String::new() },
                    if ours && !null.is_empty() { Estimate::of(&null).show(2) } else { String::new() },
                ]);
            }
        }
    }
    section.tables.push(table);
    section.meaning = "The daemon wakes up for batches of events rather than for each, and so gives events out as JSON for \
        less than a consumer that prints them by itself."
        .to_owned();
    section.claims.push(Claim {
        claim: "processor time of an event, at 50,000/s",
        paper: "",
        ours: format!("{} times libbpf printing JSON", against.join(", ")),
        peers: "libbpf: 1".into(),
    });
    Ok(section)
}

fn compile_consumer(directory: &Path) -> Result<PathBuf> {
    let binary = directory.join("consumer");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/consumer.c");
    let output = Command::new("cc")
        .args(["-O2", "-Wall", "-o"])
        .arg(&binary)
        .args([source, "-lbpf", "-lelf", "-lz"])
        .output()
        .context("start cc")?;
    ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Ok(binary)
}

/// Sends at full speed for the time. Returns the seconds that it took and the processor seconds of `pid` meanwhile.
fn load(topology: &Topology, pid: u32, duration: Duration) -> Result<(f64, f64)> {
    let options = GeneratorOptions { cpu: Some(0), ..GeneratorOptions::default() };
    let mut generator = Generator::new(topology.generator(), "gen0", options)?;
    let (cpu, started) = (processor_seconds(pid)?, Instant::now());
    while started.elapsed() < duration {
        // The calls are long because there is a pause between two of them.
        generator.send(2_000_000)?;
    }
    let seconds = started.elapsed().as_secs_f64();
    // The time includes that for the events still in the ring.
    thread::sleep(Duration::from_millis(200));
    Ok((seconds, processor_seconds(pid)? - cpu))
}

fn libbpf(consumer: &Path, object: &Path, mode: &str, duration: Duration) -> Result<Run> {
    let topology = Topology::new()?;
    let namespace = topology.monitor().clone();
    let mut command = Command::new(consumer);
    command.arg(object).args(["mon0", mode]).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: between fork and exec there is one bare system call.
    unsafe { command.pre_exec(move || netns::set_netns(std::os::fd::AsFd::as_fd(&namespace))) };
    let mut child = command.spawn().context("start the consumer")?;
    let mut messages = BufReader::new(child.stderr.take().context("stderr")?).lines();
    let drain = discard(child.stdout.take().context("stdout")?);
    ensure!(messages.next().transpose()?.as_deref() == Some("ready"), "the consumer did not start");
    let (seconds, cpu) = load(&topology, child.id(), duration)?;
    terminate(&mut child)?;
    let result = messages.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("delivered")));
    let result = result.context("no result")??;
    drop(drain.join());
    let numbers: Vec<u64> = result.split(' ').filter_map(|word| word.parse().ok()).collect();
    Ok(Run { delivered: numbers[0], lost: numbers[1], missed: 0, seconds, cpu })
}

fn twinprobe(payload: u64, rate: u64, duration: Duration) -> Result<Run> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let config = json!({
        "interface": "mon0",
        "ingress": {
            "source": SOURCE,
            "defines": { "PAYLOAD": payload.to_string(), "INTERVAL": (1_000_000_000 / rate).to_string() },
            "metrics": [
                { "name": "events", "map": "events", "type": "struct event" },
                { "name": "counts", "map": "counts" }
            ]
        }
    });
    daemon.put("/v1/probes/p", &config).expect(201);
    let stream = Stream::open(&daemon, "/v1/probes/p/events", "application/x-ndjson")?;
    let drain = discard(stream.into_connection());
    let (seconds, cpu) = load(&topology, daemon.pid(), duration)?;
    let counts = daemon.json("/v1/probes/p/metrics");
    let count =
        |index: usize| counts["ingress"]["counts"]["entries"][index]["value"].as_u64().context("a count");
    let (written, lost) = (count(0)?, count(1)?);
    // On a busy machine some events are still in the ring.
    let limit = Instant::now() + Duration::from_secs(10);
    let (read, missed) = loop {
        let status = daemon.json("/v1/probes/p")["events"][0].clone();
        let read = status["delivered"].as_u64().context("a count")?;
        if read == written {
            break (read, status["missed"].as_u64().context("a count")?);
        }
        ensure!(Instant::now() < limit, "{read} of {written} events have been read");
    };
    daemon.delete("/v1/probes/p").expect(204);
    drop(daemon);
    drop(drain.join());
    Ok(Run { delivered: read - missed, lost: lost + missed, missed, seconds, cpu })
}

/// Reads to the end and drops the bytes.
fn discard(mut from: impl Read + Send + 'static) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while from.read(&mut buffer).is_ok_and(|read| read > 0) {}
    })
}

fn terminate(child: &mut Child) -> Result<()> {
    let status = Command::new("kill").arg(child.id().to_string()).status()?;
    ensure!(status.success(), "kill: {status}");
    ensure!(child.wait()?.success(), "the consumer failed");
    Ok(())
}
