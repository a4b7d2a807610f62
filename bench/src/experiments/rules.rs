//! An attack that three monitors watch: a coarse one, a fine one, and one that becomes fine when a
//! rule fires. This is the vision of the paper (Fig. 1).

use std::time::Duration;

use anyhow::Result;
use twinprobe_tests::measure::Sample;

use crate::frame::figure::{Axis, Curve, Figure, Panel};
use crate::frame::options::Bench;
use crate::frame::paired::{Estimate, above, in_turns, show_ratio_above};
use crate::frame::section::{Claim, Section};
use crate::frame::table::Table;
use crate::scenes::attack::{self, FLOOD, INTERVAL, ORDINARY, Round, SAMPLE, Times, Watch};

/// The goal of the time from the end of a window to the new probe, in milliseconds.
const REACTION: f64 = 30.0;
/// The ways, with the empty program first. The way "fine on demand" is there twice, for the null
/// comparison.
const WAYS: [Watch; 5] = [
    Watch::Empty,
    Watch::Coarse,
    Watch::Fine,
    Watch::OnDemand,
    Watch::OnDemand,
];
const NAMES: [&str; 5] = [
    "empty",
    "always coarse",
    "always fine",
    "fine on demand",
    "fine on demand, again",
];
const FINE: usize = 2;
const ON_DEMAND: usize = 3;

pub fn run(bench: &Bench) -> Result<Section> {
    let times = Times {
        round: Duration::from_secs_f64(bench.part.max(0.2) * bench.times(60, 6) as f64),
        flood: Duration::from_secs(1),
    };
    let rounds = bench.rounds(5, 1);
    let mut section = Section::new(
        "Fine on demand (Fig. 1)",
        "What does it save if a rule deploys the fine probe only while a coarse one sees an attack?",
        format!(
            "A flood of SYNs comes for {} s of {:.0} s in ordinary traffic. `always fine`: `flow-features`. `always coarse`: \
             `tcp-flags`, one packet in {SAMPLE}. `fine on demand`: a rule over the coarse probe deploys the fine one, and deletes it. \
             `empty`: a program that does nothing. Windows of {INTERVAL}, in turns; medians with intervals of 95 % (bootstrap).",
            times.flood.as_secs(),
            times.round.as_secs_f64()
        ),
    );
    section.generator = Some(
        "two generators of the tests (`traffic`): ordinary packets on CPU 0, in bursts of 50 ms, and the flood on CPU 1".into(),
    );
    section.details = format!(
        "The flood has {FLOOD} SYNs a second, ordinary traffic {ORDINARY} packets. `always fine` has a rule over its flows. Each turn has a daemon and an interface of its own. `ns per packet` is the kernel's count of the \
        dispatcher's processor time over all of the round (`BPF_ENABLE_STATS`), which has all programs behind it, less that \
        of `empty`. Ordinary packets are ACKs of 4,096 flows; the flood has an address for each of 65,536 packets. `found`: \
        from the first packet of the flood until the rule has fired and acted. `shown`: until the end of the first window of \
        the fine probe with flows of the flood. `reaction`: from the end of the window at which the rule fired until packets \
        were at the fine probe, whose source had been compiled before. The rule fires at 78 sampled SYNs in a window, or at \
        8,192 flows."
    );
    let mut all: [Vec<Round>; WAYS.len()] = Default::default();
    let costs: [Sample; WAYS.len()] = in_turns(rounds, |way| {
        let round = attack::round(bench, WAYS[way], times)?;
        let cost = round.ns_per_packet;
        all[way].push(round);
        Ok(cost)
    })?;
    let [empty, ..] = &costs;
    let mut table = Table::new(&[
        "watch",
        "ns per packet",
        "always fine / this",
        "packets, million",
        "seen by the fine probe, million",
        "found, ms",
        "shown, ms",
        "reaction, ms",
        "daemon, ms per s",
    ]);
    for (way, name) in NAMES.into_iter().enumerate().skip(1) {
        let of = |value: fn(&Round) -> Option<f64>| -> Option<Estimate> {
            let sample: Sample = all[way].iter().filter_map(value).collect();
            (!sample.is_empty()).then(|| Estimate::of(&sample))
        };
        let show = |value: Option<Estimate>, decimals| {
            value.map_or_else(|| "-".to_owned(), |value| value.show(decimals))
        };
        table.row([
            name.to_owned(),
            Estimate::of(&above(&costs[way], empty)).show(1),
            show_ratio_above(&costs[FINE], &costs[way], empty, 1),
            show(of(|round| Some(round.packets as f64 / 1e6)), 2),
            show(of(|round| Some(round.fine_packets as f64 / 1e6)), 2),
            show(of(|round| round.detected_ms), 0),
            show(of(|round| round.shown_ms), 0),
            show(of(|round| round.reaction_ms), 0),
            show(of(|round| Some(round.daemon_ms)), 1),
        ]);
    }
    section.tables.push(table);
    let reaction: Sample = all[ON_DEMAND]
        .iter()
        .filter_map(|round| round.reaction_ms)
        .collect();
    let ratio = show_ratio_above(&costs[FINE], &costs[ON_DEMAND], empty, 1);
    section.figures.push(figure(&all));
    section.meaning = "Let a cheap probe watch always, and let a rule deploy the expensive one. The attack is found equally fast, and its \
        flows appear one window later. Packets from before the firing are only in the coarse probe."
        .to_owned();
    section.claims.push(Claim {
        claim: "always fine against fine on demand: time per packet over all traffic",
        paper: "the vision of Fig. 1, without a figure; goal >= 5 times",
        ours: format!("{ratio} times"),
        peers: String::new(),
    });
    if !reaction.is_empty() {
        let reaction = Estimate::of(&reaction);
        section.claims.push(Claim {
            claim: "from the end of a window to the probe that a rule deploys",
            paper: "goal <= 30 ms",
            ours: format!("{} ms ({})", reaction.show(0), reaction.at_most(REACTION)),
            peers: String::new(),
        });
    }
    Ok(section)
}

/// Draws the last round of each way over time.
fn figure(all: &[Vec<Round>; WAYS.len()]) -> Figure {
    let curves = NAMES
        .into_iter()
        .zip(all)
        .take(ON_DEMAND + 1)
        .map(|(name, rounds)| {
            let points = rounds
                .last()
                .map(|round| round.curve.as_slice())
                .unwrap_or_default();
            let point = |(at, ns): &(f64, f64)| {
                (
                    *at,
                    Estimate {
                        value: *ns,
                        low: *ns,
                        high: *ns,
                    },
                )
            };
            Curve {
                name: name.into(),
                points: points.iter().map(point).collect(),
            }
        });
    Figure {
        name: "rules",
        title: "Time per packet in the last round, with a flood",
        x: Axis {
            label: "seconds",
            logarithmic: false,
        },
        y: Axis {
            label: "ns per packet, with the way to the hook",
            logarithmic: false,
        },
        panels: vec![Panel {
            title: "a flood of one second".into(),
            curves: curves.collect(),
        }],
    }
}
