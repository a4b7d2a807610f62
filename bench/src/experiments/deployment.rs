//! Deployment: the time of a PUT with twins, compared with the same probe without twins and with
//! BCC (Fig. 4a).

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::Value;
use twinprobe_tests::Daemon;
use twinprobe_tests::measure::{ProcessorTime, Sample};

use crate::frame::figure::{Axis, Curve, Figure, Panel};
use crate::frame::options::Bench;
use crate::frame::paired::{Comparison, Estimate, Way};
use crate::frame::section::{Claim, Section};
use crate::frame::site::Site;
use crate::frame::table::Table;
use crate::scenes::bcc::Bcc;
use crate::scenes::probes::{many_maps, nameless, unique, with_snapshot};

/// The goal: a deployment with twins takes at most this many times as long as one without.
const TWINS: f64 = 1.10;
/// The goal: the deployment of twins with BCC takes at least this many times as long as with the
/// daemon.
const BCC: f64 = 5.0;
/// The goal for a known source, in milliseconds from PUT to attached.
const KNOWN: f64 = 10.0;
const MAPS: [usize; 7] = [1, 5, 10, 15, 20, 50, 100];
const PROBE: &str = "/v1/probes/probe";
/// The deployments of a round of [`Comparison::measure`].
const WAYS: u64 = 3;

/// The times of one probe.
struct Times {
    compared: Comparison,
    known: Comparison,
    bcc: Option<[Sample; 2]>,
    clang: f64,
    daemon: f64,
    /// The number of deployments that are added up in `clang` and `daemon`.
    deployments: u64,
}

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Deployment (Fig. 4a)",
        "How long does it take from a source to an attached probe, and what do twins add?",
        "PUT over the Unix socket until the answer, each source new to the daemon (compile, prove, load, try, \
         attach, store): a probe with snapshots and the same one without, in turns, the latter twice, which is the \
         null comparison. BCC has its turn before each three of ours, from the source to a program attached at XDP, \
         compiled and loaded once or twice. Medians with intervals of 95 % (bootstrap).",
    );
    section.details =
        "The daemon has no other probes. The times do not include the DELETE after each PUT. `known` is a PUT of a \
         source that the daemon has compiled before, with twins, and `<= 10` its goal. Programs count in at most 60 \
         maps. `clang` and `daemon` are the processor time of the compiler and of the daemon, by the mean of these \
         PUTs. BCC runs in one process, with its compiler in it. After it comes a deployment of ours that does not \
         count: it meets cold caches and a kernel that still frees BCC's programs."
        .to_owned();
    let site = Site::new(bench)?;
    let daemon = site.daemon(&[])?;
    let mut bcc = Bcc::deployer(site.topology.monitor(), "mon0")?;
    let rounds = bench.rounds(40, 1);
    let columns = [
        "single, ms",
        "twins, ms",
        "twins / single",
        "null",
        "<= 1.10",
        "known, ms",
        "<= 10",
        "clang, ms",
        "daemon, ms",
    ];
    let peers = ["BCC once, ms", "BCC twice, ms", "BCC twice / twins", ">= 5"];
    let mut table = Table::new(&[&["maps"][..], &columns, &peers].concat());
    let mut curves = ["ours, single", "ours, twins", "BCC, once", "BCC, twice"].map(|name| Curve {
        name: name.to_owned(),
        points: Vec::new(),
    });
    let (mut ratios, mut known, mut against) = (Found::default(), Found::default(), Vec::new());
    for maps in bench.cases(&MAPS, &[1, 20]) {
        let times = measure(
            &daemon,
            &many_maps(maps, site.interface()),
            rounds,
            bcc.as_mut(),
            maps,
        )?;
        let mut cells = vec![maps.to_string()];
        cells.extend(times.cells());
        let samples = [Some(&times.compared.base), Some(&times.compared.other)];
        let peers = times
            .bcc
            .as_ref()
            .map_or([None, None], |both| [Some(&both[0]), Some(&both[1])]);
        for (curve, sample) in curves.iter_mut().zip(samples.into_iter().chain(peers)) {
            curve
                .points
                .extend(sample.map(|sample| (maps as f64, Estimate::of(sample))));
        }
        ratios.by_maps.push((maps, times.compared.ratio()));
        known.by_maps.push((maps, times.known()));
        match &times.bcc {
            Some([once, twice]) => {
                let pairs = twice.values().iter().zip(times.compared.other.values());
                let ratio = Estimate::of(&pairs.map(|(bcc, ours)| bcc / ours).collect());
                against.push(ratio.value);
                cells.extend([
                    Estimate::of(once).show(0),
                    Estimate::of(twice).show(0),
                    ratio.show(1),
                    ratio.at_least(BCC).into(),
                ]);
            }
            None => cells.extend(["not here", "", "", ""].map(str::to_owned)),
        }
        table.row(cells);
    }
    let mut library = Table::new(&[&["probe"][..], &columns].concat());
    for probe in ["packet-counter", "flow-features"] {
        let times = measure(
            &daemon,
            &nameless(probe, site.interface())?,
            rounds,
            None,
            0,
        )?;
        let mut cells = vec![probe.to_owned()];
        cells.extend(times.cells());
        library.row(cells);
        ratios.by_probe.push((probe, times.compared.ratio()));
        known.by_probe.push((probe, times.known()));
    }
    section.tables = vec![table, library];
    section.figures.push(Figure {
        name: "deployment",
        title: "Time to deploy a probe, by its number of maps",
        x: Axis {
            label: "maps",
            logarithmic: true,
        },
        y: Axis {
            label: "ms",
            logarithmic: true,
        },
        panels: vec![Panel {
            title: "from source to attached".into(),
            curves: curves
                .into_iter()
                .filter(|curve| !curve.points.is_empty())
                .collect(),
        }],
    });
    section.meaning =
        "The daemon compiles a source once, for any number of twins. So a consistent probe costs a second load and \
        no second compilation. For a program that is new to XDP, `BPF_LINK_CREATE` changes the code by which the \
        kernel calls such programs. Then it waits for a grace period: 8 to 15 ms for any program with `serve \
        --expedite never`, and 0.2 ms if the kernel expedites it. The daemon makes and verifies both twins at the \
        same time, on two CPUs. The rest of the time for a known source is mostly the kernel's: for each deployment \
        it makes the maps with all their entries, and verifies the program for each twin. flow-features has a \
        program with many paths, and 65,536 entries in the largest map of each twin. A profile of it on an Intel \
        Xeon found 87 % of the daemon's samples in the kernel: 38 % verify, 31 % make maps, 3 % sync files, and 2 % \
        change the code of the hook. For 100 maps with twins the kernel makes and pins 200."
            .to_owned();
    section.claims = vec![
        Claim {
            claim: "twins against a single deployment",
            paper: "goal <= 1.10",
            ours: ratios.show(TWINS, 2, ""),
            peers: if against.is_empty() {
                "BCC: not here".into()
            } else {
                format!("BCC's twins: {} times ours (goal >= 5)", range(against, 1))
            },
        },
        Claim {
            claim: "from PUT to attached, source known",
            paper: "goal <= 10 ms",
            ours: known.show(KNOWN, 0, " ms"),
            peers: String::new(),
        },
    ];
    Ok(section)
}

