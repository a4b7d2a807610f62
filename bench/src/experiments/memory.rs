//! The daemon's resident memory with ten probes.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use twinprobe_tests::Daemon;
use twinprobe_tests::measure::Resident;
use twinprobe_tests::traffic::Spread;

use crate::frame::options::Bench;
use crate::frame::section::{Claim, Section};
use crate::frame::site::Site;
use crate::frame::table::{Table, met};
use crate::scenes::probes::nameless;

const TARGET_KIB: u64 = 25 << 10;
const PROBES: usize = 10;
const PACKETS: u64 = 100_000;

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Resident memory",
        "How much memory does the daemon need?",
        "VmRSS of the daemon, and the part of it that no file backs (heap and stacks), with ten probes with twins: \
         five packet-counters in both directions, five flow-features with 15 features and 65,536 flows. Each figure \
         is read once it is stable. `null` is the difference to a second daemon with the same requests.",
    );
    let mut table = Table::new(&[
        "after",
        "VmRSS, MiB",
        "null, MiB",
        "anonymous, MiB",
        "peak so far, MiB",
        "<= 25 MiB",
    ]);
    let site = Site::new(bench)?;
    section.generator = Some(site.describe());
    let (steps, again) = (live(bench, &site)?, live(bench, &site)?);
    let mib = |kib: u64| format!("{:.1}", kib as f64 / 1024.0);
    for ((after, resident), (_, again)) in steps.iter().zip(&again) {
        table.row([
            after.clone(),
            mib(resident.total_kib),
            format!(
                "{:+.1}",
                (again.total_kib as f64 - resident.total_kib as f64) / 1024.0
            ),
            mib(resident.anonymous_kib),
            mib(resident.peak_kib),
            met(resident.total_kib <= TARGET_KIB).to_owned(),
        ]);
    }
    let (_, last) = steps.last().context("steps")?;
    section.tables.push(table);
    section.meaning =
        "Maps are the kernel's memory and are not in these figures: `cost.map_bytes` of a probe's status has their \
        size."
            .to_owned();
    section.claims.push(Claim {
        claim: "the idle daemon with ten probes",
        paper: "goal <= 25 MiB",
        ours: format!("{} MiB", mib(last.total_kib)),
        peers: String::new(),
    });
    Ok(section)
}

/// Returns the memory of a new daemon after each step of its life.
fn live(bench: &Bench, site: &Site) -> Result<Vec<(String, Resident)>> {
    let daemon = site.daemon(&[])?;
    let still = Duration::from_millis(bench.times(1000, 200));
    let mut steps = Vec::new();
    let mut step = |after: &str| -> Result<()> {
        steps.push((after.to_owned(), settled(&daemon, still)?));
        Ok(())
    };
    step("start")?;
    for probe in 0..PROBES {
        let name = ["packet-counter", "flow-features"][probe % 2];
        daemon
            .put(&path(probe), &nameless(name, site.interface())?)
            .expect(201);
    }
    step("ten probes deployed")?;
    let reads = bench.times(1_000, 20);
    read(&daemon, reads);
    step(&format!("{reads} reads of empty maps"))?;
    site.send_count(Spread::default(), PACKETS)?;
    // Each probe is read once, with 24,832 flows in every flow table.
    read(&daemon, PROBES as u64);
    step("one read of each with 24,832 flows")?;
    read(&daemon, reads);
    step(&format!("{reads} more reads of empty maps"))?;
    Ok(steps)
}

fn read(daemon: &Daemon, times: u64) {
    for time in 0..times {
        daemon
            .get(&format!("{}/metrics", path(time as usize % PROBES)))
            .expect(200);
    }
}

/// Returns the memory after this time without a change, or after ten times this time.
fn settled(daemon: &Daemon, still: Duration) -> Result<Resident> {
    let limit = Instant::now() + 10 * still;
    let (mut last, mut since) = (Resident::of(daemon.pid())?, Instant::now());
    while since.elapsed() < still && Instant::now() < limit {
        thread::sleep(still / 10);
        let now = Resident::of(daemon.pid())?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(last)
}

fn path(number: usize) -> String {
    format!("/v1/probes/probe{number}")
}
