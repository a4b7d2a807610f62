//! Benchmark of latency: the time to read a window of a small map.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use twinprobe_tests::measure::Sample;
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::{Daemon, DaemonOptions, Topology, report, scaled};

const METRICS: &str = "/v1/probes/probe/metrics";

pub fn run() -> Result<()> {
    report::section(
        "Reading a window",
        "GET of the metrics of one XDP probe with one ARRAY of one counter: connect to the Unix socket, flip, quiesce, \
         extract, reset, JSON, answer. `quiesce` is the grace period as the document states it (`quiesce_us`), \
         `/healthz` the same way through socket and HTTP without any of it. Under load, frames arrive as fast as one \
         CPU can send and receive them; that CPU is one of those that a grace period waits for.",
    );
    report::table(&[
        "grace period",
        "load",
        "reads",
        "read, ms: p50",
        "p99",
        "max",
        "quiesce, us: p1",
        "p50",
        "p99",
        "max",
        "/healthz, ms: p50",
        "million packets/s",
    ]);
    for (method, reads) in [("sweep", scaled(2_000, 20_000)), ("membarrier", scaled(300, 3_000))] {
        let topology = Topology::new()?;
        let options = DaemonOptions::default().argument("--quiesce").argument(method);
        let daemon = Daemon::start_with(topology.monitor(), &options)?;
        daemon.put("/v1/probes/probe", &counter_config_enforced()).expect(201);
        let idle = Reads::take(&daemon, reads)?;
        idle.report(method, "idle", None);

        let cpu = GeneratorOptions { cpu: Some(0), ..GeneratorOptions::default() };
        let load = Generator::new(topology.generator(), "gen0", cpu)?.spawn(Load::default());
        while load.sent() == 0 {
            ensure!(!load.is_finished(), "the generator ended");
            std::thread::yield_now();
        }
        let loaded = Reads::take(&daemon, reads)?;
        load.stop()?;
        loaded.report(method, "live frames", Some(loaded.packets as f64 / loaded.took.as_secs_f64()));
    }
    Ok(())
}

/// Returns a counter that drops packets, so that the network stack adds no load.
fn counter_config_enforced() -> serde_json::Value {
    let mut config = counter_config("mon0", "XDP_DROP");
    config["ingress"]["verdict"] = "enforce".into();
    config
}

#[derive(Default)]
struct Reads {
    reads_ms: Sample,
    quiesce_us: Sample,
    healthz_ms: Sample,
    /// The packets of all windows together.
    packets: u64,
    took: Duration,
}

impl Reads {
    fn take(daemon: &Daemon, count: u64) -> Result<Self> {
        let mut out = Self::default();
        // The first reading closes the window before the measurement.
        daemon.json(METRICS);
        let all = Instant::now();
        for _ in 0..count {
            let started = Instant::now();
            let response = daemon.get(METRICS);
            out.reads_ms.add(1000.0 * started.elapsed().as_secs_f64());
            let document = response.expect(200).json();
            let quiesce = document["window"]["quiesce_us"].as_u64().context("a window has a grace period")?;
            out.quiesce_us.add(quiesce as f64);
            out.packets += total(&document, "ingress", "packets");
            let started = Instant::now();
            daemon.get("/healthz").expect(200);
            out.healthz_ms.add(1000.0 * started.elapsed().as_secs_f64());
        }
        out.took = all.elapsed();
        Ok(out)
    }

    fn report(&self, method: &str, load: &str, rate: Option<f64>) {
        let ms = |part| format!("{:.2}", self.reads_ms.quantile(part));
        let us = |part| format!("{:.0}", self.quiesce_us.quantile(part));
        report::row(&[
            method.to_owned(),
            load.to_owned(),
            self.reads_ms.len().to_string(),
            ms(0.5),
            ms(0.99),
            ms(1.0),
            us(0.01),
            us(0.5),
            us(0.99),
            us(1.0),
            format!("{:.2}", self.healthz_ms.median()),
            rate.map_or_else(|| "0".to_owned(), |rate| format!("{:.1}", rate / 1e6)),
        ]);
    }
}
