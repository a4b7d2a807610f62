//! The cost of each action of Gregg's benchmark of tracers, as in Tables I to V of "Benchmarking
//! Performance Overhead of DTrace on FreeBSD and eBPF on Linux", as far as network hooks have them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::measure::Sample;
use twinprobe_tests::traffic::Frame;

use crate::frame::figure::{Axis, Curve, Figure, Panel};
use crate::frame::options::Bench;
use crate::frame::paired::{Comparison, Estimate, Way};
use crate::frame::section::{Claim, Section};
use crate::frame::site::Site;
use crate::frame::table::Table;
use crate::scenes::events::stand::{Load, Stand};
use crate::scenes::events::tool::{Shape, Tool};
use crate::scenes::runs::{Bare, run as run_program};
use crate::scenes::sources::ACTIONS as SOURCE;

/// The number of events at a time. The ring has room for the events of all rounds together.
const EVENTS: u32 = 25_000;
const PROBE: &str = "/v1/probes/actions";

/// An experiment of the paper: its number, its action, and the nanoseconds per event in Table IV of
/// the paper, for Gregg's bpftrace, the paper's bpftrace, and DTrace.
struct Action {
    number: u32,
    name: &'static str,
    paper: [f64; 3],
}

const fn action(number: u32, name: &'static str, paper: [f64; 3]) -> Action {
    Action {
        number,
        name,
        paper,
    }
}

const ACTIONS: [Action; 10] = [
    action(2, "empty (02 kprobe)", [78.0, 56.0, 280.0]),
    action(8, "filter", [128.0, 57.0, 315.0]),
    action(9, "map", [194.0, 77.0, 327.0]),
    action(10, "single key", [212.0, 130.0, 356.0]),
    action(11, "string key", [231.0, 160.0, 377.0]),
    action(12, "two keys", [234.0, 176.0, 401.0]),
    action(15, "histogram", [238.0, 133.0, 360.0]),
    action(16, "timing", [651.0, 473.0, 682.0]),
    action(
        17,
        "multiple (two keys, histogram)",
        [856.0, 1264.0, 1313.0],
    ),
    action(18, "per event", [870.0, 1539.0, 312.0]),
];

/// The experiments of a quick run.
const QUICK: [u32; 3] = [2, 12, 18];

