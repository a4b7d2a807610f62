//! Export: a million entries as JSON, the memory that this takes, and windows of 25,000 flows while packets arrive.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::maps::BareLookups;
use twinprobe_tests::measure::{ProcessorTime, Resident, Sample};
use twinprobe_tests::traffic::Spread;
use twinprobe_tests::{http, probes};

use crate::frame::client::Client;
use crate::frame::options::Bench;
use crate::frame::paired::{Comparison, Estimate, Way};
use crate::frame::section::{Claim, Section};
use crate::frame::site::Site;
use crate::frame::table::{Table, met};
use crate::scenes::million::{Content, METRICS, Million};
use crate::scenes::probes::nameless;

/// The number of entries per bare call. Between 1,024 and 1,000,000 it makes a difference of 3 %.
const ROOM: usize = 65_536;
/// The goal: JSON over HTTP takes at most this many times as long as the bare lookups.
const JSON: f64 = 1.10;
/// The goal: the daemon grows by at most this much.
const GROWTH_KIB: u64 = 8 << 10;
/// The pause of a slow client after each piece of at most 256 KiB.
const SLOW: Duration = Duration::from_millis(2);
const WINDOWS: &str = "/v1/probes/flows/metrics";
const FLOWS: u64 = 25_000;
/// The pause between two reads, in which packets of all flows arrive.
const PAUSE: Duration = Duration::from_millis(20);

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Exporting",
        "How long do large tables take on their way out, and how much memory?",
        "First: GET of a HASH of 1,000,000 entries, from connecting to the Unix socket to the last byte of JSON, by a client \
         that reads and does not look; `bare` is `BPF_MAP_LOOKUP_BATCH` of the same map in one thread of another process, 65,536 \
         entries per call, into memory that has been used before, taken in turns with it and twice, the null comparison; \
         `bpftool` is `bpftool -j map dump id` into /dev/null. Every entry of one answer is compared with what was written. \
         Second: VmHWM of the daemon during such a GET, reset before each, less its VmRSS before the first one, the most \
         of all; the slow client pauses for 2 ms after each piece. Third: GET of a window of the flow-features probe \
         while frames of 25,000 flows arrive as fast as possible: flip, grace period, extraction, file, fsync, reset, JSON. \
         Medians with intervals of 95 % (bootstrap).",
    );
    let entries = bench.times(1_000_000, 20_000) as u32;
    let mut json = Table::new(&[
        "table",
        "entries",
        "JSON, MB",
        "rounds",
        "bare, ms",
        "HTTP, ms",
        "daemon, ms",
        "HTTP / bare",
        "null",
        "<= 1.10",
        "bpftool, ms",
        "bpftool / HTTP",
    ]);
    let mut memory =
        Table::new(&["table", "client", "exports", "idle, MiB", "peak, MiB", "grows by, MiB", "<= 8 MiB"]);
    let (mut ratios, mut peers, mut growths) = (Vec::new(), Vec::new(), Vec::new());
    for content in Content::ALL {
        let mut million = Million::new(content, entries)?;
        million.check()?;
        let (row, ratio, peer) = compare(bench, &mut million, content)?;
        json.row(row);
        ratios.push(ratio);
        peers.push(peer);
        let idle = Resident::of(million.daemon.pid())?.total_kib;
        for (name, pause) in [("fast", None), ("slow", Some(SLOW))] {
            let exports = bench.times(5, 1);
            let peak = peak(&mut million, exports, pause)?;
            let growth = peak.saturating_sub(idle);
            growths.push(growth);
            let mib = |kib: u64| format!("{:.1}", kib as f64 / 1024.0);
            memory.row([
                content.name().to_owned(),
                name.to_owned(),
                exports.to_string(),
                mib(idle),
                mib(peak),
                mib(growth),
                met(growth <= GROWTH_KIB).to_owned(),
            ]);
        }
    }
    let (windows, generator) = windows(bench)?;
    section.generator = Some(generator);
    section.tables = vec![json, memory, windows];
    section.meaning = "A live map is rendered as it is read and is never held, so that a table of any size can be exported by \
        a small daemon."
        .to_owned();
    section.claims = vec![
        Claim {
            claim: "1,000,000 entries as JSON against bare lookups",
            paper: "goal <= 1.10",
            ours: ratios.iter().map(|ratio| format!("{:.2}", ratio.value)).collect::<Vec<_>>().join(", "),
            peers: format!("bpftool takes {} times as long", peers.join(" and ")),
        },
        Claim {
            claim: "memory that an export takes",
            paper: "goal <= 8 MiB",
            ours: format!("{:.1} MiB", growths.iter().max().map_or(0.0, |&kib| kib as f64 / 1024.0)),
            peers: String::new(),
        },
    ];
    Ok(section)
}

