//! Loss of throughput of the monitored path by windows (Fig. 4b).

use std::time::Duration;

use anyhow::{Result, ensure};
use twinprobe_tests::measure::Sample;

use crate::frame::figure::{Axis, Curve, Figure, Panel};
use crate::frame::options::Bench;
use crate::frame::paired::Estimate;
use crate::frame::section::{Claim, Section};
use crate::frame::table::Table;
use crate::scenes::placebo::Placebo;
use crate::scenes::slices::{Scene, Slice, Subject, Traffic, now, sleep_until, step_aside};

const MS: u64 = 1_000_000;
/// The interval from which on a slice has one window.
const SPARSE: Duration = Duration::from_millis(100);
/// The length of a slice with one window in nanoseconds: long enough for all work that the daemon does for the window,
/// and no longer, since a longer slice adds noise.
const SLICE: u64 = 40 * MS;
/// The least length of a slice with several windows, in nanoseconds.
const SEVERAL: u64 = 60 * MS;
/// The time before a slice with the daemon, in which it makes up for missed work, in nanoseconds.
const SETTLE: u64 = 20 * MS;
/// The time before a slice without the daemon, in nanoseconds.
const STOPPING: u64 = 5 * MS;
/// The time from the beginning of a slice to the end of the window in it, in nanoseconds.
const LEAD: u64 = 5 * MS;
/// The column of the placebo.
const PLACEBO: usize = 6;
/// The number of times that frames are sent until there is a slice.
const ATTEMPTS: usize = 5;
/// The goal of more processor time per packet in percent, at 10 ms and from 300 ms on.
const GOALS: [(u64, f64); 2] = [(10, 0.5), (300, 0.05)];

/// The cases: the interval in milliseconds (0: none, the null comparison), and the duration in seconds.
const CASES: [(u64, u64); 8] =
    [(0, 20), (10, 18), (50, 18), (100, 18), (500, 18), (1_000, 18), (5_000, 32), (10_000, 66)];
const QUICK: [(u64, u64); 2] = [(0, 1), (10, 1)];

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Windows and throughput (Fig. 4b)",
        "What do windows, read, stored and reset, cost the packets that are monitored?",
        "60-byte SYNs of 24,832 sessions end at the packet-counter probe (XDP_DROP). A slice of time with the daemon \
         at work is compared with the mean of the slices before and after it, in which the daemon is stopped \
         (SIGSTOP) and so closes no window. `none` is the null comparison: the same without an interval. The \
         *placebo* is another process that burns as much instead. Medians with intervals of 95 % (bootstrap).",
    );
    section.details =
        "The probe is at XDP with an enforced verdict. Windows are closed by the daemon's clock (`window.interval`, \
         aligned): flip, grace period, extraction, file, fsync, reset. Nothing else changes from slice to slice. \
         Slices have 60 ms, and from 100 ms on 40 ms around the end of a window; the loss is then that of the slice \
         times its share of the interval. The placebo burns on the other CPU as much as the daemon needs for its \
         windows: what it costs the packets is the machine's doing. `CPU per packet` is what a packet costs more of \
         the processor's time, which the hypervisor's share is not in; `packets/s` is the loss by the wall clock, \
         which it is in. All packets are in windows, each once."
        .to_owned();
    section.generator =
        Some("the generator of the tests (`traffic`), in a single call into the kernel, on CPU 0".into());
    let mut table = Table::new(&[
        "interval",
        "pairs",
        "windows in them",
        "million packets/s without",
        "more CPU per packet, %",
        "goal",
        "placebo, %",
        "loss of packets/s, %",
        "lost per window, us",
        "daemon per window, us",
    ]);
    let mut curve = Curve { name: "CPU per packet".into(), points: Vec::new() };
    let mut claims = Vec::new();
    for (interval, seconds) in bench.cases(&CASES, &QUICK) {
        let interval = (interval > 0).then(|| Duration::from_millis(interval));
        // An interval needs some windows, whatever part of a run is wanted.
        let least = interval.map_or(3.0, |interval| 5.0 * interval.as_secs_f64()).min(seconds as f64);
        let duration = Duration::from_secs_f64((seconds as f64 * bench.part).max(least));
        let mut row = measure_case(interval, None, duration)?;
        if let Some(interval) = interval {
            let placebo = measure_case(Some(interval), Some(row.daemon), duration)?;
            row.cells[PLACEBO] = placebo.more.show(3);
        }
        if let Some(interval) = interval {
            curve.points.push((interval.as_secs_f64(), row.more));
            claims.push(format!("{interval:?}: {} %", row.more.show(2)));
        }
        table.row(row.cells);
    }
    section.tables.push(table);
    section.figures.push(Figure {
        name: "windows",
        title: "What windows add to a packet's processor time, by their interval",
        x: Axis { label: "interval, s", logarithmic: true },
        y: Axis { label: "more, %", logarithmic: false },
        panels: vec![Panel { title: "windows read, stored and reset".into(), curves: vec![curve] }],
    });
    section.meaning =
        "Windows may be as short as they are useful: what they cost is the daemon's own time for each, on \
        whatever processor it runs, and not the packets'."
            .to_owned();
    section.claims.push(Claim {
        claim: "windows cost packets",
        paper: "goal <= 0.5 % at 10 ms, <= 0.05 % from 300 ms on",
        ours: claims.join("; "),
        peers: String::new(),
    });
    Ok(section)
}

