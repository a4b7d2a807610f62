//! Crashes at every step of creating, replacing, reading and deleting a probe: the next daemon
//! finds the probe as it was before or as requested, nothing else is left, and every packet is
//! counted.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::http;
use twinprobe_tests::layouts::{Layout, Reading, packets};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{
    Bystanders, Daemon, DaemonOptions, Directories, KernelObjects, Store, Topology, scaled,
};

const NAME: &str = "p";
const PROBE: &str = "/v1/probes/p";
const METRICS: &str = "/v1/probes/p/metrics";
/// The number of hooks: two interfaces and two directions. Every step of attaching comes four
/// times.
const PLACES: u32 = 4;

/// The request during which the daemon dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Create,
    /// A replacement by another program with the same maps.
    Replace,
    /// A replacement by a program whose values have another layout.
    Reshape,
    Read,
    Delete,
}

/// Each step, the number of times that it comes, and the requests that it is part of.
const STEPS: [(&str, u32, &[Change]); 29] = {
    use Change::{Create, Delete, Read, Replace, Reshape};
    const DEPLOY: &[Change] = &[Create, Replace, Reshape];
    const SUCCEED: &[Change] = &[Replace, Reshape];
    [
        ("pinned", 1, DEPLOY),
        ("saved", 1, DEPLOY),
        ("prepared", 1, DEPLOY),
        ("filled", PLACES, DEPLOY),
        // One of the hooks already has a link, which belongs to a bystander.
        ("linked", PLACES - 1, &[Create]),
        ("attached", PLACES, DEPLOY),
        ("switched", 1, DEPLOY),
        ("committed", 1, DEPLOY),
        ("transferred", 1, SUCCEED),
        ("retiring", PLACES, SUCCEED),
        ("retired", 1, SUCCEED),
        ("rewritten", 1, SUCCEED),
        ("flipped", 1, &[Read]),
        // Only one direction comes to this step: egress has counted nothing, so its hashes give no
        // batch.
        ("moved", 2, &[Read]),
        ("copied", 1, &[Read]),
        ("copied", 4, &[Read]),
        ("emptied", 4, &[Read]),
        ("gathered", 1, &[Read]),
        ("summed", 1, &[Read]),
        ("summed", 4, &[Read]),
        ("written", 1, &[Read]),
        ("filed", 1, &[Read]),
        ("listed", 1, &[Read]),
        ("stored", 1, &[Read]),
        ("discarded", 5, &[Read]),
        ("cleared", 1, &[Read]),
        ("forgotten", 1, &[Delete]),
        ("detaching", PLACES, &[Delete]),
        ("detached", 1, &[Delete]),
    ]
};

const DEPLOYMENTS: [Change; 3] = [Change::Create, Change::Replace, Change::Reshape];
const OTHERS: [Change; 2] = [Change::Read, Change::Delete];
const WITH_LINKS: [Reading; 2] = [Reading::Live, Reading::Cumulative];
const WITH_FILTERS: [Reading; 2] = [Reading::Window, Reading::Init];

fn config(reading: Reading, change: u32) -> Value {
    let layout = Layout {
        layout: change / 2,
        variant: change % 2,
        ..Layout::new(reading)
    };
    let mut ingress = layout.direction();
    ingress["verdict"] = json!("observe");
    let mut egress = Layout {
        hook: "tc",
        ..layout
    }
    .direction();
    egress["verdict"] = json!("observe");
    json!({ "interfaces": ["mon0", "mon1"], "ingress": ingress, "egress": egress })
}

/// Tells whether the counts begin with 0 again after each reading.
fn is_reset(reading: Reading) -> bool {
    matches!(reading, Reading::Window | Reading::Init)
}

struct Scene {
    topology: Topology,
    options: DaemonOptions,
    generator: Generator,
    baseline: KernelObjects,
    directories: Arc<Directories>,
    bystanders: Bystanders,
    /// The objects of other probes than the one under test.
    beside: Left,
}

