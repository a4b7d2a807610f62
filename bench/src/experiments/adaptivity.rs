//! Non-adaptive, adaptive and fully adaptive probes, by the number of features that are wanted
//! (Fig. 6).

use anyhow::Result;
use twinprobe_tests::measure::Sample;

use crate::frame::figure::{Axis, Curve, Figure, Panel};
use crate::frame::options::Bench;
use crate::frame::paired::{Estimate, above, in_turns, show_ratio_above};
use crate::frame::section::{Claim, Section};
use crate::frame::table::Table;
use crate::scenes::adaptive::{ALL, Kind, Probe};

const WANTED: [u32; 6] = [1, 10, 25, 50, 75, 100];
/// The goal for one feature: the adaptive probe takes at least this many times as long as the fully
/// adaptive probe.
const GOAL: f64 = 10.0;

pub fn run(bench: &Bench) -> Result<Section> {
    let (repeat, packets) = (
        bench.times(1_000_000, 10_000) as u32,
        bench.part_of(8_000_000, 20_000),
    );
    let mut section = Section::new(
        "Adaptive and fully adaptive probes (Fig. 6)",
        "What does a packet cost if a program has only the wanted features, and if it asks at run time?",
        format!(
            "Some of {ALL} features are wanted. `non-adaptive` computes all of them. `adaptive` looks up each feature to \
             see whether it is wanted. `fully adaptive` is a probe of twinprobe with only the wanted features. `empty` is a \
             program that only drops. All in turns: first runs on one frame, then live packets. `null` compares \
             fully adaptive with itself. Medians with intervals of 95 % (bootstrap), ratios of the medians."
        ),
    );
    section.details = format!(
        "A feature adds to an entry of an ARRAY; `adaptive` looks up in a second ARRAY. `non-adaptive`, `adaptive` \
         and `empty` are attached directly, the fully adaptive probe is behind the dispatcher, with twins. Packets \
         end behind the program. `empty` takes the way to the hook, which no probe can save, and `above` is the \
         additional time of a probe. The first table has the processor time of a run on a 60-byte frame ({repeat} \
         runs at a time, `BPF_PROG_TEST_RUN` of the attached program). The second has the time of the processor \
         that sends and receives {packets} packets at a time, without the time of a call of the generator before \
         its first packet. Each feature has counted each packet. Map bytes come from the kernel (`bpftool map \
         show`), and from the daemon's status for the probe with its twins."
    );
    section.generator =
        Some("the generator of the tests (`traffic`), on CPU 0; for the first table none".into());
    let mut runs = Table::new(&[
        "hook",
        "features",
        "empty, ns",
        "non-adaptive, ns",
        "adaptive, ns",
        "fully adaptive, ns",
        "adaptive / fully",
        "null",
        "above empty: adaptive, ns",
        "fully adaptive, ns",
        "adaptive / fully",
        "null",
    ]);
    let mut live = Table::new(&[
        "hook",
        "features",
        "empty, Mpps",
        "non-adaptive, Mpps",
        "adaptive, Mpps",
        "fully adaptive, Mpps",
        "fully / adaptive",
        "null",
        "above empty: adaptive, ns",
        "fully adaptive, ns",
        "adaptive / fully",
        "null",
    ]);
    let mut bytes = Table::new(&[
        "hook",
        "features",
        "map bytes: non-adaptive",
        "adaptive",
        "fully adaptive",
    ]);
    let (mut panels, mut claims, mut floors) = (Vec::new(), Vec::new(), Vec::new());
    for hook in ["xdp", "tc"] {
        let names = ["non-adaptive", "adaptive", "fully adaptive", "empty"];
        let mut curves = names.map(|name| Curve {
            name: name.into(),
            points: Vec::new(),
        });
        let mut non = Probe::new(bench, Kind::NonAdaptive, hook, ALL)?;
        let mut empty = Probe::new(bench, Kind::Empty, hook, 0)?;
        for wanted in bench.cases(&WANTED, &[1]) {
            let mut adaptive = Probe::new(bench, Kind::Adaptive, hook, wanted)?;
            let mut fully = Probe::new(bench, Kind::FullyAdaptive, hook, wanted)?;
            let mut probes = [&mut fully, &mut adaptive, &mut non, &mut empty];
            // The fully adaptive probe is measured twice in each round.
            let mut ns = |which: usize| probes[which.saturating_sub(1)].time(repeat);
            let ns = Turns(in_turns(bench.rounds(15, 1), &mut ns)?);
            let mut packet = |which: usize| probes[which.saturating_sub(1)].packet(packets);
            let packet = Turns(in_turns(bench.rounds(5, 1), &mut packet)?);
            for probe in [&non, &adaptive, &fully, &empty] {
                probe.check()?;
            }
            let at = [hook.to_owned(), wanted.to_string()];
            let times = ns.times();
            for (curve, time) in curves
                .iter_mut()
                .zip([times[1], times[2], times[3], times[0]])
            {
                curve.points.push((f64::from(wanted), time));
            }
            runs.row(
                at.iter()
                    .cloned()
                    .chain(times.map(|time| time.show(1)))
                    .chain(ns.ratios()),
            );
            let rates = packet.times().map(|time| time.inverse(1e3).show(2));
            live.row(at.iter().cloned().chain(rates).chain(packet.ratios()));
            let sizes = [&non, &adaptive, &fully].map(|probe| probe.map_bytes.to_string());
            bytes.row(at.into_iter().chain(sizes));
            if wanted == 1 {
                let ratio = ns.ratio();
                claims.push(format!(
                    "{hook}: {} times (goal: {}), above an empty program {} times; in packets per second {} times",
                    ratio.show(1),
                    ratio.at_least(GOAL),
                    ns.ratio_above(2, 1),
                    packet.ratio().show(1),
                ));
                let [ns, packet] = [&ns, &packet].map(Turns::times);
                floors.push(format!(
                    "at {hook} {:.0} of the {:.0} ns of a run, and {:.0} of the {:.0} ns of a packet",
                    ns[0].value, ns[3].value, packet[0].value, packet[3].value
                ));
            }
        }
        panels.push(Panel {
            title: hook.to_uppercase(),
            curves: curves.into(),
        });
    }
    section.tables = vec![runs, live, bytes];
    section.figures.push(Figure {
        name: "adaptivity",
        title: "Time per packet by the number of features that are wanted",
        x: Axis {
            label: "features wanted",
            logarithmic: false,
        },
        y: Axis {
            label: "ns per packet",
            logarithmic: false,
        },
        panels,
    });
    section.meaning = format!(
        "If a program asks at run time, each packet pays for each question, also about unwanted features. Push \
         another probe instead: a replacement has no gap. A fully adaptive probe of one feature takes little time. Most of \
         it is the way to the hook, also for an empty program: {}. Both probes share \
         this way, and it draws their ratio towards 1. The ratio above an empty program compares the probes \
         themselves. At XDP a packet's way is the generator and a veth pair. At TC the kernel also makes an skb for \
         each packet and frees it.",
        floors.join("; ")
    );
    section.claims.push(Claim {
        claim: "adaptive against fully adaptive, one feature: time per packet",
        paper: "31.8 against 2.8 Mpps at XDP (11 times); goal >= 10",
        ours: claims.join("; "),
        peers: String::new(),
    });
    Ok(section)
}

