//! A comparison of two places for decisions: rules at each node, and one rule over all nodes, on
//! the same attacks.

use std::fmt::Write as _;

use anyhow::Result;
use twinprobe_tests::measure::Sample;

use crate::frame::options::Bench;
use crate::frame::paired::Estimate;
use crate::frame::section::{Claim, Section};
use crate::frame::table::Table;
use crate::scenes::decisions::{BURST, DecisionScene, LIMIT, Outcome, QUIET, Scenario, Way};
use crate::scenes::fleet::NODES;

const WAYS: [(&str, Way); 3] = [
    ("node, 3,000/s", Way::Node(3_000)),
    ("node, 1,500/s", Way::Node(1_500)),
    ("fleet, 5,000/s", Way::Fleet(5_000)),
];

const ONE: [u64; NODES] = [6_000, QUIET, QUIET];
const SPREAD: [u64; NODES] = [2_000; NODES];
const SCENARIOS: [Scenario; 6] = [
    Scenario {
        name: "attack at one node",
        rates: ONE,
        is_attack: true,
        is_cut: false,
    },
    Scenario {
        name: "attack spread over all nodes",
        rates: SPREAD,
        is_attack: true,
        is_cut: false,
    },
    Scenario {
        name: "attack at one node, which is cut off",
        rates: ONE,
        is_attack: true,
        is_cut: true,
    },
    Scenario {
        name: "spread attack, one node is cut off",
        rates: SPREAD,
        is_attack: true,
        is_cut: true,
    },
    Scenario {
        name: "no attack: a burst of 4,000/s",
        rates: [4_000, QUIET, QUIET],
        is_attack: false,
        is_cut: false,
    },
    Scenario {
        name: "no attack: a burst of 2,000/s",
        rates: [2_000, QUIET, QUIET],
        is_attack: false,
        is_cut: false,
    },
];

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Decisions at nodes and over a fleet",
        "Which is better: a rule at each node, or one rule over the windows of all nodes?",
        "Three daemons count SYNs in windows of 500 ms. `node`: each daemon has a rule. `fleet`: a stream at the centre has one \
         rule over the sum of all nodes. Both deploy `flow-features`. The same traffic comes in each round, and the rules take turns; \
         medians with intervals of 95 % (bootstrap).",
    );
    section.generator =
        Some("one thread that sends SYNs to all nodes in turns, every 10 ms".to_owned());
    let outcomes = measure(bench)?;
    section.tables.push(table(&outcomes));
    section.meaning = meaning(&outcomes);
    section.details = format!(
        "A name of a rule has its threshold: SYNs per second at the node, or at all three together. Ordinary traffic has {QUIET} a second \
         at each node. An attack has {} at one node, or {} at each; it continues until it is found, or for {} s. A burst lasts {} s. `fired`: the \
         rule fired, and each attacked node got the fine probe; while the network was cut, in these rows. `reaction`: from the end of the window until \
         packets were at the fine probe of the last attacked node, whose source had been compiled before. `found`: the same from the beginning of the \
         attack. `found after the cut`: from the return of the network, in rounds without a firing before. `bytes/s`: both directions, \
         between one node and the stream, HTTP without TLS. All daemons and the stream share the processors of one machine, and the network between them has no \
         delay: add a round trip of your network for the windows, and one for each request.",
        ONE[0],
        SPREAD[0],
        LIMIT.as_secs(),
        BURST.as_secs(),
    );
    section.claims = claims(&outcomes);
    Ok(section)
}

/// The outcomes by rule and scenario.
type Outcomes = [[Outcome; SCENARIOS.len()]; WAYS.len()];

fn measure(bench: &Bench) -> Result<Outcomes> {
    let scene = DecisionScene::new()?;
    let mut outcomes = Outcomes::default();
    for round in 0..bench.rounds(10, 1) as usize {
        for turn in 0..WAYS.len() {
            let way = (round + turn) % WAYS.len();
            let running = scene.begin(WAYS[way].1)?;
            for (scenario, outcome) in SCENARIOS.iter().zip(&mut outcomes[way]) {
                scene.round(WAYS[way].1, scenario, outcome)?;
            }
            scene.end(WAYS[way].1, running);
        }
    }
    Ok(outcomes)
}

