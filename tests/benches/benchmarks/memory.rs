//! Benchmark of the daemon's resident memory with ten probes.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use twinprobe_tests::measure::Resident;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{Daemon, Topology, report, scaled};

use crate::nameless;

const TARGET_KIB: u64 = 25 << 10;
const PROBES: usize = 10;
const PACKETS: u64 = 100_000;

pub fn run() -> Result<()> {
    report::section(
        "Resident memory",
        "VmRSS of the daemon, and the part of it that no file backs (heap and stacks), with ten probes with twins: \
         five packet-counters in both directions, five flow-features with 15 features and 65,536 flows. Each figure \
         is taken when it has not changed for a second.",
    );
    report::table(&["after", "VmRSS, MiB", "anonymous, MiB", "peak so far, MiB", "<= 25 MiB"]);
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    line("start", &daemon)?;
    for probe in 0..PROBES {
        let name = ["packet-counter", "flow-features"][probe % 2];
        let config = nameless(name)?;
        daemon.put(&path(probe), &config).expect(201);
    }
    line("ten probes deployed", &daemon)?;
    let reads = scaled(1_000, 100_000);
    read(&daemon, reads);
    line(&format!("{reads} reads of empty maps"), &daemon)?;
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    generator.send(PACKETS)?;
    // Each probe is read once, with 24,832 flows in every flow table.
    read(&daemon, PROBES as u64);
    line("one read of each with 24,832 flows", &daemon)?;
    read(&daemon, reads);
    line(&format!("{reads} more reads of empty maps"), &daemon)
}

fn read(daemon: &Daemon, times: u64) {
    for time in 0..times {
        daemon.get(&format!("{}/metrics", path(time as usize % PROBES))).expect(200);
    }
}

fn line(after: &str, daemon: &Daemon) -> Result<()> {
    let resident = settled(daemon)?;
    let mib = |kib: u64| format!("{:.1}", kib as f64 / 1024.0);
    report::row(&[
        after,
        &mib(resident.total_kib),
        &mib(resident.anonymous_kib),
        &mib(resident.peak_kib),
        report::verdict(resident.total_kib <= TARGET_KIB),
    ]);
    Ok(())
}

/// Returns the memory once it has not changed for a second, or after ten seconds.
fn settled(daemon: &Daemon) -> Result<Resident> {
    const STILL: Duration = Duration::from_secs(1);
    let limit = Instant::now() + 10 * STILL;
    let (mut last, mut since) = (Resident::of(daemon.pid())?, Instant::now());
    while since.elapsed() < STILL && Instant::now() < limit {
        thread::sleep(STILL / 10);
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
