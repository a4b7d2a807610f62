//! Reading a window of a small map, and the grace period in it, by each method.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use twinprobe_tests::Daemon;
use twinprobe_tests::measure::Sample;
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::traffic::Spread;

use crate::frame::options::Bench;
use crate::frame::paired::Estimate;
use crate::frame::section::{Claim, Section};
use crate::frame::site::Site;
use crate::frame::table::Table;

/// The goal for the median of the default method's grace period, in microseconds.
const GRACE: f64 = 1000.0;
/// The longest time until all readings are done and enough packets are counted.
const PACKETS: Duration = Duration::from_secs(300);
const METRICS: &str = "/v1/probes/probe/metrics";

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Reading a window",
        "How long does a consistent reading take, and how long is its grace period?",
        "GET of the metrics of one XDP probe with one ARRAY of one counter: connect to the Unix socket, flip, \
         quiesce, extract, file, fsync, reset, JSON, answer; with each kind of grace period first idle, then under \
         load. `null`, the null comparison, is a reading against the previous one. Medians with intervals of \
         95 % (bootstrap).",
    );
    section.details =
        "`quiesce` is the grace period by the document (`quiesce_us`). `/healthz` takes the same way through socket \
         and HTTP without a reading: the time of a request alone. Under load, frames arrive as fast as possible, \
         and a grace period also waits for the CPU that receives them."
        .to_owned();
    let mut table = Table::new(&[
        "grace period",
        "load",
        "reads",
        "read, ms",
        "null",
        "p99",
        "max",
        "quiesce, us",
        "p99",
        "max",
        "/healthz, ms",
        "million packets/s",
    ]);
    let mut default = Vec::new();
    for (method, reads) in [("sweep", 1_000), ("membarrier", 200), ("map-in-map", 200)] {
        let site = Site::new(bench)?;
        section.generator = Some(site.describe());
        let daemon = site.daemon(&["--quiesce", method])?;
        daemon
            .put("/v1/probes/probe", &dropping(site.interface()))
            .expect(201);
        let reads = bench.times(reads, 10);
        let idle = Reads::take(&daemon, reads, 0)?;
        table.row(idle.cells(method, "idle", 0.0));
        let load = site.send(Spread::default())?;
        let loaded = Reads::take(&daemon, reads, 1)?;
        load.stop()?;
        table.row(loaded.cells(
            method,
            "live frames",
            loaded.packets as f64 / loaded.seconds,
        ));
        if method == "sweep" {
            default = vec![
                Estimate::of(&idle.quiesce_us),
                Estimate::of(&loaded.quiesce_us),
            ];
        }
    }
    section.tables.push(table);
    section.meaning = "A reading waits for the processors once and for the disk twice. The default (`sweep`) waits \
        until the scheduler gives it each CPU. The kernel's own grace periods take a hundred times as long on an \
        idle machine."
        .to_owned();
    let show = |estimate: &Estimate| format!("{:.0} us", estimate.value);
    section.claims.push(Claim {
        claim: "the grace period of a reading",
        paper: "goal <= 1 ms",
        ours: format!(
            "{} idle, {} under load{}",
            show(&default[0]),
            show(&default[1]),
            if default.iter().all(|estimate| estimate.value <= GRACE) {
                ""
            } else {
                " (missed)"
            }
        ),
        peers: "of the kernel: see its page".into(),
    });
    Ok(section)
}

/// Returns a counter that drops packets, so that the network stack adds no load.
fn dropping(interface: &str) -> Value {
    let mut config = counter_config(interface, "XDP_DROP");
    config["ingress"]["verdict"] = "enforce".into();
    config
}

#[derive(Default)]
struct Reads {
    reads_ms: Sample,
    /// The time of each second reading, divided by the time of the previous reading.
    null: Sample,
    quiesce_us: Sample,
    healthz_ms: Sample,
    /// The packets of all windows together.
    packets: u64,
    seconds: f64,
}

impl Reads {
    /// Reads at least this many times, and until this many packets are counted: the pauses of the
    /// generator are longer than ten readings.
    fn take(daemon: &Daemon, count: u64, packets: u64) -> Result<Self> {
        let mut out = Self::default();
        // The first reading closes the window before the measurement.
        daemon.json(METRICS);
        let all = Instant::now();
        let mut last = None;
        let limit = all + PACKETS;
        while (out.reads_ms.len() as u64) < count || out.packets < packets {
            ensure!(
                Instant::now() < limit,
                "{} of {packets} packets were counted within {PACKETS:?}",
                out.packets
            );
            let started = Instant::now();
            let response = daemon.get(METRICS);
            let time = 1e3 * started.elapsed().as_secs_f64();
            out.reads_ms.add(time);
            match last.take() {
                Some(last) => out.null.add(time / last),
                None => last = Some(time),
            }
            let document = response.expect(200).json();
            let quiesce = document["window"]["quiesce_us"]
                .as_u64()
                .context("a window has a grace period")?;
            out.quiesce_us.add(quiesce as f64);
            out.packets += total(&document, "ingress", "packets");
            let started = Instant::now();
            daemon.get("/healthz").expect(200);
            out.healthz_ms.add(1e3 * started.elapsed().as_secs_f64());
        }
        out.seconds = all.elapsed().as_secs_f64();
        Ok(out)
    }

    fn cells(&self, method: &str, load: &str, rate: f64) -> Vec<String> {
        let ms = |part| format!("{:.2}", self.reads_ms.quantile(part));
        let us = |part| format!("{:.0}", self.quiesce_us.quantile(part));
        vec![
            method.to_owned(),
            load.to_owned(),
            self.reads_ms.len().to_string(),
            Estimate::of(&self.reads_ms).show(2),
            Estimate::of(&self.null).show(3),
            ms(0.99),
            ms(1.0),
            Estimate::of(&self.quiesce_us).show(0),
            us(0.99),
            us(1.0),
            Estimate::of(&self.healthz_ms).show(2),
            format!("{:.1}", rate / 1e6),
        ]
    }
}
