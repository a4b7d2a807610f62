//! The stages of "Dissecting Storage I/O Tracing Overhead of eBPF" at network hooks: the cost that
//! each adds to a packet.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use twinprobe_tests::measure::Sample;
use twinprobe_tests::traffic::Frame;

use crate::frame::figure::{Axis, Curve, Figure, Panel};
use crate::frame::options::Bench;
use crate::frame::paired::{Comparison, Estimate, Way};
use crate::frame::section::{Claim, Section};
use crate::frame::site::Site;
use crate::frame::table::Table;
use crate::scenes::events::consumer::{Consumer, Mode, Outcome};
use crate::scenes::events::stand::{Load, Stand};
use crate::scenes::events::tool::{Shape, Tool};
use crate::scenes::runs::{Bare, run as run_program};
use crate::scenes::sources::STAGES as SOURCE;

const PROBE: &str = "/v1/probes/stages";
/// The number of runs that the dispatcher calls at a time: the ring has room for the events of all
/// rounds together.
const BEHIND: u32 = 25_000;
/// The stages in the kernel, each together with all previous ones.
const ADDED: [(&str, &[&str]); 5] = [
    ("trigger", &[]),
    ("filter", &["FILTER"]),
    ("reserve", &["FILTER", "RESERVE"]),
    ("build", &["FILTER", "RESERVE", "BUILD"]),
    ("commit", &["FILTER", "RESERVE", "BUILD", "COMMIT"]),
];
/// The same stages, each with only the stages that it needs, and the baseline for the subtraction.
const ALONE: [(&[&str], &[&str]); 5] = [
    (&[], &[]),
    (&["FILTER"], &[]),
    (&["RESERVE"], &[]),
    (&["BUILD"], &[]),
    (&["RESERVE", "COMMIT"], &["RESERVE"]),
];

pub fn run(bench: &Bench) -> Result<Section> {
    // The number of events for which the ring has room.
    let repeat = bench.times(200_000, 20_000) as u32;
    let rounds = bench.rounds(21, 3);
    let mut section = Section::new(
        "Stages of an event",
        "Which stage of an event, from the packet to user space, takes how long?",
        format!(
            "The stages of \"Dissecting Storage I/O Tracing Overhead of eBPF\", a program for each: {repeat} runs at \
             a time on one 60-byte frame (`BPF_PROG_TEST_RUN`), all programs in turns. `null` is the empty program \
             against itself. `twinprobe` is the same program behind the daemon's dispatcher. `retrieve` is live: the \
             consumer's processor time for each event. Medians with intervals of 95 % (bootstrap)."
        ),
    );
    section.details = format!(
        "The event has 48 bytes (`bench/bpf/stages.bpf.c`): `trigger` is a program that only returns, `filter` \
         compares a port, `reserve` takes room in a RINGBUF of 16 MiB and gives it up, `build` fills the event, \
         `commit` submits it, and no reader wakes up. The ring is emptied between the programs; behind the \
         dispatcher there are {BEHIND} runs at a time; nanoseconds are of processor time. `added` is the difference \
         to the stage before, `alone` that to the empty program with this stage only (`commit`: with `reserve`, \
         less `reserve`). `retrieve` has events of 156 bytes at 50,000/s, and in bursts."
    );
    section.generator = Some(format!(
        "none for the stages in the kernel; {}",
        Stand::describe()
    ));
    let mut table = Table::new(&[
        "hook",
        "stage",
        "all so far, ns",
        "added, ns",
        "alone, ns",
        "null, ns",
        "twinprobe, ns",
        "more than bare, ns",
    ]);
    let site = Site::new(bench)?;
    let daemon = site.daemon(&[])?;
    let (mut panels, mut kernel) = (Vec::new(), Vec::new());
    for hook in bench.cases(&["xdp", "tc"], &["xdp"]) {
        let frame = Frame::default();
        let mut programs = BTreeMap::new();
        let sets = ADDED
            .iter()
            .map(|(_, stages)| *stages)
            .chain(ALONE.iter().flat_map(|(stages, less)| [*stages, *less]));
        for stages in sets {
            let defines: Vec<_> = stages.iter().map(|stage| (*stage).to_owned()).collect();
            if let Entry::Vacant(entry) = programs.entry(stages) {
                entry.insert(Bare::load(SOURCE, hook, "stage", &defines, &site.topology)?);
            }
        }
        let mut run_bare = |stages: &'static [&'static str], repeat: u32| {
            programs
                .get_mut(stages)
                .context("a program")?
                .run(hook, frame.bytes(), repeat)
        };
        let mut times: Vec<Sample> = vec![Sample::default(); ADDED.len()];
        let [mut steps, mut alones] = [times.clone(), times.clone()];
        let mut null = Sample::default();
        for _ in 0..rounds {
            let mut before = 0.0;
            for stage in 0..ADDED.len() {
                let time = run_bare(ADDED[stage].1, repeat)?;
                times[stage].add(time);
                steps[stage].add(time - before);
                before = time;
                let less = run_bare(ALONE[stage].1, repeat)?;
                let time = run_bare(ALONE[stage].0, repeat)?;
                alones[stage].add(time - less);
                if stage == 0 {
                    null.add(time - less);
                }
            }
        }
        let (mut bare_points, mut our_points) = (Vec::new(), Vec::new());
        for (number, (stage, stages)) in ADDED.into_iter().enumerate() {
            let defines: serde_json::Map<_, _> = stages
                .iter()
                .map(|stage| ((*stage).to_owned(), "1".into()))
                .collect();
            let mut config = json!({
                "interface": site.interface(),
                "ingress": {
                    "hook": hook, "source": SOURCE, "defines": defines,
                    "metrics": [{ "name": "events", "map": "events", "type": "struct event" }]
                }
            });
            if hook == "tc" {
                config["ingress"]["defines"]["TC"] = "1".into();
            }
            daemon.put(PROBE, &config).expect(201);
            let dispatcher = site.attached(hook)?;
            let repeat = repeat.min(BEHIND);
            let compared = Comparison::measure(bench.rounds(9, 1), |way| match way {
                Way::Base => run_bare(stages, repeat),
                Way::Other => run_program(&dispatcher, hook, frame.bytes(), repeat),
            })?;
            daemon.delete(PROBE).expect(204);
            let all = Estimate::of(&times[number]);
            let ours = Estimate::of(&compared.other);
            bare_points.push(((number + 1) as f64, all));
            our_points.push(((number + 1) as f64, ours));
            let first = number == 0;
            table.row([
                hook.to_owned(),
                stage.to_owned(),
                all.show(1),
                if first {
                    String::new()
                } else {
                    Estimate::of(&steps[number]).show(1)
                },
                if first {
                    String::new()
                } else {
                    Estimate::of(&alones[number]).show(1)
                },
                if first {
                    Estimate::of(&null).show(1)
                } else {
                    String::new()
                },
                ours.show(1),
                compared.difference().show(1),
            ]);
            if stage == "commit" {
                kernel.push(format!(
                    "{hook} {:.0} ns, of them the trigger {:.0}",
                    all.value,
                    times[0].median()
                ));
            }
        }
        panels.push(Panel {
            title: hook.to_uppercase(),
            curves: vec![
                Curve {
                    name: "attached directly".into(),
                    points: bare_points,
                },
                Curve {
                    name: "twinprobe".into(),
                    points: our_points,
                },
            ],
        });
    }
    section.tables.push(table);
    drop(daemon);
    let (table, retrieved) = retrieve(bench)?;
    section.tables.push(table);
    section.figures.push(Figure {
        name: "stages",
        title: "Time of a packet by stages: 1 trigger, 2 filter, 3 reserve, 4 build, 5 commit",
        x: Axis {
            label: "stages so far",
            logarithmic: false,
        },
        y: Axis {
            label: "ns per packet",
            logarithmic: false,
        },
        panels,
    });
    section.meaning = "The work of a probe in the kernel for an event takes a fraction of the time to wake a reader \
        and to read the event. So filter and count in the kernel, and report in batches. At high rates an event costs a \
        tenth of its cost at low rates, where each event wakes the reader."
        .to_owned();
    section.claims.push(Claim {
        claim: "stages of an event in the kernel, and its retrieval",
        paper: "trigger and retrieval dominate (up to 11 and 24 % of throughput), the rest below 6 %",
        ours: format!("kernel: {}; retrieval at 50,000/s: {retrieved}", kernel.join("; ")),
        peers: "see its page".into(),
    });
    Ok(section)
}