fn show(sample: &Sample, decimals: usize) -> String {
    if sample.is_empty() {
        "-".to_owned()
    } else {
        Estimate::of(sample).show(decimals)
    }
}

fn table(outcomes: &Outcomes) -> Table {
    let mut table = Table::new(&[
        "traffic",
        "rule",
        "fired",
        "right",
        "reaction, ms",
        "found, ms",
        "found after the cut, ms",
        "bytes/s",
    ]);
    for (number, scenario) in SCENARIOS.iter().enumerate() {
        for ((name, _), of) in WAYS.iter().zip(outcomes) {
            let outcome = &of[number];
            let right = if scenario.is_attack {
                outcome.fired
            } else {
                outcome.rounds - outcome.fired
            };
            table.row([
                scenario.name.to_owned(),
                (*name).to_owned(),
                fired(outcome),
                format!("{:.0} %", 100.0 * right as f64 / outcome.rounds as f64),
                show(&outcome.reaction, 0),
                show(&outcome.found, 0),
                show(&outcome.after, 0),
                show(&outcome.bytes, 0),
            ]);
        }
    }
    table
}

fn fired(outcome: &Outcome) -> String {
    format!("{} of {}", outcome.fired, outcome.rounds)
}

/// The places of rules and scenarios in [`WAYS`] and [`SCENARIOS`].
const NODE: usize = 0;
const LOW: usize = 1;
const FLEET: usize = 2;
const AT_ONE: usize = 0;
const OVER_ALL: usize = 1;
const CUT: usize = 2;
const LARGE_BURST: usize = 4;
const SMALL_BURST: usize = 5;

fn meaning(outcomes: &Outcomes) -> String {
    let of = |way: usize, scenario: usize| &outcomes[way][scenario];
    format!(
        "Decide at the node if one node sees the attack: its rule needs no network and no other node (reaction {} ms; over the fleet {} ms). \
         Decide over the fleet if only the sum shows the attack: spread over all nodes, it was found {} times, by the nodes {}. A burst at one \
         node deceived the fleet's rule {} times, the node's {}. A lower threshold at the nodes finds the spread attack, too ({}), and is deceived more \
         often ({}, and {} by the smaller burst). While a node was cut off, the fleet's rule found the attack there {} times, the node's own {}. Both can run \
         side by side: a rule of the node for what one node can judge, and one over the fleet for the sum.",
        show(&of(NODE, AT_ONE).reaction, 0),
        show(&of(FLEET, AT_ONE).reaction, 0),
        fired(of(FLEET, OVER_ALL)),
        fired(of(NODE, OVER_ALL)),
        fired(of(FLEET, LARGE_BURST)),
        fired(of(NODE, LARGE_BURST)),
        fired(of(LOW, OVER_ALL)),
        fired(of(LOW, LARGE_BURST)),
        fired(of(LOW, SMALL_BURST)),
        fired(of(FLEET, CUT)),
        fired(of(NODE, CUT)),
    )
}

fn claims(outcomes: &Outcomes) -> Vec<Claim> {
    let mut ours = String::new();
    for (name, number) in [("at the node", NODE), ("over the fleet", FLEET)] {
        let of = |scenario: usize| &outcomes[number][scenario];
        let separator = if ours.is_empty() { "" } else { "; " };
        // Writing to a String can't fail.
        let _ = write!(
            ours,
            "{separator}{name}: reaction {} ms, spread attack {}, cut off {}, wrong {}, {} bytes/s for each node",
            show(&of(AT_ONE).reaction, 0),
            fired(of(OVER_ALL)),
            fired(of(CUT)),
            fired(of(LARGE_BURST)),
            show(&of(AT_ONE).bytes, 0),
        );
    }
    vec![Claim {
        claim: "decisions at the node against decisions over the fleet",
        paper: "the paper leaves open which is better",
        ours,
        peers: String::new(),
    }]
}
