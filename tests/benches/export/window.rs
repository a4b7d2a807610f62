//! Benchmark of reading a window of 25,000 flows while packets arrive.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use twinprobe_tests::measure::Sample;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load, Spread};
use twinprobe_tests::{Daemon, Topology, http, probes, report, scaled};

use crate::client::Client;

const METRICS: &str = "/v1/probes/flows/metrics";
const FLOWS: u64 = 25_000;
/// The pause between two reads, in which packets of all flows arrive.
const PAUSE: Duration = Duration::from_millis(20);

pub fn run() -> Result<()> {
    report::section(
        "Reading a window of 25,000 flows",
        "GET of the metrics of the flow-features probe with all 15 features, at XDP: connect to the Unix socket, flip, \
         quiesce, extract, reset, JSON, until the last byte; then a pause of 20 ms. Frames of 25,000 flows arrive as \
         fast as one CPU can send and receive them, and go on doing so while a window is read. Only windows that have \
         all the flows are counted.",
    );
    report::table(&[
        "reads",
        "read, ms: p50",
        "p90",
        "p99",
        "max",
        "quiesce, us: p50",
        "p99",
        "windows with fewer flows",
        "JSON, MB",
        "million packets/s",
    ]);
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut config = probes::configuration("flow-features", "mon0")?;
    config.as_object_mut().context("an object")?.remove("name");
    // The program drops the frames: the network stack behind it would take most of the time.
    let source = probes::source("flow-features")?.replace("return XDP_PASS", "return XDP_DROP");
    config["ingress"]["source"] = source.into();
    config["ingress"]["verdict"] = "enforce".into();
    daemon.put("/v1/probes/flows", &config).expect(201);

    let spread = Spread { addresses: 250, ports: 100, ..Spread::default() };
    ensure!(spread.flows() == FLOWS, "the generator's flows");
    let options = GeneratorOptions { spread, cpu: Some(0), ..GeneratorOptions::default() };
    let load = Generator::new(topology.generator(), "gen0", options)?.spawn(Load::default());
    while load.sent() == 0 {
        ensure!(!load.is_finished(), "the generator ended");
        thread::yield_now();
    }
    let mut client = Client::new(&daemon);
    // The first reading allocates memory.
    Reads::default().take(&mut client, 1)?;
    let (before, started) = (load.sent(), Instant::now());
    let mut reads = Reads::default();
    reads.take(&mut client, scaled(1_000, 20_000))?;
    let rate = (load.sent() - before) as f64 / started.elapsed().as_secs_f64();
    load.stop()?;
    reads.report(rate);
    Ok(())
}

#[derive(Default)]
struct Reads {
    reads_ms: Sample,
    quiesce_us: Sample,
    /// The number of windows with fewer flows.
    fewer: u64,
    bytes: usize,
}

impl Reads {
    /// Reads until `count` windows had all flows.
    fn take(&mut self, client: &mut Client, count: u64) -> Result<()> {
        let mut answer = Vec::new();
        while (self.reads_ms.len() as u64) < count {
            thread::sleep(PAUSE);
            let started = Instant::now();
            let bytes = client.get(METRICS, &mut answer)?;
            let time = started.elapsed().as_secs_f64();
            let body = http::parse(&answer)?;
            // Counting a field's name is faster than parsing the JSON, which would take longer than the reading.
            if body.text().matches("{\"IPV4_SRC_ADDR\":").count() as u64 != FLOWS {
                self.fewer += 1;
                ensure!(self.fewer < 100 + count, "the packets of most windows are not of all flows");
                continue;
            }
            let quiesce =
                body.text().split_once("\"quiesce_us\":").and_then(|(_, rest)| rest.split([',', '}']).next());
            self.quiesce_us.add(quiesce.context("a window has a grace period")?.parse()?);
            self.reads_ms.add(1e3 * time);
            self.bytes = bytes;
        }
        Ok(())
    }

    fn report(&self, rate: f64) {
        let ms = |part| format!("{:.1}", self.reads_ms.quantile(part));
        let whole = |sample: &Sample, part| format!("{:.0}", sample.quantile(part));
        report::row(&[
            self.reads_ms.len().to_string(),
            ms(0.5),
            ms(0.9),
            ms(0.99),
            ms(1.0),
            whole(&self.quiesce_us, 0.5),
            whole(&self.quiesce_us, 0.99),
            self.fewer.to_string(),
            format!("{:.1}", self.bytes as f64 / 1e6),
            format!("{:.1}", rate / 1e6),
        ]);
    }
}
