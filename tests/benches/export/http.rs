//! Benchmark of a million entries as JSON, against bare batch lookups, which it needs at least, and against bpftool.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use twinprobe_tests::maps::BareLookups;
use twinprobe_tests::measure::{ProcessorTime, Sample};
use twinprobe_tests::{report, scaled};

use crate::million::{Content, ENTRIES, METRICS, Million};

/// The number of entries per bare call. Between 1,024 and 1,000,000 it makes a difference of 3 %.
const ROOM: usize = 65_536;
/// The number of pairs for each run of bpftool, which takes as long as several pairs.
const PAIRS: u64 = 3;
const BPFTOOL_TARGET: f64 = 4.0;

pub fn run() -> Result<()> {
    report::section(
        "A million entries as JSON",
        "GET of a HASH of 1,000,000 entries, from connecting to the Unix socket to the last byte of JSON, by a client \
         that reads and does not look. `bare` is `BPF_MAP_LOOKUP_BATCH` of the same map in one thread of another \
         process, 65,536 entries per call, into memory that has been used before. `bpftool` is \
         `bpftool -j map dump id` into /dev/null, from the start of the process to its end. Taken in turns, the first \
         two in alternating order; the ratios are those of each turn. Medians with quartiles. Every entry of one \
         answer is compared with what was written. `daemon` is the mean processor time of its threads per GET.",
    );
    report::table(&[
        "table",
        "JSON, MB",
        "pairs",
        "bare, ms",
        "HTTP, ms",
        "daemon, ms",
        "HTTP / bare",
        "target",
        "reached",
        "bpftool runs",
        "bpftool, ms",
        "bpftool / HTTP",
        ">= 4",
    ]);
    for content in Content::ALL {
        let mut million = Million::new(content)?;
        million.check()?;
        let mut times = Times::default();
        let mut bare = BareLookups::new(&million.table, ROOM);
        // The first pair touches all memory.
        times.pair(&mut million, &mut bare, true)?;
        times = Times::default();
        for _ in 0..scaled(7, 25) {
            let mut http = Sample::default();
            for pair in 0..PAIRS {
                http.add(times.pair(&mut million, &mut bare, pair % 2 == 0)?);
            }
            let time = bpftool(million.table.id)?;
            times.bpftool.add(1e3 * time);
            times.to_bpftool.add(time / http.median());
        }
        times.report(content);
    }
    Ok(())
}

#[derive(Default)]
struct Times {
    bytes: usize,
    bare: Sample,
    http: Sample,
    /// The processor time of the daemon in all GETs, in seconds.
    daemon: f64,
    ratio: Sample,
    bpftool: Sample,
    to_bpftool: Sample,
}

impl Times {
    /// Measures a pair. Returns the time of the GET in seconds.
    fn pair(&mut self, million: &mut Million, bare: &mut BareLookups, bare_first: bool) -> Result<f64> {
        let (mut bare_time, mut http_time) = (0.0, 0.0);
        for bare_now in [bare_first, !bare_first] {
            let started = Instant::now();
            if bare_now {
                let entries = bare.read(&million.table)?;
                bare_time = started.elapsed().as_secs_f64();
                ensure!(entries == ENTRIES as usize, "{entries} entries");
            } else {
                let before = ProcessorTime::of(million.daemon.pid())?.own;
                self.bytes = million.client.count(METRICS)?;
                http_time = started.elapsed().as_secs_f64();
                self.daemon += ProcessorTime::of(million.daemon.pid())?.own - before;
            }
        }
        self.bare.add(1e3 * bare_time);
        self.http.add(1e3 * http_time);
        self.ratio.add(http_time / bare_time);
        Ok(http_time)
    }

    fn report(&self, content: Content) {
        let target = match content {
            Content::Numbers => 1.5,
            Content::Flows => 2.0,
        };
        report::row(&[
            content.name(),
            &format!("{:.1}", self.bytes as f64 / 1e6),
            &self.ratio.len().to_string(),
            &self.bare.summary(0),
            &self.http.summary(0),
            &format!("{:.0}", 1e3 * self.daemon / self.http.len() as f64),
            &self.ratio.summary(2),
            &format!("<= {target:.1}"),
            report::verdict(self.ratio.median() <= target),
            &self.bpftool.len().to_string(),
            &self.bpftool.summary(0),
            &self.to_bpftool.summary(1),
            report::verdict(self.to_bpftool.median() >= BPFTOOL_TARGET),
        ]);
    }
}

/// Dumps a map with bpftool. Returns the seconds that it took.
fn bpftool(map: u32) -> Result<f64> {
    let started = Instant::now();
    let status = Command::new("bpftool")
        .args(["-j", "map", "dump", "id", &map.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("start bpftool")?;
    let time = started.elapsed().as_secs_f64();
    ensure!(status.success(), "bpftool: {status}");
    Ok(time)
}
