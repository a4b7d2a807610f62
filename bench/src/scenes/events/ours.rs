//! The daemon as the consumer: `GET /v1/probes/{name}/events`.

use std::io::Read;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use twinprobe_tests::stream::Stream;
use twinprobe_tests::wait::wait_for;

use super::consumer::{Mode, Outcome};
use super::ledger::{Event, Ledger};
use super::stand::{Load, Stand, at_rest};
use super::tool::Tool;

pub const PROBE: &str = "/v1/probes/tool";
/// The longest time until the daemon has read the content of the ring.
const READ: Duration = Duration::from_secs(30);

pub fn run(stand: &Stand, tool: Tool, load: Load, mode: Mode) -> Result<Outcome> {
    let daemon = &stand.daemon;
    daemon.put(PROBE, &tool.config()).expect(201);
    let stream = Stream::open(daemon, &format!("{PROBE}/events"), "application/x-ndjson")?;
    let reader = match mode {
        Mode::Check => thread::spawn(move || check(stream)),
        Mode::Count => {
            let drain = discard(stream);
            thread::spawn(move || {
                drain
                    .join()
                    .map(|()| Ledger::default())
                    .map_err(|_| anyhow::anyhow!("a panic"))
            })
        }
    };
    // The ring is mapped now, like the rings of other consumers when they are ready.
    let before = at_rest(daemon.pid())?;
    let sent = stand.send(load)?;
    let cpu = 1e9 * (at_rest(daemon.pid())? - before);
    let counts = daemon.json(&format!("{PROBE}/metrics"));
    let producers = counts["ingress"]["producers"]["entries"][0]["value"]
        .as_array()
        .context("producers")?;
    // Each CPU has its own counts.
    let count = |name: &str| {
        producers
            .iter()
            .map(|producer| producer[name].as_u64())
            .sum::<Option<u64>>()
    };
    let (events, lost) = (
        count("events").context("a count")?,
        count("lost").context("a count")?,
    );
    let missed = wait_for("the events in the ring", READ, || {
        let status: Value = daemon.json(PROBE)["events"][0].clone();
        let read = status["delivered"].as_u64().context("a count")?;
        ensure!(
            read + lost == events,
            "{read} of {events} events have been read, {lost} were lost"
        );
        status["missed"].as_u64().context("a count")
    })?;
    // The stream ends with the probe.
    daemon.delete(PROBE).expect(204);
    let mut ledger = reader
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let delivered = events - lost - missed;
    if mode == Mode::Check {
        ensure!(
            ledger.delivered == delivered,
            "{} of {delivered} events came",
            ledger.delivered
        );
    }
    let latency = [ledger.latency(0.5), ledger.latency(0.99)];
    let Ledger {
        gaps,
        disordered,
        damaged,
        ..
    } = ledger;
    Ok(Outcome {
        sent,
        events,
        lost,
        missed,
        delivered,
        gaps,
        disordered,
        damaged,
        cpu,
        latency,
    })
}

/// Reads events to the end of the stream and looks at each.
fn check(mut stream: Stream) -> Result<Ledger> {
    let mut ledger = Ledger::default();
    while let Some(line) = stream.line()? {
        if !line.starts_with("{\"lost\"") {
            ledger.check(&Event::from_json(&line)?);
        }
    }
    Ok(ledger)
}

/// Reads to the end and drops the bytes.
pub fn discard(mut from: impl Read + Send + 'static) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while from.read(&mut buffer).is_ok_and(|read| read > 0) {}
    })
}