/// The numbers for a claim: by the number of maps, and by the probe of the library.
#[derive(Default)]
struct Found {
    by_maps: Vec<(usize, Estimate)>,
    by_probe: Vec<(&'static str, Estimate)>,
}

impl Found {
    /// Describes the figures. For each probe, the section tells whether the goal is met; for
    /// numbers of maps, it lists the missed goals.
    fn show(&self, goal: f64, decimals: usize, unit: &str) -> String {
        let maps = self.by_maps.iter().map(|(maps, _)| *maps as f64);
        let values = self.by_maps.iter().map(|(_, estimate)| estimate.value);
        let verdict = |estimate: &Estimate| match estimate.at_most(goal) {
            "yes" => "met",
            "**no**" => "missed",
            open => open,
        };
        let mut verdicts = Vec::new();
        for said in ["not resolved", "missed"] {
            let found = self
                .by_maps
                .iter()
                .filter(|(_, estimate)| verdict(estimate) == said);
            let found: Vec<_> = found.map(|(maps, _)| maps.to_string()).collect();
            if !found.is_empty() {
                verdicts.push(format!("{said} at {} maps", found.join(", ")));
            }
        }
        if verdicts.is_empty() {
            verdicts.push("met".to_owned());
        }
        let mut text = format!(
            "maps {}: {}{unit} ({})",
            range(maps, 0),
            range(values, decimals),
            verdicts.join(", ")
        );
        for (probe, estimate) in &self.by_probe {
            text += &format!(
                "; {probe} {:.decimals$}{unit} ({})",
                estimate.value,
                verdict(estimate)
            );
        }
        text
    }
}

/// Returns the least and the largest of some values.
fn range(values: impl IntoIterator<Item = f64>, decimals: usize) -> String {
    let (low, high) = values
        .into_iter()
        .fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        });
    format!("{low:.decimals$} to {high:.decimals$}")
}

