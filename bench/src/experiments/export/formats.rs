//! A million entries in three formats against bare look-ups, and the memory that this takes.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use twinprobe_tests::maps::BareLookups;
use twinprobe_tests::measure::{ProcessorTime, Resident};

use crate::frame::options::Bench;
use crate::frame::paired::{Comparison, Estimate, Way};
use crate::frame::section::{Claim, Section};
use crate::frame::table::{Table, met};
use crate::scenes::million::{Content, FORMATS, Million};

/// The number of entries in a single look-up call. The difference between 1,024 and 1,000,000 is 3
/// %.
pub const ROOM: usize = 65_536;
/// The goals: the largest factor between a GET in each format and the bare look-ups.
const GOALS: [f64; 3] = [1.10, 1.15, 1.5];
/// The goal for the memory: the daemon grows by at most this much.
const GROWTH_KIB: u64 = 8 << 10;
/// The pause of a slow client after each piece of at most 256 KiB.
const SLOW: Duration = Duration::from_millis(2);

/// Measures both tables, and adds the results to the section.
pub fn measure(bench: &Bench, section: &mut Section) -> Result<()> {
    let entries = bench.times(1_000_000, 20_000) as u32;
    let mut times = Table::new(&[
        "table",
        "format",
        "entries",
        "MB",
        "rounds",
        "bare, ms",
        "HTTP, ms",
        "daemon, processor ms",
        "HTTP / bare",
        "null",
        "goal",
        "reached",
    ]);
    let mut memory = Table::new(&[
        "table",
        "format",
        "client",
        "GETs",
        "idle, MiB",
        "peak, MiB",
        "grows by, MiB",
        "<= 8 MiB",
    ]);
    let mut ratios: [Vec<String>; 3] = Default::default();
    let mut most = 0;
    for content in Content::ALL {
        let mut million = Million::new(content, entries)?;
        million.check()?;
        let idle = Resident::of(million.daemon.pid())?.anonymous_kib;
        for (place, (name, format, _)) in FORMATS.into_iter().enumerate() {
            let path = Million::path(format);
            // The samples of a struct belong to several families, and the map is read for each of
            // these.
            let many = format == "openmetrics" && content.families() > 1;
            let goal = (!many).then_some(GOALS[place]);
            let rounds = if many {
                bench.rounds(5, 1)
            } else {
                bench.rounds(15, 2)
            };
            let (cells, ratio) = compare(&mut million, &path, rounds)?;
            let reached = goal.map_or("", |goal| ratio.at_most(goal)).to_owned();
            let goal = goal.map_or(String::new(), |goal| format!("<= {goal:.2}"));
            times.row(
                [content.name().to_owned(), name.to_owned()]
                    .into_iter()
                    .chain(cells)
                    .chain([goal, reached]),
            );
            ratios[place].push(format!("{:.2}", ratio.value));
            for (client, pause) in [("fast", None), ("slow", Some(SLOW))] {
                if many && pause.is_some() {
                    continue;
                }
                let gets = bench.rounds(3, 1);
                let peak = peak(&mut million, &path, gets, pause)?;
                let growth = peak.saturating_sub(idle);
                most = most.max(growth);
                let mib = |kib: u64| format!("{:.1}", kib as f64 / 1024.0);
                memory.row([
                    content.name().to_owned(),
                    name.to_owned(),
                    client.to_owned(),
                    gets.to_string(),
                    mib(idle),
                    mib(peak),
                    mib(growth),
                    met(growth <= GROWTH_KIB).to_owned(),
                ]);
            }
        }
    }
    section.tables.extend([times, memory]);
    let claims = [
        "1,000,000 entries as JSON",
        "the same as XML",
        "the same as OpenMetrics, a number and six",
    ];
    for ((claim, goal), ratios) in claims
        .into_iter()
        .zip(["<= 1.10", "<= 1.15", "<= 1.5 for a number"])
        .zip(&ratios)
    {
        section.claims.push(Claim {
            claim,
            paper: goal,
            ours: format!("{} times the bare look-ups", ratios.join(", ")),
            peers: String::new(),
        });
    }
    section.claims.push(Claim {
        claim: "memory that an export takes",
        paper: "goal <= 8 MiB",
        ours: format!("{:.1} MiB", most as f64 / 1024.0),
        peers: String::new(),
    });
    Ok(())
}

/// Returns the cells of a row from the entries to the null comparison, and the ratio to bare
/// look-ups.
fn compare(million: &mut Million, path: &str, rounds: u64) -> Result<([String; 8], Estimate)> {
    let mut bare = BareLookups::new(&million.table, ROOM);
    // The first round touches all pages of the memory.
    bare.read(&million.table)?;
    let bytes = million.client.count(path)?;
    let (mut daemon, mut gets) = (0.0, 0);
    let compared = Comparison::measure(rounds, |way| {
        let started = Instant::now();
        if way == Way::Base {
            let entries = bare.read(&million.table)?;
            let time = started.elapsed();
            ensure!(entries == million.entries as usize, "{entries} entries");
            return Ok(1e3 * time.as_secs_f64());
        }
        let before = ProcessorTime::of(million.daemon.pid())?.own;
        let again = million.client.count(path)?;
        let time = started.elapsed();
        daemon += ProcessorTime::of(million.daemon.pid())?.own - before;
        gets += 1;
        // The content is the same, except for some numbers in the head of the document.
        ensure!(again.abs_diff(bytes) < 4096, "{again} bytes after {bytes}");
        Ok(1e3 * time.as_secs_f64())
    })?;
    let ratio = compared.ratio();
    let cells = [
        million.entries.to_string(),
        format!("{:.1}", bytes as f64 / 1e6),
        rounds.to_string(),
        Estimate::of(&compared.base).show(1),
        Estimate::of(&compared.other).show(1),
        format!("{:.0}", 1e3 * daemon / f64::from(gets)),
        ratio.show(2),
        compared.null_ratio().show(2),
    ];
    Ok((cells, ratio))
}

/// Returns the most memory of the daemon during this many GETs, in KiB. Memory of mapped files does
/// not count, because the system may take pages of the program from an idle process. The memory is
/// read after each piece of an answer.
fn peak(million: &mut Million, path: &str, gets: u64, pause: Option<Duration>) -> Result<u64> {
    let pid = million.daemon.pid();
    let mut peak = 0;
    for _ in 0..gets {
        million.client.read(path, |_| {
            peak = peak.max(Resident::of(pid).map_or(0, |memory| memory.anonymous_kib));
            pause.into_iter().for_each(thread::sleep);
        })?;
    }
    ensure!(peak > 0, "the daemon has memory");
    Ok(peak)
}
