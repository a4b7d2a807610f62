//! The tools of "No Two Snowflakes Are Alike" (eBPF '25) at network hooks, and consumers of their
//! events: fidelity, loss, delay and processor time.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::measure::Sample;

use super::syscount;
use crate::frame::figure::{Axis, Curve, Figure, Panel};
use crate::frame::options::Bench;
use crate::frame::paired::Estimate;
use crate::frame::section::{Claim, Section};
use crate::frame::table::Table;
use crate::scenes::events::consumer::{Consumer, Mode, Outcome};
use crate::scenes::events::stand::{Load, Stand};
use crate::scenes::events::tool::{Shape, Tool};

const RINGS: [u32; 2] = [256 << 10, 16 << 20];
const SHAPES: [Shape; 2] = [Shape::RwTracer, Shape::RwTracerAll];
/// The rates of the curve in events per second.
const RATES: [u64; 4] = [1_000, 10_000, 50_000, 200_000];
/// The rate of the claim.
const CLAIMED: u64 = 50_000;
/// The rate at which each event is checked. All consumers are fast enough for it.
const CHECKED: u64 = 2_000;

/// The figures of the claims.
#[derive(Default)]
struct Claimed {
    /// The daemon's time for an event at the rate of the claim, divided by the time in which libbpf
    /// prints an event as JSON.
    times: Vec<String>,
    /// The percentage of events in bursts that each consumer has lost.
    bursts: Vec<(Consumer, f64)>,
}

/// A tool and its packets.
#[derive(Clone, Copy)]
struct Case {
    tool: Tool,
    load: Load,
}

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Events",
        "What does an event cost from the ring to a client, how late is it, and when are events lost?",
        "The tools of \"No Two Snowflakes Are Alike\" at network hooks. All consumers get the events of the same \
         program, from a RINGBUF of the same size, in turns: libbpf in C, aya, BCC, and `GET \
         /v1/probes/{name}/events` of the daemon; bpftrace prints as many bytes at the tracepoint before TC. `null` \
         is libbpf's consumer against itself. Medians of the turns with intervals of 95 % (bootstrap).",
    );
    section.details =
        "The programs are in `bench/bpf/events.bpf.c`: rw-tracer reports packets to port 80 with events of 156 \
         bytes, rw-tracer-all with 4,252; syscount counts them by sender in a HASH, which a client reads at times. \
         The libbpf consumer counts or prints JSON to a pipe (`bench/peers/consumer.c`), aya's is its `RingBuf` \
         with poll, BCC's its `ring_buffer_poll` with a Python function, the daemon's is a client that discards \
         what it reads. bpftrace can't attach at XDP or TC. The program numbers events on each CPU, and counts \
         those without room. In each run, those and the delivered ones are all events, in order. The first table \
         has runs in which each consumer also looks at every byte (a sum by XOR) and at the clock. `us CPU/event` \
         counts all threads of the consumer, `packet` the sender's processor time for a packet, program included."
        .to_owned();
    section.generator = Some(Stand::describe());
    let stand = Stand::new()?;
    let consumers: Vec<_> = Consumer::ALL
        .into_iter()
        .filter(|consumer| consumer.is_here())
        .collect();
    section.tables.push(fidelity(bench, &stand, &consumers)?);
    let (table, Claimed { bursts, times }) = cost(bench, &stand, &consumers)?;
    section.tables.push(table);
    section
        .tables
        .push(syscount::measure(bench, &stand, &consumers)?);
    let panels = curves(bench, &stand, &consumers)?;
    section.figures.push(Figure {
        name: "events",
        title: "Processor time of an event by consumers",
        x: Axis {
            label: "events/s",
            logarithmic: true,
        },
        y: Axis {
            label: "us CPU per event",
            logarithmic: true,
        },
        panels,
    });
    let missing: Vec<_> = Consumer::ALL
        .into_iter()
        .filter(|consumer| !consumers.contains(consumer))
        .map(Consumer::name)
        .collect();
    let absent = if missing.is_empty() {
        String::new()
    } else {
        format!(" Not on this machine: {}.", missing.join("; "))
    };
    section.meaning = format!(
        "For rings of 2 MiB or more, the daemon wakes up for batches of events. So it sends events as JSON in a fraction of \
         the time of a consumer that prints them. A smaller ring can fill up within a millisecond, so \
         the daemon wakes up for each event, as the others do. There an event takes as long as in a consumer that \
         prints JSON, or somewhat longer. The daemon copies a fast burst out of the ring first. A small ring still \
         loses events that came before the consumer ran at all. For bursts use a ring that holds a burst. The numbers of the events \
         show each consumer which events it missed.{absent}"
    );
    section.claims = vec![
        Claim {
            claim: "processor time of an event, at 50,000/s, XDP",
            paper: "goal <= libbpf printing JSON",
            ours: format!("{} times libbpf printing JSON", times.join(", ")),
            peers: "libbpf: 1".into(),
        },
        Claim {
            claim: "events lost of bursts, ring of 256 KiB, 156 bytes, XDP",
            paper: "rw-tracer: libbpf 0 %, aya 2 %, BCC 53 %, bpftrace 86 % (read-only)",
            ours: bursts
                .iter()
                .find(|(consumer, _)| *consumer == Consumer::Twinprobe)
                .map_or_else(String::new, |(_, lost)| format!("{lost:.1} %")),
            peers: bursts
                .iter()
                .filter(|(consumer, _)| *consumer != Consumer::Twinprobe)
                .map(|(consumer, lost)| format!("{}: {lost:.1} %", consumer.name()))
                .collect::<Vec<_>>()
                .join("; "),
        },
    ];
    Ok(section)
}

