//! The daemon's resident memory with ten probes.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
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
         is taken when it has not changed for a while.",
    );
    let mut table = Table::new(&["after", "VmRSS, MiB", "anonymous, MiB", "peak so far, MiB", "<= 25 MiB"]);
    let site = Site::new(bench)?;
    section.generator = Some(site.describe());
    let daemon = site.daemon(&[])?;
    let still = Duration::from_millis(bench.times(1000, 200));
    let mut line = |after: &str| -> Result<u64> {
        let resident = settled(&daemon, still)?;
        let mib = |kib: u64| format!("{:.1}", kib as f64 / 1024.0);
        table.row([
            after.to_owned(),
            mib(resident.total_kib),
            mib(resident.anonymous_kib),
            mib(resident.peak_kib),
            met(resident.total_kib <= TARGET_KIB).to_owned(),
        ]);
        Ok(resident.total_kib)
    };
    line("start")?;
    for probe in 0..PROBES {
        let name = ["packet-counter", "flow-features"][probe % 2];
        daemon.put(&path(probe), &nameless(name, site.interface())?).expect(201);
    }
    line("ten probes deployed")?;
    let reads = bench.times(1_000, 20);
    read(&daemon, reads);
    line(&format!("{reads} reads of empty maps"))?;
    site.send_count(Spread::default(), PACKETS)?;
    // Each probe is read once, with 24,832 flows in every flow table.
    read(&daemon, PROBES as u64);
    line("one read of each with 24,832 flows")?;
    read(&daemon, reads);
    let last = line(&format!("{reads} more reads of empty maps"))?;
    section.tables.push(table);
    section.meaning =
        "Maps are the kernel's memory and are not in these figures: `cost.map_bytes` of a probe's status \
        says what they take."
            .to_owned();
    section.claims.push(Claim {
        claim: "the idle daemon with ten probes",
        paper: "goal <= 25 MiB",
        ours: format!("{:.1} MiB", last as f64 / 1024.0),
        peers: String::new(),
    });
    Ok(section)
}

fn read(daemon: &Daemon, times: u64) {
    for time in 0..times {
        daemon.get(&format!("{}/metrics", path(time as usize % PROBES))).expect(200);
    }
}

/// Returns the memory once it has not changed for this long, or after ten times as long.
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