pub fn run(bench: &Bench) -> Result<Section> {
    let repeat = bench.times(500_000, 20_000) as u32;
    let rounds = bench.rounds(21, 3);
    let mut section = Section::new(
        "Cost of each action",
        "What does each kind of action of a probe cost a packet?",
        format!(
            "The experiments of Gregg's benchmark that a network hook has: {repeat} runs at a time on one 60-byte \
             frame (`BPF_PROG_TEST_RUN`), the program by itself, twice, which is the null comparison, and behind the \
             daemon's dispatcher, in turns; nanoseconds of processor time, the loop around the program included. \
             Medians with intervals of 95 % (bootstrap)."
        ),
    );
    section.details =
        "The experiments are those of Tables I to V of \"Benchmarking Performance Overhead of DTrace on FreeBSD and \
         eBPF on Linux\", with the address of the sender for the process id, 16 bytes of the packet for its name \
         and the length for the size (`bench/bpf/actions.bpf.c`). There are no return probes, no user-space probes \
         and no stacks at XDP and TC (03 to 07, 13, 14). `slowdown` is the time behind the dispatcher, divided by \
         the time to send and receive a packet that a counting program drops. The paper's figures are for whole \
         probes at a kprobe."
        .to_owned();
    section.generator = Some(format!("none; for a packet's time {}", Stand::describe()));
    let mut table = Table::new(&[
        "hook",
        "action",
        "bare, ns",
        "twinprobe, ns",
        "dispatcher adds, ns",
        "null, ns",
        "slowdown, %",
        "Gregg's bpftrace, ns",
        "paper's bpftrace, ns",
        "paper's DTrace, ns",
    ]);
    let site = Site::new(bench)?;
    let daemon = site.daemon(&[])?;
    let stand = Stand::new()?;
    let (mut panels, mut ratios) = (Vec::new(), Vec::new());
    for hook in bench.cases(&["xdp", "tc"], &["xdp"]) {
        let control = control(bench, &stand, hook)?;
        let frame = Frame::default();
        let (mut bare_points, mut our_points) = (Vec::new(), Vec::new());
        for Action {
            number,
            name,
            paper,
        } in ACTIONS
        {
            if bench.quick && !QUICK.contains(&number) {
                continue;
            }
            let repeat = if number == 18 {
                repeat.min(EVENTS)
            } else {
                repeat
            };
            daemon
                .put(PROBE, &config(hook, number, site.interface()))
                .expect(201);
            let dispatcher = site.attached(hook)?;
            let mut bare = Bare::load(
                SOURCE,
                hook,
                "act",
                &[format!("ACTION={number}")],
                &site.topology,
            )?;
            let compared = Comparison::measure(rounds, |way| match way {
                Way::Base => bare.run(hook, frame.bytes(), repeat),
                Way::Other => run_program(&dispatcher, hook, frame.bytes(), repeat),
            })?;
            daemon.delete(PROBE).expect(204);
            let (bare, ours) = (Estimate::of(&compared.base), Estimate::of(&compared.other));
            bare_points.push((f64::from(number), bare));
            our_points.push((f64::from(number), ours));
            if hook == "xdp" && [9, 12, 18].contains(&number) {
                ratios.push(format!("{name} {:.0}", ours.value));
            }
            let [gregg, bpftrace, dtrace] = paper.map(|ns| format!("{ns:.0}"));
            table.row([
                hook.to_owned(),
                name.to_owned(),
                bare.show(1),
                ours.show(1),
                compared.difference().show(1),
                compared.null_difference().show(1),
                format!("{:.0}", 100.0 * ours.value / control),
                gregg,
                bpftrace,
                dtrace,
            ]);
        }
        let exactly = |value: f64| Estimate {
            value,
            low: value,
            high: value,
        };
        let papers = ACTIONS
            .iter()
            .map(|action| (f64::from(action.number), exactly(action.paper[1])))
            .collect();
        panels.push(Panel {
            title: format!("{}; a packet takes {control:.0} ns", hook.to_uppercase()),
            curves: vec![
                Curve {
                    name: "attached directly".into(),
                    points: bare_points,
                },
                Curve {
                    name: "twinprobe".into(),
                    points: our_points,
                },
                Curve {
                    name: "the paper's bpftrace, kprobe".into(),
                    points: papers,
                },
            ],
        });
    }
    section.tables.push(table);
    section.figures.push(Figure {
        name: "actions",
        title: "Time of a packet by the number of the experiment in the paper",
        x: Axis {
            label: "experiment",
            logarithmic: false,
        },
        y: Axis {
            label: "ns per packet",
            logarithmic: true,
        },
        panels,
    });
    section.meaning = "A count in an array or a hash costs a packet some ten nanoseconds, for any key. To delete \
        and to insert for each packet (timing) is expensive. An event in a ring costs the kernel at most as much as a \
        count; the reader of the ring pays the rest."
        .to_owned();
    section.claims.push(Claim {
        claim: "actions per packet at XDP (map, two keys, event), ns",
        paper: "bpftrace at a kprobe: 77, 176, 1539",
        ours: ratios.join(", "),
        peers: "attached directly: see its page".into(),
    });
    Ok(section)
}

/// Returns the nanoseconds that a packet takes with a program that counts it and drops it.
fn control(bench: &Bench, stand: &Stand, hook: &'static str) -> Result<f64> {
    let tool = Tool {
        hook,
        shape: Shape::Syscount,
        ring: 0,
        interval: 0,
    };
    let attached = tool.attach(stand.topology.monitor())?;
    let mut times = Sample::default();
    for _ in 0..bench.rounds(7, 1) {
        let before = attached.counted()?;
        let sent = stand.send(Load::Steady {
            rate: 1,
            duration: Duration::from_millis(bench.times(300, 100)),
        })?;
        let counted = attached.counted()? - before;
        ensure!(
            counted == sent.packets,
            "{} packets were sent, {counted} counted",
            sent.packets
        );
        times.add(sent.per_packet.context("too short")?);
    }
    Ok(times.median())
}

fn config(hook: &str, number: u32, interface: &str) -> Value {
    let metrics = match number {
        18 => json!([{ "name": "events", "map": "events" }]),
        2 | 8 => json!([]),
        _ => json!([{ "name": "counts", "map": "counts" }]),
    };
    let mut config = json!({
        "interface": interface,
        "ingress": { "hook": hook, "source": SOURCE, "defines": { "ACTION": number.to_string() }, "metrics": metrics }
    });
    if hook == "tc" {
        config["ingress"]["defines"]["TC"] = "1".into();
    }
    config
}