/// Returns each tool in each ring at both hooks, with events at this rate and with bursts.
fn cases(bench: &Bench, rate: u64, duration: Duration) -> Vec<Case> {
    let steady = Load::Steady { rate, duration };
    let bursts = Load::Bursts {
        packets: bench.times(20_000, 4_000),
        times: bench.part_of(20, 1),
    };
    let mut cases = Vec::new();
    for hook in ["xdp", "tc"] {
        for shape in SHAPES {
            for ring in RINGS {
                let tool = Tool {
                    hook,
                    shape,
                    ring,
                    interval: 0,
                };
                cases.extend([steady, bursts].map(|load| Case { tool, load }));
            }
        }
    }
    cases
}

/// Checks each event of each consumer.
fn fidelity(bench: &Bench, stand: &Stand, consumers: &[Consumer]) -> Result<Table> {
    let mut table = Table::new(&[
        "hook",
        "tool",
        "ring, KiB",
        "packets",
        "consumer",
        "events",
        "lost",
        "lost, %",
        "others whole and in order",
        "half within, us",
        "99 % within, us",
    ]);
    let cases = cases(
        bench,
        CHECKED,
        Duration::from_millis(bench.part_of(2_000, 150)),
    );
    // The case of bursts of small events at TC, with a small ring.
    let quick = [cases[9]];
    for case in bench.cases(&cases, &quick) {
        for consumer in consumers
            .iter()
            .filter(|consumer| consumer.can(case.tool, Mode::Check))
        {
            let outcome = consumer.run(stand, case.tool, case.load, Mode::Check)?;
            if matches!(case.load, Load::Steady { .. }) && case.tool.ring == RINGS[1] {
                ensure!(
                    outcome.lost + outcome.missed == 0,
                    "{}: {outcome:?}",
                    consumer.name()
                );
            }
            let latency = outcome.latency.map(|ns| {
                if ns == 0 {
                    String::new()
                } else {
                    format!("{:.0}", ns as f64 / 1e3)
                }
            });
            let [median, late] = latency;
            table.row(case.cells().into_iter().chain([
                consumer.name().to_owned(),
                outcome.events.to_string(),
                (outcome.lost + outcome.missed).to_string(),
                format!("{:.2}", outcome.lost_percent()),
                "yes".to_owned(),
                median,
                late,
            ]));
        }
    }
    Ok(table)
}

/// Measures the processor time of each consumer, and the share of small events that it loses in
/// bursts, with a small ring at XDP.
fn cost(bench: &Bench, stand: &Stand, consumers: &[Consumer]) -> Result<(Table, Claimed)> {
    let mut table = Table::new(&[
        "hook",
        "tool",
        "ring, KiB",
        "packets",
        "consumer",
        "events",
        "lost, %",
        "us CPU/event",
        "to libbpf counting",
        "null",
        "packet, ns",
    ]);
    let cases = cases(
        bench,
        CLAIMED,
        Duration::from_millis(bench.part_of(500, 100)),
    );
    let mut claimed = Claimed::default();
    for case in bench.cases(&cases, &cases[..2]) {
        let turns = turns(stand, case, consumers, bench.rounds(5, 1))?;
        let Tool {
            hook, shape, ring, ..
        } = case.tool;
        if hook == "xdp" && !case.bursts() {
            claimed.times.push(format!(
                "{} ({} bytes, ring of {} KiB)",
                Estimate::of(&turns.ratio(Consumer::Twinprobe, Consumer::LibbpfJson)?).show(2),
                156 + shape.payload(),
                ring >> 10,
            ));
        }
        for (consumer, outcomes) in &turns.of {
            let share = outcomes
                .iter()
                .map(Outcome::lost_percent)
                .collect::<Sample>()
                .median();
            if hook == "xdp" && shape == Shape::RwTracer && ring == RINGS[0] && case.bursts() {
                claimed.bursts.push((*consumer, share));
            }
            let packets: Sample = outcomes
                .iter()
                .filter_map(|outcome| outcome.sent.per_packet)
                .collect();
            table.row(
                case.cells().into_iter().chain([
                    consumer.name().to_owned(),
                    outcomes
                        .iter()
                        .map(|outcome| outcome.events)
                        .sum::<u64>()
                        .to_string(),
                    format!("{share:.2}"),
                    Estimate::of(&outcomes.iter().map(Outcome::per_event).collect()).show(3),
                    if *consumer == Consumer::Libbpf {
                        String::new()
                    } else {
                        Estimate::of(&turns.ratio(*consumer, Consumer::Libbpf)?).show(2)
                    },
                    if *consumer == Consumer::Libbpf {
                        Estimate::of(&turns.null).show(2)
                    } else {
                        String::new()
                    },
                    if packets.is_empty() {
                        String::new()
                    } else {
                        Estimate::of(&packets).show(1)
                    },
                ]),
            );
        }
    }
    Ok((table, claimed))
}