/// A slice with the daemon between two without it.
struct Triple {
    before: Slice,
    with: Slice,
    after: Slice,
}

impl Triple {
    /// Returns the fraction of the packets that are missing.
    fn loss(&self) -> f64 {
        1.0 - self.with.rate() / f64::midpoint(self.before.rate(), self.after.rate())
    }

    /// Returns the fraction by which a packet costs more.
    fn more(&self) -> f64 {
        self.with.per_packet() / f64::midpoint(self.before.per_packet(), self.after.per_packet()) - 1.0
    }
}

/// Measures the daemon's windows, or a placebo that burns this much instead of each.
fn measure_case(interval: Option<Duration>, placebo: Option<Duration>, duration: Duration) -> Result<Row> {
    // The daemon is started from a thread that is not pinned, so the daemon is not pinned either.
    let scene = Scene::new(interval.filter(|_| placebo.is_none()))?;
    let subject = match interval.zip(placebo) {
        Some((interval, burn)) => Subject::Placebo(Placebo::start(interval, burn)?),
        None => Subject::Daemon(&scene.daemon),
    };
    let sparse = interval.is_some_and(|interval| interval >= SPARSE);
    let (mut triples, sent) = std::thread::scope(|scope| {
        let measuring = scope.spawn(|| slices(&scene, &subject, interval, duration));
        measuring.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;

    let ends = scene.ends()?;
    let counted = scene.counted()?;
    ensure!(counted == sent, "{sent} packets were sent, {counted} counted");
    let ends = match interval.zip(placebo) {
        Some((interval, _)) => multiples(interval, &triples),
        None => ends,
    };
    let windows_in = |slice: &Slice| ends.iter().filter(|end| (slice.from..slice.to).contains(end)).count();
    // A placebo that stops a little late does no harm.
    let stray: usize = if placebo.is_some() {
        0
    } else {
        triples.iter().map(|triple| windows_in(&triple.before) + windows_in(&triple.after)).sum()
    };
    ensure!(stray == 0, "{stray} windows were closed while the daemon was stopped");
    // A slice without packets is dropped: another process had the CPU.
    triples
        .retain(|triple| [triple.before, triple.after, triple.with].iter().all(|slice| slice.packets > 0.0));
    if sparse {
        // A window that was later than the rest of its slice is not measured.
        triples.retain(|triple| windows_in(&triple.with) == 1);
    }
    ensure!(!triples.is_empty(), "too few slices");
    let windows: usize = triples.iter().map(|triple| windows_in(&triple.with)).sum();
    Ok(row(interval, sparse, &triples, windows))
}

/// Measures slices until the frames come to their end. Returns them and the number of frames.
fn slices(
    scene: &Scene,
    subject: &Subject<'_>,
    interval: Option<Duration>,
    duration: Duration,
) -> Result<(Vec<Triple>, u64)> {
    step_aside()?;
    let (mut triples, mut sent) = (Vec::new(), 0);
    // Frames end too early if other work slowed down the trial of their rate.
    for _ in 0..ATTEMPTS {
        sent += one_sending(scene, subject, interval, duration, &mut triples)?;
        if !triples.is_empty() {
            break;
        }
    }
    Ok((triples, sent))
}

/// Measures slices until the frames come to their end. Returns the number of frames.
fn one_sending(
    scene: &Scene,
    subject: &Subject<'_>,
    interval: Option<Duration>,
    duration: Duration,
    triples: &mut Vec<Triple>,
) -> Result<u64> {
    let traffic = scene.send(duration, subject)?;
    subject.pause();
    loop {
        let triple = match interval {
            Some(interval) if interval >= SPARSE => one_window(subject, &traffic, nanoseconds(interval))?,
            Some(interval) => {
                several_windows(subject, &traffic, SEVERAL.next_multiple_of(nanoseconds(interval)))?
            }
            None => several_windows(subject, &traffic, SEVERAL)?,
        };
        match triple {
            Some(triple) => triples.push(triple),
            None => break,
        }
    }
    subject.resume();
    traffic.join()
}

/// Measures a slice around the next end of a window. Returns `None` if the frames came to their end.
fn one_window(subject: &Subject<'_>, traffic: &Traffic, interval: u64) -> Result<Option<Triple>> {
    let earlier = LEAD + SETTLE + SLICE;
    let end = (now() + earlier + STOPPING).next_multiple_of(interval);
    sleep_until(end - earlier);
    let before = traffic.slice(end - earlier + SLICE)?;
    subject.resume();
    sleep_until(end - LEAD);
    let with = traffic.slice(end - LEAD + SLICE)?;
    subject.pause();
    sleep_until(now() + STOPPING);
    let after = traffic.slice(now() + SLICE)?;
    Ok(triple(before, with, after))
}

fn several_windows(subject: &Subject<'_>, traffic: &Traffic, length: u64) -> Result<Option<Triple>> {
    sleep_until(now() + STOPPING);
    let before = traffic.slice(now() + length / 2)?;
    subject.resume();
    sleep_until(now() + SETTLE);
    let with = traffic.slice(now() + length)?;
    subject.pause();
    sleep_until(now() + STOPPING);
    let after = traffic.slice(now() + length / 2)?;
    Ok(triple(before, with, after))
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

fn triple(before: Option<Slice>, with: Option<Slice>, after: Option<Slice>) -> Option<Triple> {
    Some(Triple { before: before?, with: with?, after: after? })
}

/// Returns the multiples of an interval from the first slice to the last.
fn multiples(interval: Duration, triples: &[Triple]) -> Vec<u64> {
    let interval = nanoseconds(interval);
    let (Some(first), Some(last)) = (triples.first(), triples.last()) else { return Vec::new() };
    let first = first.before.from.next_multiple_of(interval);
    (first..last.after.to).step_by(interval as usize).collect()
}

/// A row of the table.
struct Row {
    /// The processor time of the daemon for each window.
    daemon: Duration,
    more: Estimate,
    cells: Vec<String>,
}

fn row(interval: Option<Duration>, sparse: bool, triples: &[Triple], windows: usize) -> Row {
    let share = |slice: &Slice| match interval {
        Some(interval) if sparse => slice.seconds / interval.as_secs_f64(),
        _ => 1.0,
    };
    let percent = |part: fn(&Triple) -> f64| -> Sample {
        triples.iter().map(|triple| 100.0 * part(triple) * share(&triple.with)).collect()
    };
    let (loss, more) = (Estimate::of(&percent(Triple::loss)), Estimate::of(&percent(Triple::more)));
    let rate: Sample = triples.iter().map(|triple| triple.before.rate() / 1e6).collect();
    let seconds: f64 = triples.iter().map(|triple| triple.with.seconds).sum();
    let daemon: f64 = triples.iter().map(|triple| triple.with.subject).sum::<f64>() / windows.max(1) as f64;
    // The loss is that in the time of the slices, not of the interval.
    let lost =
        triples.iter().map(|triple| 1e6 * triple.loss() * seconds / windows as f64).collect::<Sample>();
    let of_windows = |text: String| if windows > 0 { text } else { String::new() };
    let goal = interval.and_then(|interval| {
        let milliseconds = interval.as_millis() as u64;
        let (_, goal) = GOALS.iter().rev().find(|(from, _)| *from <= milliseconds)?;
        Some(format!("<= {goal}: {}", more.at_most(*goal)))
    });
    let cells = vec![
        interval.map_or_else(|| "none".to_owned(), |interval| format!("{interval:?}")),
        triples.len().to_string(),
        windows.to_string(),
        format!("{:.2}", rate.median()),
        more.show(3),
        goal.unwrap_or_default(),
        String::new(),
        loss.show(3),
        if windows > 0 { Estimate::of(&lost).show(0) } else { String::new() },
        of_windows(format!("{:.0}", 1e6 * daemon)),
    ];
    Row { daemon: Duration::from_secs_f64(daemon), more, cells }
}
