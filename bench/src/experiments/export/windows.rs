//! Windows of 25,000 flows that are written to the store, while packets arrive.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::measure::Sample;
use twinprobe_tests::traffic::Spread;
use twinprobe_tests::{http, probes};

use crate::frame::client::Client;
use crate::frame::options::Bench;
use crate::frame::paired::Estimate;
use crate::frame::site::Site;
use crate::frame::table::Table;
use crate::scenes::probes::nameless;

const WINDOWS: &str = "/v1/probes/flows/metrics";
const FLOWS: u64 = 25_000;
/// The pause between two reads, in which packets of all flows arrive.
const PAUSE: Duration = Duration::from_millis(20);

/// Reads windows of 25,000 flows while packets arrive. Returns the table, and the description of
/// the sender.
pub fn windows(bench: &Bench) -> Result<(Table, String)> {
    let mut table = Table::new(&[
        "windows of 25,000 flows",
        "read, ms",
        "p90",
        "p99",
        "max",
        "quiesce, us",
        "p99",
        "windows with fewer flows",
        "JSON, MB",
        "million packets/s",
    ]);
    let site = Site::new(bench)?;
    let daemon = site.daemon(&[])?;
    let mut config = nameless("flow-features", site.interface())?;
    // The program drops the frames: otherwise the network stack would take most of the time.
    let source = probes::source("flow-features")?.replace("return XDP_PASS", "return XDP_DROP");
    config["ingress"]["source"] = source.into();
    config["ingress"]["verdict"] = "enforce".into();
    daemon.put("/v1/probes/flows", &config).expect(201);
    let spread = Spread {
        addresses: 250,
        ports: 100,
        ..Spread::default()
    };
    ensure!(spread.flows() == FLOWS, "the generator's flows");
    let load = site.send(spread)?;
    let mut client = Client::new(&daemon);
    // The first reading allocates memory.
    Reads::default().take(&mut client, 1)?;
    let (before, started) = (load.sent()?, Instant::now());
    let mut reads = Reads::default();
    reads.take(&mut client, bench.times(500, 3))?;
    let rate = (load.sent()? - before) as f64 / started.elapsed().as_secs_f64();
    load.stop()?;
    table.row(reads.cells(rate));
    Ok((table, site.describe()))
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
            let bytes = client.get(WINDOWS, &mut answer)?;
            let time = started.elapsed().as_secs_f64();
            let body = http::parse(&answer)?;
            // Searching a field's name is faster than parsing the JSON, which would take longer
            // than the reading itself.
            if body.text().matches("{\"IPV4_SRC_ADDR\":").count() as u64 != FLOWS {
                self.fewer += 1;
                ensure!(
                    self.fewer < 100 + count,
                    "the packets of most windows are not of all flows"
                );
                continue;
            }
            let quiesce = body
                .text()
                .split_once("\"quiesce_us\":")
                .and_then(|(_, rest)| rest.split([',', '}']).next());
            self.quiesce_us
                .add(quiesce.context("a window has a grace period")?.parse()?);
            self.reads_ms.add(1e3 * time);
            self.bytes = bytes;
        }
        Ok(())
    }

    fn cells(&self, rate: f64) -> Vec<String> {
        let ms = |part| format!("{:.1}", self.reads_ms.quantile(part));
        vec![
            self.reads_ms.len().to_string(),
            Estimate::of(&self.reads_ms).show(1),
            ms(0.9),
            ms(0.99),
            ms(1.0),
            Estimate::of(&self.quiesce_us).show(0),
            format!("{:.0}", self.quiesce_us.quantile(0.99)),
            self.fewer.to_string(),
            format!("{:.1}", self.bytes as f64 / 1e6),
            format!("{:.1}", rate / 1e6),
        ]
    }
}