fn measure(
    daemon: &Daemon,
    config: &Value,
    rounds: u64,
    mut bcc: Option<&mut Bcc>,
    maps: usize,
) -> Result<Times> {
    let (single, twins) = (with_snapshot(config, false), with_snapshot(config, true));
    // The first deployment includes work that the daemon does only once.
    deploy(daemon, &unique(&single))?;
    deploy(daemon, &twins)?;
    let before = ProcessorTime::of(daemon.pid())?;
    let (mut both, mut deployments, mut uncounted) = ([Sample::default(), Sample::default()], 0, 0);
    let compared = Comparison::measure(rounds, |way| {
        // BCC is measured once in each round, before the first way.
        if let (0, Some(bcc)) = (deployments % WAYS, bcc.as_mut()) {
            for copies in if deployments % 2 == 0 { [1, 2] } else { [2, 1] } {
                both[copies - 1].add(bcc.deploy(maps, copies, "mon0")?);
            }
            deploy(daemon, &unique(&single))?;
            uncounted += 1;
        }
        deployments += 1;
        deploy(
            daemon,
            &unique(if way == Way::Base { &single } else { &twins }),
        )
    })?;
    let after = ProcessorTime::of(daemon.pid())?;
    let known = Comparison::measure(rounds, |way| {
        // The compiled object of the other configuration serves the configuration without
        // snapshots, because the source is the same.
        deploy(daemon, if way == Way::Base { &single } else { &twins })
    })?;
    Ok(Times {
        compared,
        known,
        bcc: bcc.is_some().then_some(both),
        clang: after.children - before.children,
        daemon: after.own - before.own,
        deployments: deployments + uncounted,
    })
}

impl Times {
    /// Returns the milliseconds of a PUT with twins and a known source.
    fn known(&self) -> Estimate {
        Estimate::of(&self.known.other)
    }

    fn cells(&self) -> Vec<String> {
        let mean = |seconds: f64| format!("{:.1}", 1e3 * seconds / self.deployments as f64);
        vec![
            Estimate::of(&self.compared.base).show(1),
            Estimate::of(&self.compared.other).show(1),
            self.compared.ratio().show(3),
            self.compared.null_ratio().show(3),
            self.compared.ratio().at_most(TWINS).to_owned(),
            self.known().show(1),
            self.known().at_most(KNOWN).to_owned(),
            mean(self.clang),
            mean(self.daemon),
        ]
    }
}

/// Puts a probe, checks that it is attached, and deletes it. Returns the milliseconds of the PUT.
fn deploy(daemon: &Daemon, document: &Value) -> Result<f64> {
    let started = Instant::now();
    let response = daemon.put(PROBE, document);
    let time = 1e3 * started.elapsed().as_secs_f64();
    let status = response.expect(201).json();
    ensure!(
        status["interfaces"][0]["state"] == "attached",
        "not attached: {status}"
    );
    daemon.delete(PROBE).expect(204);
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_says_which_figures_miss_the_goal() {
        let estimate = |value| Estimate {
            value,
            low: value - 1.0,
            high: value + 1.0,
        };
        let mut found = Found {
            by_maps: vec![
                (1, estimate(5.0)),
                (5, estimate(10.5)),
                (20, estimate(9.5)),
                (100, estimate(15.0)),
            ],
            by_probe: vec![("small", estimate(7.0)), ("large", estimate(28.0))],
        };
        assert_eq!(
            found.show(10.0, 0, " ms"),
            "maps 1 to 100: 5 to 15 ms (not resolved at 5, 20 maps, missed at 100 maps); small 7 ms (met); \
             large 28 ms (missed)"
        );
        found.by_maps.truncate(1);
        found.by_probe.clear();
        assert_eq!(found.show(10.0, 1, ""), "maps 1 to 1: 5.0 to 5.0 (met)");
    }
}
