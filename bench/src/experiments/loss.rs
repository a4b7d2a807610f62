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
use crate::scenes::slices::{Scene, Slice, Subject};
use crate::scenes::triples::{self, MS, Place, Triple};

/// The interval from which on a slice of time contains one window.
const SPARSE: Duration = Duration::from_millis(100);
/// The least length of a slice with several windows, in nanoseconds.
const SEVERAL: u64 = 60 * MS;
/// The index of the column with the placebo.
const PLACEBO: usize = 6;
/// The goals for the additional processor time per packet in percent: at 10 ms, and from 300 ms on.
const GOALS: [(u64, f64); 2] = [(10, 0.5), (300, 0.05)];

/// The cases: the interval in milliseconds (0: none, the null comparison), and the duration in
/// seconds.
const CASES: [(u64, u64); 8] = [
    (0, 60),
    (10, 300),
    (50, 60),
    (100, 120),
    (500, 60),
    (1_000, 18),
    (5_000, 32),
    (10_000, 66),
];
const QUICK: [(u64, u64); 3] = [(0, 1), (10, 1), (100, 2)];

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Windows and throughput (Fig. 4b)",
        "What do windows cost the monitored packets?",
        "60-byte SYNs of 24,832 sessions end at the packet-counter probe (XDP_DROP). A slice of time with the \
         daemon is compared with the mean of the slices before and after it. In those the daemon is stopped \
         (SIGSTOP) and closes no window. `none` is the null comparison: no interval. The *placebo* is another \
         process that burns as much time. Medians with intervals of 95 % (bootstrap).",
    );
    section.details =
        "The probe is at XDP with an enforced verdict. The daemon's clock closes windows (`window.interval`, \
         aligned): flip, grace period, extraction, file, fsync, reset. Nothing else changes from slice to slice. \
         Slices have 60 ms. For intervals from 100 ms on, slices have 40 ms around the end of a window, and the loss is the \
         slice's loss times its share of the interval. The placebo burns on the other CPU as much time as \
         the daemon needs for its windows. Its cost for the packets is an effect of the machine. `CPU per packet` \
         is the additional processor time of a packet, without the hypervisor's share. `packets/s` is the loss by \
         the wall clock, with that share. All packets are in windows, each once. The second table joins all slices \
         with one window. Such a slice begins 5 ms before the end of its window and holds all of the daemon's work \
         for it. So it measures the same for every interval. The table divides the additional cost of a slice by \
         each interval in turn. The table does the same for slices of 40 ms without a window (`null`) and for \
         slices of the placebo. One thing may differ: the part of the daemon's memory that is still in the caches. `daemon \
         per window` in the first table shows it."
        .to_owned();
    section.generator = Some(
        "the generator of the tests (`traffic`), in a single call into the kernel, on CPU 0".into(),
    );
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
    let [mut curve, mut curve_together] = [
        "CPU per packet",
        "the same, slices with one window together",
    ]
    .map(|name| Curve {
        name: name.into(),
        points: Vec::new(),
    });
    let (mut claims, mut together) = (Vec::new(), Together::default());
    for (interval, seconds) in bench.cases(&CASES, &QUICK) {
        let interval = (interval > 0).then(|| Duration::from_millis(interval));
        // A confidence interval needs some windows, even in a partial run.
        let least = interval
            .map_or(3.0, |interval| 5.0 * interval.as_secs_f64())
            .min(seconds as f64);
        let duration = Duration::from_secs_f64((seconds as f64 * bench.part).max(least));
        let place = place(interval);
        let measured = measure_case(interval, None, place, duration)?;
        let mut row = Row::of(interval, &measured);
        let Some(interval) = interval else {
            let place = Place::Around(nanoseconds(SPARSE));
            together.null = measure_case(None, None, place, duration)?.triples;
            table.row(row.cells);
            continue;
        };
        let placebo = measure_case(Some(interval), Some(row.daemon), place, duration)?;
        row.cells[PLACEBO] = Row::of(Some(interval), &placebo).more.show(3);
        curve.points.push((interval.as_secs_f64(), row.more));
        table.row(row.cells);
        if interval < SPARSE {
            claims.push(format!("{interval:?}: {} %", row.more.show(2)));
        } else {
            together.intervals.push(interval);
            together.windows.extend(measured.triples);
            together.placebo.extend(placebo.triples);
        }
    }
    section.tables = vec![table, together.table()];
    let estimates = together.estimates();
    let of_each = estimates
        .iter()
        .map(|(interval, more)| format!("{interval:?}: {} %", more.show(3)));
    claims.push(format!(
        "of all {} slices with one window together: {}",
        together.windows.len(),
        of_each.collect::<Vec<_>>().join(", ")
    ));
    curve_together.points.extend(
        estimates
            .iter()
            .map(|(interval, more)| (interval.as_secs_f64(), *more)),
    );
    section.figures.push(Figure {
        name: "windows",
        title: "What windows add to a packet's processor time, by their interval",
        x: Axis {
            label: "interval, s",
            logarithmic: true,
        },
        y: Axis {
            label: "more, %",
            logarithmic: false,
        },
        panels: vec![Panel {
            title: "windows read, stored and reset".into(),
            curves: vec![curve, curve_together],
        }],
    });
    section.meaning =
        "Windows may be as short as you need: they cost the daemon's own time, on any processor, not the packets' time."
            .to_owned();
    section.claims.push(Claim {
        claim: "windows cost packets",
        paper: "goal <= 0.5 % at 10 ms, <= 0.05 % from 300 ms on",
        ours: claims.join("; "),
        peers: String::new(),
    });
    Ok(section)
}