/// The number of pinned objects of each kind, and the filters.
type Left = ([(&'static str, usize); 3], Vec<String>);

impl Scene {
    fn new(tc_attach: &str) -> Result<Self> {
        let topology = Topology::new()?;
        let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
        let options = DaemonOptions::default()
            .argument("--tc-attach")
            .argument(tc_attach);
        let baseline = KernelObjects::now()?;
        let daemon = Daemon::start_with(topology.monitor(), &options)?;
        let bystanders = Bystanders::deploy(&daemon, &topology)?;
        let directories = daemon.kill()?;
        let beside = left(&topology, &directories)?;
        Ok(Self {
            topology,
            options,
            generator,
            baseline,
            directories,
            bystanders,
            beside,
        })
    }

    /// Lets a daemon die at a step of `change`, and checks the next daemon.
    fn crash(&mut self, step: &str, time: u32, change: Change, reading: Reading) -> Result<()> {
        let start = |directories: Arc<Directories>, options: &DaemonOptions| {
            Daemon::start_in(self.topology.monitor(), options, directories)
        };
        let daemon = start(Arc::clone(&self.directories), &self.options)?;
        let mut sent = 0;
        let mut send = |count| {
            sent += count;
            self.generator.send(count)
        };
        if change != Change::Create {
            daemon.put(PROBE, &config(reading, 0)).expect(201);
            send(1000)?;
        }
        // Some packets are in a closed window, others in the open one.
        let mut read = 0;
        if matches!(change, Change::Replace | Change::Reshape) {
            let document = packets(&daemon.json(METRICS));
            read = if is_reset(reading) { document } else { 0 };
            send(500)?;
        }
        let dying = self
            .options
            .clone()
            .environment("TWINPROBE_CRASH_AT", format!("{step}:{time}"));
        let daemon = start(daemon.kill()?, &dying)?;
        let (method, path, body) = match change {
            Change::Create => ("PUT", PROBE, config(reading, 0)),
            Change::Replace => ("PUT", PROBE, config(reading, 1)),
            Change::Reshape => ("PUT", PROBE, config(reading, 2)),
            Change::Read => ("GET", METRICS, Value::Null),
            Change::Delete => ("DELETE", PROBE, Value::Null),
        };
        let answer = http::request(
            &daemon.address(),
            method,
            path,
            &[],
            body.to_string().as_bytes(),
        );
        // The header of a reading may be sent before the maps are read, but the answer is never
        // complete.
        ensure!(
            answer.is_err() || change == Change::Read,
            "the step was not reached: {answer:?}"
        );
        let directories = daemon.kill()?;
        // Packets between copying and resetting a map may be lost if the daemon dies there.
        if change != Change::Create
            && change != Change::Delete
            && !matches!(step, "copied" | "emptied")
        {
            // Packets that come while there is no daemon are counted as well.
            send(100)?;
        }
        let daemon = start(directories, &self.options)?;
        let status = daemon.get(PROBE);
        let found = (status.status == 200).then(|| status.json());
        let committed = matches!(
            step,
            "committed" | "transferred" | "retiring" | "retired" | "rewritten"
        );
        let expected = match change {
            Change::Delete => None,
            Change::Create => committed.then_some(0),
            Change::Read => Some(0),
            Change::Replace => Some(u32::from(committed)),
            Change::Reshape => Some(2 * u32::from(committed)),
        };
        let wanted = expected.map(|change| config(reading, change));
        ensure!(
            found.as_ref().map(|status| &status["config"]) == wanted.as_ref(),
            "found {found:?}"
        );
        if expected.is_some() {
            send(10)?;
            let first = packets(&daemon.json(METRICS));
            // If the kill has interrupted a reading, the next reading gives its window again. Later
            // packets are in the window after it.
            let counted = match (change, reading) {
                (Change::Read, reading) if is_reset(reading) => {
                    first + packets(&daemon.json(METRICS))
                }
                (Change::Read, _) => packets(&daemon.json(METRICS)),
                _ => first,
            };
            let counted = read + counted;
            // A deployment that was not committed is removed, together with its counts from the
            // time without a daemon.
            let least = if change == Change::Reshape && !committed {
                sent - 100
            } else {
                sent
            };
            ensure!(
                (least..=sent).contains(&counted),
                "{counted} of {sent} packets"
            );
        }
        self.baseline
            .wait_for_only(daemon.directories().bpffs(), daemon.pid())?;
        if expected.is_some() {
            daemon.delete(PROBE).expect(204);
        }
        self.check_end(daemon)
    }

    /// Checks that nothing is left of the deleted probe and that the others have lost nothing.
    fn check_end(&mut self, daemon: Daemon) -> Result<()> {
        let left = left(&self.topology, &self.directories)?;
        ensure!(
            left == self.beside,
            "beside others there are {left:?}, not {:?}",
            self.beside
        );
        self.bystanders.check()?;
        let (_, directories): (_, Arc<Directories>) = daemon.terminate()?;
        self.baseline
            .wait_for_only(directories.bpffs(), std::process::id())
    }
}

fn left(topology: &Topology, directories: &Directories) -> Result<Left> {
    let mut filters = Vec::new();
    for interface in ["mon0", "mon1"] {
        for direction in ["ingress", "egress"] {
            let show = ["filter", "show", "dev", interface, direction];
            filters.push(topology.monitor().output("tc", &show)?);
        }
    }
    Ok((
        KernelObjects::pinned(directories.bpffs())?.counts(),
        filters,
    ))
}

/// Tells whether a daemon comes to a step with this kind of reading.
fn is_reached(step: &str, reading: Reading) -> bool {
    // Sums alone are saved, live metrics have no windows, and journals are for maps that both twins
    // use.
    match step {
        "summed" => reading == Reading::Cumulative,
        "flipped" | "gathered" | "written" | "filed" | "listed" | "stored" | "cleared" => {
            reading != Reading::Live
        }
        "moved" | "copied" | "emptied" | "discarded" => reading == Reading::Init,
        _ => true,
    }
}

/// Lets daemons die at each step of these requests. A full run takes all pairs of a request and a
/// reading for each step. A usual run takes one pair for each step; the pairs alternate from number
/// `first` on.
fn crash_everywhere(
    tc_attach: &str,
    changes: &[Change],
    readings: &[Reading],
    first: usize,
) -> Result<()> {
    let mut scene = Scene::new(tc_attach)?;
    let most = scaled(1, 100) as usize;
    for (number, (step, times, of_step)) in STEPS.into_iter().enumerate() {
        let changes = of_step.iter().filter(|change| changes.contains(change));
        let pairs =
            changes.flat_map(|change| readings.iter().map(move |reading| (*change, *reading)));
        let pairs: Vec<_> = pairs
            .filter(|(_, reading)| is_reached(step, *reading))
            .collect();
        for &(change, reading) in pairs
            .iter()
            .cycle()
            .skip(first + number)
            .take(most.min(pairs.len()))
        {
            scene
                .crash(step, times, change, reading)
                .with_context(|| format!("{step}, time {times}, {change:?}, {reading:?}"))?;
        }
    }
    let _daemon = Daemon::start_in(scene.topology.monitor(), &scene.options, scene.directories)?;
    scene.bystanders.finish()
}

#[test]
fn deployments_with_links() -> Result<()> {
    crash_everywhere("auto", &DEPLOYMENTS, &WITH_LINKS, 0)
}

#[test]
fn readings_and_deletions_with_links() -> Result<()> {
    crash_everywhere("auto", &OTHERS, &WITH_LINKS, 0)
}

#[test]
fn deployments_with_filters() -> Result<()> {
    crash_everywhere("clsact", &DEPLOYMENTS, &WITH_FILTERS, 3)
}

#[test]
fn readings_and_deletions_with_filters() -> Result<()> {
    crash_everywhere("clsact", &OTHERS, &WITH_FILTERS, 3)
}

/// A window that was closed and not read when the daemon died survives a replacement that comes
/// before the next read.
#[test]
fn a_window_that_nobody_read_survives_a_replacement() -> Result<()> {
    for reading in [Reading::Window, Reading::Cumulative] {
        for change in [1, 2] {
            let topology = Topology::new()?;
            let mut generator =
                Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
            let daemon = Daemon::start(topology.monitor())?;
            let bystanders = Bystanders::deploy(&daemon, &topology)?;
            daemon.put(PROBE, &config(reading, 0)).expect(201);
            generator.send(1000)?;
            let dying = DaemonOptions::default().environment("TWINPROBE_CRASH_AT", "flipped");
            let daemon = Daemon::start_in(topology.monitor(), &dying, daemon.kill()?)?;
            let answer = http::request(&daemon.address(), "GET", METRICS, &[], b"");
            ensure!(answer.is_err(), "the step was not reached: {answer:?}");
            let options = DaemonOptions::default();
            let daemon = Daemon::start_in(topology.monitor(), &options, daemon.kill()?)?;
            generator.send(100)?;
            daemon.put(PROBE, &config(reading, change)).expect(200);
            generator.send(10)?;
            let (first, second) = (
                packets(&daemon.json(METRICS)),
                packets(&daemon.json(METRICS)),
            );
            let expected = if reading == Reading::Window {
                (1000, 110)
            } else {
                (1000, 1110)
            };
            assert_eq!((first, second), expected, "{reading:?}, change {change}");
            bystanders.finish()?;
        }
    }
    Ok(())
}

/// A window whose row or body is damaged while its maps have not been emptied yet is stored again.
#[test]
fn a_window_that_is_damaged_too_early_costs_nothing() -> Result<()> {
    let mut scene = Scene::new("auto")?;
    let monitor = &scene.topology.monitor().clone();
    let left = 1000;
    for (step, of_body) in [
        ("stored", false),
        ("stored", true),
        ("cleared", false),
        ("cleared", true),
    ] {
        let daemon = Daemon::start_in(monitor, &scene.options, Arc::clone(&scene.directories))?;
        daemon.put(PROBE, &config(Reading::Window, 0)).expect(201);
        scene.generator.send(left)?;
        let dying = scene
            .options
            .clone()
            .environment("TWINPROBE_CRASH_AT", step);
        let daemon = Daemon::start_in(monitor, &dying, daemon.kill()?)?;
        let answer = http::request(&daemon.address(), "GET", METRICS, &[], b"");
        ensure!(answer.is_err(), "{step} was not reached: {answer:?}");
        let directories = daemon.kill()?;
        let store = Store::open(&directories)?;
        if of_body {
            store.flip_body(NAME, 1, store.body(NAME, 1)?.len() / 2, 1)?;
        } else {
            store.execute(&format!(
                "UPDATE windows SET bytes = bytes + 1 WHERE id = {}",
                store.id(NAME, 1)?
            ))?;
        }
        drop(store);
        let daemon = Daemon::start_in(monitor, &scene.options, directories)?;
        scene.generator.send(10)?;
        let first = daemon.json(METRICS);
        let second = daemon.json(METRICS);
        let read = [&first, &second]
            .map(|document| (document["window"]["seq"].as_u64(), packets(document)));
        match step {
            "stored" => ensure!(read == [(Some(1), left), (Some(2), 10)], "{read:?}"),
            // The maps do not have the whole window any more: it counts as lost, and the next
            // window says so.
            _ => ensure!(
                read == [(Some(2), 10), (Some(3), 0)] && first["window"]["lost_windows"] == 1,
                "{first}"
            ),
        }
        let status = daemon.json(PROBE);
        ensure!(status["windows"]["damaged"] == 1, "{status}");
        daemon.delete(PROBE).expect(204);
        scene.check_end(daemon)?;
    }
    Ok(())
}
