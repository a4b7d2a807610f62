//! Benchmark of grace periods: the time from the flip until no CPU runs the old twin, by each method.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::measure::Sample;
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::windows::Windows;
use twinprobe_tests::{Daemon, DaemonOptions, Topology, report, scaled};

/// The target for the median.
const TARGET_US: f64 = 1000.0;

pub fn run() -> Result<()> {
    report::section(
        "Flip and grace period",
        "`quiesce_us` of windows of one XDP probe with one ARRAY of one counter, closed by POST one after the other: from \
         the flip, which is a store to memory, until no CPU runs the twin that was left. Under load, frames arrive as \
         fast as one CPU can send and receive them; that CPU is one of those that a grace period waits for. \
         Daemon, client and sender have nice -19.",
    );
    report::table(&[
        "method",
        "load",
        "windows",
        "p50, us",
        "p99, us",
        "max, us",
        "p50 <= 1 ms",
        "million packets/s",
    ]);
    for (method, windows) in [("sweep", 1_000), ("membarrier", 200), ("map-in-map", 200)] {
        let windows = scaled(windows, 10 * windows);
        let topology = Topology::new()?;
        let options = DaemonOptions::default().argument("--quiesce").argument(method);
        let daemon = Daemon::start_with(topology.monitor(), &options)?;
        let mut config = counter_config("mon0", "XDP_DROP");
        config["ingress"]["verdict"] = "enforce".into();
        daemon.put("/v1/probes/probe", &config).expect(201);
        let probe = Windows::of(&daemon, "probe");
        close(method, "idle", &probe, windows)?;

        let cpu = GeneratorOptions { cpu: Some(0), ..GeneratorOptions::default() };
        let load = Generator::new(topology.generator(), "gen0", cpu)?.spawn(Load::default());
        while load.sent() == 0 {
            ensure!(!load.is_finished(), "the generator ended");
            std::thread::yield_now();
        }
        close(method, "live frames", &probe, windows)?;
        load.stop()?;
    }
    Ok(())
}

fn close(method: &str, load: &str, probe: &Windows, count: u64) -> Result<()> {
    let mut quiesce = Sample::default();
    let mut packets = 0;
    probe.close();
    let started = Instant::now();
    for _ in 0..count {
        let document = probe.close();
        quiesce.add(document["window"]["quiesce_us"].as_u64().context("a window has a grace period")? as f64);
        packets += total(&document, "ingress", "packets");
    }
    let us = |part| format!("{:.0}", quiesce.quantile(part));
    report::row(&[
        method.to_owned(),
        load.to_owned(),
        quiesce.len().to_string(),
        us(0.5),
        us(0.99),
        us(1.0),
        report::verdict(quiesce.median() <= TARGET_US).to_owned(),
        format!("{:.1}", packets as f64 / started.elapsed().as_secs_f64() / 1e6),
    ]);
    Ok(())
}
