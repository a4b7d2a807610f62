//! Windows per second, and what each costs the daemon.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use twinprobe_tests::measure::{Sample, processor_seconds};
use twinprobe_tests::{Daemon, DaemonOptions, Topology, attachments};

use crate::frame::options::Bench;
use crate::frame::paired::Estimate;
use crate::frame::section::{Claim, Section};
use crate::frame::table::Table;
use crate::scenes::floor::{self, Bare};
use crate::scenes::pairs::pairs;

/// The goals: windows per second over 100 probes, and the microseconds of processor time of each.
const RATE: f64 = 5_000.0;
const TIME: f64 = 300.0;
/// The most probes of a hook.
const PER_HOOK: usize = 16;
/// The length of a slice for counting windows.
const SLICE: Duration = Duration::from_secs(2);
/// The cases: the number of probes, and the interval of their windows in milliseconds.
const CASES: [(usize, u64); 7] = [
    (1, 1_000),
    (1, 100),
    (1, 10),
    (10, 10),
    (100, 100),
    (100, 20),
    (100, 10),
];
/// The steps without a daemon, and their interval in milliseconds.
const BARE: [(Bare, u64); 6] = [
    (Bare::Wake, 10),
    (Bare::Visit, 10),
    (Bare::Write, 10),
    (Bare::Both, 10),
    (Bare::Both, 100),
    (Bare::Both, 1_000),
];
/// The least number of steps in a slice.
const LEAST: u64 = 5;
/// The experiment requests twice the goal, because the requested rate is an upper limit.
const MOST: (usize, u64) = (100, 10);

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Windows per second",
        "How many windows does the daemon close, and what does each cost?",
        "Counters of one entry at TC, whose windows are closed by the daemon's clock: flip, grace period, \
         extraction, file, sync, reset. Windows and processor time are counted in slices of 2 s; the null comparison is each \
         slice by the previous one. The second table has the kernel's time for the least steps \
         of a window, without a daemon. Medians with intervals of 95 % (bootstrap).",
    );
    section.details =
        "There are up to 16 counters at each interface. Each keeps its newest 10 windows, so the daemon also \
         removes old ones. The number of windows is `twinprobe_windows_closed_total`, and processor time is that of \
         all threads of the daemon. If a window is due while the daemon closes the last one of its probe, the \
         daemon skips it. So a machine without time to spare reaches less than asked for. In the second table, a \
         thread sleeps until the tick, moves to each other processor in turn, overwrites a block of a file on the \
         disk and syncs it (`fdatasync`)."
        .to_owned();
    let mut table = Table::new(&[
        "probes",
        "interval, ms",
        "slices",
        "asked for, windows/s",
        "reached, windows/s",
        "of what was asked for, %",
        "CPU per window, us",
        "<= 300",
        "null",
    ]);
    let mut claims = Vec::new();
    for (probes, interval) in bench.cases(&CASES, &[(1, 10), (20, 20)]) {
        let rates = measure(bench, probes, interval)?;
        let (rate, time) = (Estimate::of(&rates.rate), Estimate::of(&rates.time));
        let asked = probes as f64 * 1e3 / interval as f64;
        table.row([
            probes.to_string(),
            interval.to_string(),
            rates.rate.len().to_string(),
            format!("{asked:.0}"),
            rate.show(0),
            format!("{:.0}", 100.0 * rate.value / asked),
            time.show(0),
            time.at_most(TIME).to_owned(),
            Estimate::of(&rates.null).show(2),
        ]);
        let missed = |met: bool| if met { "" } else { " (missed)" };
        if (probes, interval) == MOST {
            claims.push(format!(
                "{:.0}/s of {asked:.0}/s asked for{}",
                rate.value,
                missed(rate.value >= RATE)
            ));
        }
        if probes == 1 || interval == 10 {
            let met = missed(time.value <= TIME);
            claims.push(format!(
                "{probes} every {interval} ms: {:.0} us{met}",
                time.value
            ));
        }
    }
    section.tables.push(table);
    section.tables.push(bare(bench)?);
    section.meaning = "Windows that are due at the same time share the wait for the processors and the sync of the \
        disk. So many windows cost less than one each, and a host may have a hundred probes with short windows. A \
        window that is due alone must wake the daemon, visit each processor (the grace period) and sync the disk \
        for itself. The last rows of the second table have the cost of these steps without a daemon. These rows and the rows of \
        one probe show that the same work takes longer after a longer pause, because less of its data is in the caches. A profile of one probe every 100 ms, on an Intel Xeon, found 62 % of the samples in the kernel \
        (24 % sync, 14 % wait and wake, 4 % rename), 27 % in the daemon's own code, the rest in libc."
        .to_owned();
    section.claims.push(Claim {
        claim: "windows per second over 100 probes, and processor time of a window",
        paper: "goal >= 5,000/s, <= 300 us",
        ours: claims.join("; "),
        peers: String::new(),
    });
    Ok(section)
}

