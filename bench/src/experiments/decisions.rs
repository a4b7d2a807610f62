//! The same rule, judged at each node and over all nodes.

use anyhow::Result;
use twinprobe_tests::measure::Sample;

use crate::frame::options::Bench;
use crate::frame::paired::Estimate;
use crate::frame::section::{Claim, Section};
use crate::frame::table::Table;
use crate::scenes::decisions::{
    AT_EACH, AT_ONE, Event, Fleet, MANY, NODES, ORDINARY, Place, Reaction, SENSITIVE, WINDOW,
};

const PLACES: [(&str, Place); 3] = [
    ("each node", Place::Node(MANY)),
    ("each node, sensitive", Place::Node(SENSITIVE)),
    ("the fleet", Place::Fleet(MANY)),
];
const EVENTS: [Event; 4] = [Event::AtOne, Event::AtAll, Event::Burst, Event::CutOff];

pub fn run(bench: &Bench) -> Result<Section> {
    let rounds = bench.rounds(20, 1);
    let mut section = Section::new(
        "Where to decide",
        "Does a rule find an attack better at each node, or over all nodes?",
        format!(
            "{} nodes count packets in windows of {} ms. A rule deploys a second probe if a window has more than {MANY}: each node's \
             window, judged by its daemon (`sensitive`: {SENSITIVE}), or that of all nodes together, judged by a stream. {rounds} \
             times each; medians with intervals of 95 % (bootstrap).",
            NODES.len(),
            WINDOW.as_millis(),
        ),
    );
    section.generator = Some("the generators of the tests (`traffic`), in bursts of 50 ms".into());
    section.details = format!(
        "Ordinary traffic has {ORDINARY} packets a second at each node. `attack at one`: {AT_ONE} more at one node. `attack at all`: \
         {AT_EACH} more at each node. `burst`: {AT_EACH} more at one node, which are no attack. `cut off`: an attack at one node while the \
         stream's process stands still (SIGSTOP), as if nothing came through the network. Times are from the first packet until the \
         second probe, whose source the daemons know, ran at each attacked node; `found` within 3 s. `wrong`: the second probe was \
         deployed without need. `bytes` are the documents that the stream reads from each node; a rule at the node needs none, and no \
         process of its own."
    );
    let mut table = Table::new(&[
        "decided at",
        "attack at one, ms",
        "found",
        "attack at all, ms",
        "found",
        "cut off, ms",
        "found",
        "burst: wrong",
        "bytes for each node and second",
        "processor, ms per s",
    ]);
    let mut at_one = Vec::new();
    for (name, place) in PLACES {
        let fleet = Fleet::new(place)?;
        let mut reactions: [Vec<Reaction>; EVENTS.len()] = Default::default();
        for _ in 0..rounds {
            for (event, seen) in EVENTS.into_iter().zip(&mut reactions) {
                seen.push(fleet.react(event)?);
            }
        }
        let (bytes, processor) = fleet.cost()?;
        let [one, all, burst, cut] = &reactions;
        let wrong = burst.iter().filter(|reaction| reaction.is_wrong).count();
        let mut row = vec![name.to_owned()];
        for seen in [one, all, cut] {
            row.extend(times(seen));
        }
        row.extend([format!("{wrong} of {rounds}"), format!("{bytes:.0}"), format!("{processor:.1}")]);
        table.row(row);
        at_one.push(times(one)[0].clone());
    }
    section.tables.push(table);
    section.meaning = "Decide at the node what a node can see: it needs no network, and costs nothing there. Decide over the fleet what \
        no node sees alone; a threshold that is low enough for the nodes fires without need. While the network is cut, only \
        rules at the nodes act, so give an attack that a node can see to both."
        .to_owned();
    section.claims.push(Claim {
        claim: "from the first packet of an attack to the probe that a rule deploys: at the node, over the fleet",
        paper: "left open (section VI)",
        ours: format!("{} ms, {} ms", at_one[0], at_one[2]),
        peers: String::new(),
    });
    Ok(section)
}

/// Returns the median time of those that reacted, and how many did.
fn times(seen: &[Reaction]) -> [String; 2] {
    let sample: Sample = seen.iter().filter_map(|reaction| reaction.ms).collect();
    let found = format!("{} of {}", sample.values().len(), seen.len());
    let time = if sample.is_empty() { "-".to_owned() } else { Estimate::of(&sample).show(0) };
    [time, found]
}