/// The nanoseconds of each way, measured in turns: fully adaptive, fully adaptive again, adaptive,
/// non-adaptive, empty.
struct Turns([Sample; 5]);

impl Turns {
    /// Returns the times in the order of the tables: empty, non-adaptive, adaptive, fully adaptive.
    fn times(&self) -> [Estimate; 4] {
        let [fully, _, adaptive, non, empty] = &self.0;
        [empty, non, adaptive, fully].map(Estimate::of)
    }

    /// Returns the time of the adaptive probe, divided by the time of the fully adaptive probe.
    fn ratio(&self) -> Estimate {
        Estimate::of_ratio(&self.0[2], &self.0[0])
    }

    /// Returns another way's time relative to the fully adaptive probe's time, both without the
    /// time of an empty program.
    fn ratio_above(&self, way: usize, decimals: usize) -> String {
        show_ratio_above(&self.0[way], &self.0[0], &self.0[4], decimals)
    }

    /// Returns the additional time of a way compared with an empty program, in each round.
    fn above(&self, way: usize) -> Sample {
        above(&self.0[way], &self.0[4])
    }

    /// Returns the cells of the tables that follow the times.
    fn ratios(&self) -> [String; 6] {
        [
            self.ratio().show(2),
            Estimate::of_ratio(&self.0[1], &self.0[0]).show(2),
            Estimate::of(&self.above(2)).show(1),
            Estimate::of(&self.above(0)).show(1),
            self.ratio_above(2, 1),
            self.ratio_above(1, 2),
        ]
    }
}