/// Measures the time of the kernel alone.
fn bare(bench: &Bench) -> Result<Table> {
    let mut table = Table::new(&[
        "without a daemon",
        "interval, ms",
        "slices",
        "CPU per tick, us",
    ]);
    let slices = bench.rounds(10, 1);
    let mut times: Vec<_> = bench
        .cases(&BARE, &BARE[..4])
        .into_iter()
        .map(|case| (case, Sample::default()))
        .collect();
    for _ in 0..slices {
        // The steps take turns, so that disturbances of the machine affect all of them.
        for ((step, interval), times) in &mut times {
            let ticks = (SLICE.as_millis() as u64 / *interval).max(LEAST) as u32;
            times.add(floor::measure(
                *step,
                ticks,
                Duration::from_millis(*interval),
            )?);
        }
    }
    for ((step, interval), times) in times {
        let (interval, slices) = (interval.to_string(), slices.to_string());
        table.row([
            step.name().to_owned(),
            interval,
            slices,
            Estimate::of(&times).show(0),
        ]);
    }
    Ok(table)
}

/// The results of all slices.
#[derive(Default)]
struct Rates {
    rate: Sample,
    /// Microseconds of each window.
    time: Sample,
    /// The time of a window in a slice, divided by the time of a window in the previous slice.
    null: Sample,
}

fn measure(bench: &Bench, probes: usize, interval: u64) -> Result<Rates> {
    let topology = Topology::new()?;
    let names = pairs(&topology, probes.div_ceil(PER_HOOK))?;
    let options = DaemonOptions::default()
        .argument("--max-probes")
        .argument("4096");
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    for probe in 0..probes {
        let metrics =
            json!([{ "name": "packets", "map": "packets", "snapshot": true, "init": true }]);
        let config = json!({
            "interface": names[probe / PER_HOOK],
            "ingress": { "hook": "tc", "source": attachments::tc_counter("-1"), "metrics": metrics },
            "window": { "interval": format!("{interval}ms"), "retain": 10 },
        });
        daemon
            .put(&format!("/v1/probes/probe{probe}"), &config)
            .expect(201);
    }
    let slice = if bench.quick {
        SLICE / 10
    } else {
        SLICE.max(Duration::from_millis(5 * interval))
    };
    let mut rates = Rates::default();
    let mut last = None;
    // The case of the goal, a window that is due alone, has the widest confidence interval, and
    // therefore the most slices.
    let slices = if (probes, interval) == (1, 10) {
        40
    } else {
        10
    };
    // The first slice is a warm-up.
    for number in 0..=bench.rounds(slices, 1) {
        let before = Edge::before(&daemon)?;
        thread::sleep(slice);
        let after = Edge::after(&daemon)?;
        let windows = after.closed - before.closed;
        ensure!(windows > 0.0, "no window was closed within {slice:?}");
        let time = 1e6 * (after.processor - before.processor) / windows;
        if number > 0 {
            rates
                .rate
                .add(windows / (after.at - before.at).as_secs_f64());
            rates.time.add(time);
            rates.null.add(time / last.unwrap_or(time));
        }
        last = Some(time);
    }
    Ok(rates)
}

/// A moment between slices.
struct Edge {
    at: Instant,
    closed: f64,
    processor: f64,
}

impl Edge {
    /// Returns the moment before a slice. The time that the daemon takes for this answer is outside
    /// of the slice.
    fn before(daemon: &Daemon) -> Result<Self> {
        let closed = closed(daemon)?;
        Ok(Self {
            at: Instant::now(),
            closed,
            processor: processor_seconds(daemon.pid())?,
        })
    }

    /// Returns the moment after a slice.
    fn after(daemon: &Daemon) -> Result<Self> {
        let (at, processor) = (Instant::now(), processor_seconds(daemon.pid())?);
        Ok(Self {
            at,
            closed: closed(daemon)?,
            processor,
        })
    }
}

/// Returns the number of windows that the daemon has closed.
fn closed(daemon: &Daemon) -> Result<f64> {
    let page = daemon.get("/metrics").expect(200);
    let mut closed = 0.0;
    for line in page
        .text()
        .lines()
        .filter(|line| line.starts_with("twinprobe_windows_closed_total{"))
    {
        let value = line.rsplit(' ').next().context("a value")?;
        closed += value.parse::<f64>().with_context(|| line.to_owned())?;
    }
    Ok(closed)
}