/// Returns the row of a table, the ratio to bare lookups, and that of bpftool.
fn compare(
    bench: &Bench,
    million: &mut Million,
    content: Content,
) -> Result<(Vec<String>, Estimate, String)> {
    let rounds = bench.times(15, 2);
    let mut bare = BareLookups::new(&million.table, ROOM);
    let (mut bytes, mut daemon, mut gets) = (0, 0.0, 0);
    // The first round touches all memory.
    bare.read(&million.table)?;
    million.client.count(METRICS)?;
    let compared = Comparison::measure(rounds, |way| {
        let started = Instant::now();
        if way == Way::Base {
            let entries = bare.read(&million.table)?;
            let time = started.elapsed();
            ensure!(entries == million.entries as usize, "{entries} entries");
            return Ok(1e3 * time.as_secs_f64());
        }
        let before = ProcessorTime::of(million.daemon.pid())?.own;
        bytes = million.client.count(METRICS)?;
        let time = started.elapsed();
        daemon += ProcessorTime::of(million.daemon.pid())?.own - before;
        gets += 1;
        Ok(1e3 * time.as_secs_f64())
    })?;
    let tool: Sample = (0..rounds.div_ceil(3))
        .map(|_| bpftool(million.table.id))
        .collect::<Result<Vec<f64>>>()?
        .into_iter()
        .collect();
    let times = format!("{:.1}", tool.median() / compared.other.median());
    let ratio = compared.ratio();
    let row = vec![
        content.name().to_owned(),
        million.entries.to_string(),
        format!("{:.1}", bytes as f64 / 1e6),
        rounds.to_string(),
        Estimate::of(&compared.base).show(1),
        Estimate::of(&compared.other).show(1),
        format!("{:.0}", 1e3 * daemon / f64::from(gets)),
        ratio.show(2),
        compared.null_ratio().show(2),
        ratio.at_most(JSON).to_owned(),
        Estimate::of(&tool).show(0),
        times.clone(),
    ];
    Ok((row, ratio, times))
}

/// Dumps a map with bpftool. Returns the milliseconds that it took.
fn bpftool(map: u32) -> Result<f64> {
    let started = Instant::now();
    let status = Command::new("bpftool")
        .args(["-j", "map", "dump", "id", &map.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("start bpftool")?;
    ensure!(status.success(), "bpftool: {status}");
    Ok(1e3 * started.elapsed().as_secs_f64())
}

/// Returns the most memory of the daemon during this many exports, in KiB.
fn peak(million: &mut Million, exports: u64, pause: Option<Duration>) -> Result<u64> {
    let pid = million.daemon.pid();
    let mut peak = 0;
    for _ in 0..exports {
        Resident::reset_peak(pid)?;
        million.client.read(METRICS, |_| pause.into_iter().for_each(thread::sleep))?;
        peak = peak.max(Resident::of(pid)?.peak_kib);
    }
    Ok(peak)
}

/// Reads windows of 25,000 flows while packets arrive. Returns the table, and what sends.
fn windows(bench: &Bench) -> Result<(Table, String)> {
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
    // The program drops the frames: the network stack behind it would take most of the time.
    let source = probes::source("flow-features")?.replace("return XDP_PASS", "return XDP_DROP");
    config["ingress"]["source"] = source.into();
    config["ingress"]["verdict"] = "enforce".into();
    daemon.put("/v1/probes/flows", &config).expect(201);
    let spread = Spread { addresses: 250, ports: 100, ..Spread::default() };
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
