//! Benchmark of events at increasing rates: `GET /v1/probes/{name}/events` against a minimal libbpf consumer in C, with
//! the same program, ring and traffic, one after the other. Only the sender is pinned to a CPU.
//!
//! `cargo bench -p twinprobe-tests --bench events [-- SECONDS [RATE]]`

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use twinprobe_tests::measure::processor_seconds;
use twinprobe_tests::stream::Stream;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{Daemon, Topology, bpf, netns};

const SOURCE: &str = include_str!("../../bpf/event_load.bpf.c");
/// The rates in events per second; the last one is more than there are packets.
const RATES: [u64; 6] = [1_000, 10_000, 50_000, 200_000, 500_000, 10_000_000];
const PAYLOADS: [u64; 2] = [0, 4096];

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
    fn row(&self, size: u64, rate: u64, who: &str, against: Option<&Self>) {
        let sent = self.delivered + self.lost;
        let per_event = |run: &Self| run.cpu / run.delivered.max(1) as f64;
        println!(
            "| {size} | {rate} | {who} | {:.0} | {} | {} ({}) | {:.3}% | {:.1}% | {:.3} | {} |",
            sent as f64 / self.seconds,
            self.delivered,
            self.lost,
            self.missed,
            100.0 * self.lost as f64 / sent.max(1) as f64,
            100.0 * self.cpu / self.seconds,
            1e6 * per_event(self),
            against.map_or(String::new(), |other| format!("{:.2}x", per_event(self) / per_event(other))),
        );
    }
}

fn main() -> Result<()> {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<f64>().ok());
    let seconds = numbers.next().unwrap_or(4.0);
    let only = numbers.next().map(|rate| rate as u64);
    let duration = Duration::from_secs_f64(seconds);
    let directory = tempfile::tempdir()?;
    let consumer = compile_consumer(directory.path())?;
    println!(
        "| bytes | wanted/s | consumer | sent/s | delivered | lost (by a slow reader) | lost % | CPU | us CPU/event | to libbpf JSON |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for payload in PAYLOADS {
        for rate in RATES.into_iter().filter(|rate| only.is_none_or(|only| only == *rate)) {
            let defines = [format!("PAYLOAD={payload}"), format!("INTERVAL={}", 1_000_000_000 / rate)];
            let object = directory.path().join("load.o");
            fs::write(&object, bpf::compile(SOURCE, &defines)?)?;
            let size = 156 + payload;
            libbpf(&consumer, &object, "count", duration)?.row(size, rate, "libbpf, counts", None);
            let printed = libbpf(&consumer, &object, "json", duration)?;
            printed.row(size, rate, "libbpf, prints JSON", None);
            let ours = twinprobe(payload, rate, duration)?;
            ours.row(size, rate, "twinprobe, JSON over HTTP", Some(&printed));
        }
    }
    Ok(())
}

fn compile_consumer(directory: &Path) -> Result<PathBuf> {
    let binary = directory.join("consumer");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/bench-c/consumer.c");
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
        generator.send(5_000_000)?;
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