/// Measures how the consumers retrieve events. Also returns the daemon's time at 50,000 events per
/// second.
fn retrieve(bench: &Bench) -> Result<(Table, String)> {
    let stand = Stand::new()?;
    let mut table = Table::new(&[
        "stage",
        "consumer",
        "at 50,000/s, ns CPU/event",
        "in bursts of 20,000, ns CPU/event",
        "null",
    ]);
    let tool = Tool {
        hook: "xdp",
        shape: Shape::RwTracer,
        ring: 16 << 20,
        interval: 0,
    };
    let steady = Load::Steady {
        rate: 50_000,
        duration: Duration::from_millis(bench.times(500, 100)),
    };
    let bursts = Load::Bursts {
        packets: 20_000,
        times: bench.times(10, 1),
    };
    let consumers = [Consumer::Libbpf, Consumer::Aya, Consumer::Twinprobe];
    let mut ours = String::new();
    let mut samples: [[Sample; 2]; 3] = Default::default();
    let mut null = Sample::default();
    for _ in 0..bench.rounds(7, 1) {
        for (consumer, samples) in consumers.iter().zip(&mut samples) {
            let measure = |load| -> Result<f64> {
                Ok(1e3 * Outcome::per_event(&consumer.run(&stand, tool, load, Mode::Count)?))
            };
            let first = measure(steady)?;
            samples[0].add(first);
            samples[1].add(measure(bursts)?);
            if *consumer == Consumer::Libbpf {
                null.add(measure(steady)? / first);
            }
        }
    }
    for (consumer, samples) in consumers.iter().zip(&samples) {
        let [slow, fast] = [&samples[0], &samples[1]].map(Estimate::of);
        if *consumer == Consumer::Twinprobe {
            ours = format!("{:.0} ns", slow.value);
        }
        table.row([
            "retrieve".to_owned(),
            consumer.name().to_owned(),
            slow.show(0),
            fast.show(0),
            if *consumer == Consumer::Libbpf {
                Estimate::of(&null).show(2)
            } else {
                String::new()
            },
        ]);
    }
    Ok((table, ours))
}