/// Measures the processor time for an event at several rates. Returns the panels of the figure, and
/// the daemon's time at the rate of the claim divided by that of libbpf printing JSON.
fn curves(bench: &Bench, stand: &Stand, consumers: &[Consumer]) -> Result<Vec<Panel>> {
    let three = [Consumer::Libbpf, Consumer::LibbpfJson, Consumer::Twinprobe];
    let consumers: Vec<_> = consumers
        .iter()
        .copied()
        .filter(|consumer| {
            *consumer != Consumer::Bpftrace && (!bench.quick || three.contains(consumer))
        })
        .collect();
    let mut panels = Vec::new();
    for shape in bench.cases(&SHAPES, &[Shape::RwTracer]) {
        let mut curves: Vec<_> = consumers
            .iter()
            .map(|consumer| Curve {
                name: consumer.name().into(),
                points: Vec::new(),
            })
            .collect();
        for rate in bench.cases(&RATES, &[CLAIMED]) {
            let tool = Tool {
                hook: "xdp",
                shape,
                ring: RINGS[1],
                interval: 0,
            };
            // At a low rate, more time is needed for enough events.
            let time = if rate < CLAIMED {
                bench.times(500, 100)
            } else {
                bench.part_of(500, 100)
            };
            let case = Case {
                tool,
                load: Load::Steady {
                    rate,
                    duration: Duration::from_millis(time),
                },
            };
            let turns = turns(stand, case, &consumers, bench.rounds(5, 1))?;
            for (curve, (_, outcomes)) in curves.iter_mut().zip(&turns.of) {
                curve.points.push((
                    rate as f64,
                    Estimate::of(&outcomes.iter().map(Outcome::per_event).collect()),
                ));
            }
        }
        panels.push(Panel {
            title: format!("{}, {} bytes", shape.name(), 156 + shape.payload()),
            curves,
        });
    }
    Ok(panels)
}

/// The outcomes of consumers that took turns.
struct Turns {
    of: Vec<(Consumer, Vec<Outcome>)>,
    /// libbpf's consumer against itself.
    null: Sample,
}

fn turns(stand: &Stand, case: Case, consumers: &[Consumer], turns: u64) -> Result<Turns> {
    let able = consumers
        .iter()
        .filter(|consumer| consumer.can(case.tool, Mode::Count));
    let mut of: Vec<_> = able.map(|consumer| (*consumer, Vec::new())).collect();
    let mut null = Sample::default();
    for _ in 0..turns {
        for (consumer, outcomes) in &mut of {
            outcomes.push(consumer.run(stand, case.tool, case.load, Mode::Count)?);
            if *consumer == Consumer::Libbpf {
                let again = consumer.run(stand, case.tool, case.load, Mode::Count)?;
                null.add(again.per_event() / outcomes[outcomes.len() - 1].per_event());
            }
        }
    }
    Ok(Turns { of, null })
}

impl Turns {
    /// Returns the ratio of two consumers' processor times, turn by turn.
    fn ratio(&self, one: Consumer, other: Consumer) -> Result<Sample> {
        let find = |wanted: Consumer| {
            self.of
                .iter()
                .find(|(consumer, _)| *consumer == wanted)
                .map(|(_, outcomes)| outcomes)
                .context("a consumer")
        };
        Ok(find(one)?
            .iter()
            .zip(find(other)?)
            .map(|(one, other)| one.per_event() / other.per_event())
            .collect())
    }
}

impl Case {
    /// Returns the first cells of the tool's rows: hook, tool, ring and packets.
    fn cells(self) -> [String; 4] {
        let Tool {
            hook, shape, ring, ..
        } = self.tool;
        let packets = match self.load {
            Load::Steady { rate, .. } => format!("{rate} events/s"),
            Load::Bursts { packets, .. } => format!("bursts of {packets}"),
        };
        [
            hook.to_owned(),
            shape.name().to_owned(),
            (ring >> 10).to_string(),
            packets,
        ]
    }

    const fn bursts(self) -> bool {
        matches!(self.load, Load::Bursts { .. })
    }
}