/// Returns the place of the slices of an interval.
fn place(interval: Option<Duration>) -> Place {
    match interval {
        Some(interval) if interval >= SPARSE => Place::Around(nanoseconds(interval)),
        Some(interval) => Place::Anywhere(SEVERAL.next_multiple_of(nanoseconds(interval))),
        None => Place::Anywhere(SEVERAL),
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// The triples of a case, and the number of windows in them.
struct Measured {
    triples: Vec<Triple>,
    windows: usize,
}

/// Measures the daemon's windows, or a placebo that takes this much processor time instead of each
/// window.
fn measure_case(
    interval: Option<Duration>,
    placebo: Option<Duration>,
    place: Place,
    duration: Duration,
) -> Result<Measured> {
    // The daemon is started from a thread that is not pinned, so the daemon is not pinned either.
    let scene = Scene::new(interval.filter(|_| placebo.is_none()))?;
    let subject = match interval.zip(placebo) {
        Some((interval, burn)) => Subject::Placebo(Placebo::start(interval, burn)?),
        None => Subject::Daemon(&scene.daemon),
    };
    let (mut triples, sent) = triples::measure(&scene, &subject, place, duration)?;

    let ends = scene.ends()?;
    let counted = scene.counted()?;
    ensure!(
        counted == sent,
        "{sent} packets were sent, {counted} counted"
    );
    let ends = match interval.zip(placebo) {
        Some((interval, _)) => triples::multiples(nanoseconds(interval), &triples),
        None => ends,
    };
    let windows_in = |slice: &Slice| {
        ends.iter()
            .filter(|end| (slice.from..slice.to).contains(end))
            .count()
    };
    // A placebo that stops a little late does no harm.
    let stray: usize = if placebo.is_some() {
        0
    } else {
        triples
            .iter()
            .map(|triple| windows_in(&triple.before) + windows_in(&triple.after))
            .sum()
    };
    ensure!(
        stray == 0,
        "{stray} windows were closed while the daemon was stopped"
    );
    triples.retain(Triple::has_packets);
    if interval.is_some_and(|interval| interval >= SPARSE) {
        // The measurement leaves out a window that came after the rest of its slice.
        triples.retain(|triple| windows_in(&triple.with) == 1);
    }
    ensure!(!triples.is_empty(), "too few slices");
    let windows = triples.iter().map(|triple| windows_in(&triple.with)).sum();
    Ok(Measured { triples, windows })
}

/// Estimates the cost in percent: the extra time of slices with the daemon, relative to the time
/// that a slice represents (an interval, if it has one window).
fn percent(triples: &[Triple], part: fn(&Triple) -> f64, interval: Option<Duration>) -> Estimate {
    let share =
        |slice: &Slice| interval.map_or(1.0, |interval| slice.seconds / interval.as_secs_f64());
    let values: Sample = triples
        .iter()
        .map(|triple| 100.0 * part(triple) * share(&triple.with))
        .collect();
    Estimate::of(&values)
}

/// Returns the goal of an interval, and whether it is met.
fn goal(interval: Duration, more: &Estimate) -> String {
    let milliseconds = interval.as_millis() as u64;
    let goal = GOALS.iter().rev().find(|(from, _)| *from <= milliseconds);
    goal.map_or_else(String::new, |(_, goal)| {
        format!("<= {goal}: {}", more.at_most(*goal))
    })
}

/// The slices with one window of all intervals, taken together.
#[derive(Default)]
struct Together {
    intervals: Vec<Duration>,
    windows: Vec<Triple>,
    placebo: Vec<Triple>,
    /// Slices of the same length without the end of a window.
    null: Vec<Triple>,
}

impl Together {
    /// Returns the additional cost of a packet, by the interval of the windows.
    fn estimates(&self) -> Vec<(Duration, Estimate)> {
        let more = |interval: &Duration| percent(&self.windows, Triple::more, Some(*interval));
        self.intervals
            .iter()
            .map(|interval| (*interval, more(interval)))
            .collect()
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&[
            "interval",
            "windows",
            "more CPU per packet, %",
            "goal",
            "null, %",
            "placebo, %",
        ]);
        for (interval, more) in self.estimates() {
            let beside =
                |triples: &[Triple]| percent(triples, Triple::more, Some(interval)).show(3);
            table.row([
                format!("{interval:?}"),
                self.windows.len().to_string(),
                more.show(3),
                goal(interval, &more),
                beside(&self.null),
                beside(&self.placebo),
            ]);
        }
        table
    }
}

/// A row of the table.
struct Row {
    /// The processor time of the daemon for each window.
    daemon: Duration,
    more: Estimate,
    cells: Vec<String>,
}

impl Row {
    fn of(interval: Option<Duration>, measured: &Measured) -> Self {
        let Measured { triples, windows } = measured;
        let (triples, windows) = (&triples[..], *windows);
        let sparse = interval.filter(|interval| *interval >= SPARSE);
        let (loss, more) = (
            percent(triples, Triple::loss, sparse),
            percent(triples, Triple::more, sparse),
        );
        let rate: Sample = triples
            .iter()
            .map(|triple| triple.before.rate() / 1e6)
            .collect();
        let seconds: f64 = triples.iter().map(|triple| triple.with.seconds).sum();
        let daemon: f64 = triples
            .iter()
            .map(|triple| triple.with.subject)
            .sum::<f64>()
            / windows.max(1) as f64;
        // The loss refers to the time of the slices, not to the interval.
        let lost = triples
            .iter()
            .map(|triple| 1e6 * triple.loss() * seconds / windows as f64)
            .collect::<Sample>();
        let of_windows = |text: String| if windows > 0 { text } else { String::new() };
        let cells = vec![
            interval.map_or_else(|| "none".to_owned(), |interval| format!("{interval:?}")),
            triples.len().to_string(),
            windows.to_string(),
            format!("{:.2}", rate.median()),
            more.show(3),
            interval.map_or_else(String::new, |interval| goal(interval, &more)),
            String::new(),
            loss.show(3),
            if windows > 0 {
                Estimate::of(&lost).show(0)
            } else {
                String::new()
            },
            of_windows(format!("{:.0}", 1e6 * daemon)),
        ];
        Self {
            daemon: Duration::from_secs_f64(daemon),
            more,
            cells,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a triple of slices of 40 ms, with packets that cost more by this fraction in the
    /// middle one.
    fn triple(more: f64) -> Triple {
        let slice = |sender| Slice {
            from: 0,
            to: 0,
            packets: 1e5,
            seconds: 0.04,
            sender,
            subject: 0.0,
        };
        Triple {
            before: slice(0.04),
            with: slice(0.04 * (1.0 + more)),
            after: slice(0.04),
        }
    }

    #[test]
    fn slices_with_one_window_are_of_each_interval() {
        let together = Together {
            intervals: vec![Duration::from_millis(100), Duration::from_secs(10)],
            windows: vec![triple(0.02), triple(0.01), triple(0.03)],
            ..Together::default()
        };
        let shown: Vec<_> = together
            .estimates()
            .iter()
            .map(|(_, more)| more.show(3))
            .collect();
        assert_eq!(shown, ["0.800 [0.400, 1.200]", "0.008 [0.004, 0.012]"]);
    }
}
