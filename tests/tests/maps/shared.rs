//! Maps that both directions use, and several metrics of one map. Packets come in at mon0 and go
//! out at mon1.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::sample::total;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load, Spread};
use twinprobe_tests::windows::Windows;
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Topology, scaled};

const SOURCE: &str = include_str!("../../bpf/shared.bpf.c");
const PROBE: &str = "/v1/probes/shared";
const METRICS: &str = "/v1/probes/shared/metrics";
const SHARED: [&str; 3] = ["sessions", "packets", "sizes"];
/// The number of source ports.
const PORTS: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Live,
    Init,
    Window,
    Cumulative,
}

impl Reading {
    const ALL: [Self; 4] = [Self::Live, Self::Init, Self::Window, Self::Cumulative];

    /// Tells whether each reading begins with nothing again.
    fn is_reset(self) -> bool {
        matches!(self, Self::Init | Self::Window)
    }

    fn metric(self, name: &str, map: &str) -> Value {
        let snapshot = matches!(self, Self::Window | Self::Cumulative);
        json!({ "name": name, "map": map, "snapshot": snapshot, "init": self.is_reset() })
    }

    /// The metrics of a direction: four of one PERCPU map, one of the table, one of the direction's
    /// own map, one of the queue.
    fn metrics(self) -> Value {
        let (mut sum, mut max) = (self.metric("sum", "packets"), self.metric("max", "packets"));
        (sum["agg"], max["agg"]) = (json!("sum"), json!("max"));
        let hidden = {
            let mut hidden = self.metric("hidden", "packets");
            hidden["export"] = json!(false);
            hidden
        };
        let [raw, sessions, own] = [("raw", "packets"), ("sessions", "sessions"), ("own", "own")]
            .map(|(name, map)| self.metric(name, map));
        let mut metrics = vec![hidden, sum, max, raw, sessions, own];
        if self.is_reset() {
            metrics.push(self.metric("sizes", "sizes"));
        }
        json!(metrics)
    }

    fn config(self, shared: &[&str], defines: &[(&str, &str)]) -> Value {
        let direction = |section: &str, context: &str, field: &str, verdict: &str| {
            let mut defines: serde_json::Map<String, Value> = defines
                .iter()
                .map(|(name, value)| ((*name).to_owned(), json!(value)))
                .collect();
            for (name, value) in [
                ("SECTION", section),
                ("CONTEXT", context),
                ("FIELD", field),
                ("VERDICT", verdict),
            ] {
                defines.insert(name.into(), json!(value));
            }
            json!({ "source": SOURCE, "defines": defines, "metrics": self.metrics() })
        };
        let ingress = direction("\"xdp\"", "xdp_md", "in", "XDP_PASS");
        let egress = direction("\"tc\"", "__sk_buff", "out", "0");
        json!({ "interfaces": ["mon0", "mon1"], "shared_maps": shared, "ingress": ingress, "egress": egress })
    }
}

/// Returns the sum of a field of the sessions.
fn sum(document: &Value, direction: &str, field: &str) -> u64 {
    let entries = document[direction]["sessions"]["entries"].as_array();
    let entries = entries.unwrap_or_else(|| panic!("no sessions in {document}"));
    entries
        .iter()
        .map(|entry| entry["value"][field].as_u64().expect("a number"))
        .sum()
}

/// Returns the packets in and out of one reading. Both directions show the same content of shared
/// maps, and all metrics of a map show one reading of it.
#[track_caller]
fn seen(document: &Value, at_rest: bool) -> [u64; 2] {
    if at_rest {
        for metric in ["sessions", "raw", "sum", "max", "sizes"] {
            let entries = |direction: &str| document[direction][metric]["entries"].clone();
            assert_eq!(
                entries("ingress"),
                entries("egress"),
                "{metric} in {document}"
            );
        }
        let raw = document["ingress"]["raw"]["entries"][0]["value"]
            .as_array()
            .expect("a value for each CPU");
        let raw = raw.iter().map(|value| value.as_u64().expect("a number"));
        let (sum, max) = (
            total(document, "ingress", "sum"),
            total(document, "ingress", "max"),
        );
        assert_eq!(
            (raw.clone().sum::<u64>(), raw.max()),
            (sum, Some(max)),
            "{document}"
        );
        assert_eq!(document["ingress"].get("hidden"), None);
    }
    let [own_in, own_out] =
        ["ingress", "egress"].map(|direction| total(document, direction, "own"));
    let [packets_in, packets_out] = ["in", "out"].map(|field| sum(document, "ingress", field));
    if at_rest {
        assert_eq!((own_in, own_out), (packets_in, packets_out), "{document}");
        assert_eq!(
            total(document, "ingress", "sum"),
            packets_in + packets_out,
            "{document}"
        );
    }
    [packets_in, packets_out]
}

struct Scene {
    topology: Topology,
    generator: Generator,
}

impl Scene {
    fn new() -> Result<Self> {
        let topology = Topology::new()?;
        let spread = Spread {
            addresses: 1,
            ports: PORTS as u32,
            ..Spread::default()
        };
        let options = GeneratorOptions {
            spread,
            ..GeneratorOptions::default()
        };
        let generator = Generator::new(topology.generator(), "gen0", options)?;
        Ok(Self {
            topology,
            generator,
        })
    }
}

/// Reads the counts since `before`, or all counts, and compares them with the sent packets.
#[track_caller]
fn expect(daemon: &Daemon, reading: Reading, sent: u64, before: u64) {
    let expected = if reading.is_reset() {
        sent - before
    } else {
        sent
    };
    assert_eq!(
        seen(&daemon.json(METRICS), true),
        [expected; 2],
        "{reading:?}"
    );
}

#[test]
fn both_directions_count_in_one_table_through_kills_and_replacements() -> Result<()> {
    let mut scene = Scene::new()?;
    let _forward = scene.topology.forward_to_egress()?;
    let mut daemon = Daemon::start(scene.topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &scene.topology)?;
    for reading in Reading::ALL {
        let config = reading.config(&SHARED, &[]);
        let status = daemon.put(PROBE, &config).expect(201).json();
        let twins = matches!(reading, Reading::Window | Reading::Cumulative);
        let shared = json!([
            { "map": "packets", "type": "percpu_array", "twins": twins },
            { "map": "sessions", "type": "hash", "twins": twins },
            { "map": "sizes", "type": "queue", "twins": reading == Reading::Window },
        ]);
        assert_eq!(status["shared_maps"], shared, "{reading:?}");
        assert_eq!(
            daemon.post("/v1/validate", &config).expect(200).json()["shared_maps"],
            shared
        );
        scene.generator.send(500)?;
        expect(&daemon, reading, 500, 0);
        scene.generator.send(100)?;
        daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
        scene.generator.send(10)?;
        assert_eq!(daemon.json(PROBE)["shared_maps"], shared);
        expect(&daemon, reading, 610, 500);
        scene.generator.send(20)?;
        // The same maps for another program, maps with another layout, and the same map for each
        // direction.
        for (changed, sent) in [(("OWN", "2"), 5), (("WIDE", "1"), 6)] {
            daemon
                .put(PROBE, &reading.config(&SHARED, &[changed]))
                .expect(200);
            scene.generator.send(sent)?;
        }
        expect(&daemon, reading, 641, 610);
        daemon.delete(PROBE).expect(204);
    }
    bystanders.finish()
}

/// Each direction has counted for itself. When the two begin to share a map, their numbers are
/// added up. When they stop sharing it, ingress continues with the whole sum.
#[test]
fn counts_are_kept_when_sharing_begins_and_ends() -> Result<()> {
    let mut scene = Scene::new()?;
    let _forward = scene.topology.forward_to_egress()?;
    let daemon = Daemon::start(scene.topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &scene.topology)?;
    for (before, after) in [
        (Reading::Live, Reading::Live),
        (Reading::Window, Reading::Window),
        (Reading::Cumulative, Reading::Cumulative),
        (Reading::Cumulative, Reading::Live),
        (Reading::Live, Reading::Cumulative),
    ] {
        daemon.put(PROBE, &before.config(&[], &[])).expect(201);
        scene.generator.send(300)?;
        let apart = daemon.json(METRICS);
        assert_eq!(
            [sum(&apart, "ingress", "in"), sum(&apart, "ingress", "out")],
            [300, 0]
        );
        assert_eq!(
            [sum(&apart, "egress", "in"), sum(&apart, "egress", "out")],
            [0, 300]
        );
        scene.generator.send(40)?;
        let status = daemon
            .put(PROBE, &after.config(&SHARED, &[]))
            .expect(200)
            .json();
        assert_eq!(status["warnings"], json!([]));
        scene.generator.send(7)?;
        let document = daemon.json(METRICS);
        let expected = if after == Reading::Window { 47 } else { 347 };
        assert_eq!(
            seen(&document, true),
            [expected; 2],
            "{before:?} to {after:?}"
        );
        scene.generator.send(2)?;
        let status = daemon
            .put(PROBE, &before.config(&[], &[]))
            .expect(200)
            .json();
        let warnings = status["warnings"].as_array().expect("a list");
        assert_eq!(warnings.len(), SHARED.len(), "{status}");
        let words =
            "map packets begins empty: the other direction continues with the counts of both";
        assert_eq!(warnings[0]["message"], words);
        scene.generator.send(3)?;
        let apart = daemon.json(METRICS);
        let [all, new] = if before == Reading::Window {
            [5, 3]
        } else {
            [352, 3]
        };
        let counted = |direction| [sum(&apart, direction, "in"), sum(&apart, direction, "out")];
        assert_eq!(
            (counted("ingress"), counted("egress")),
            ([all, all - 3], [0, new]),
            "{after:?} to {before:?}"
        );
        daemon.delete(PROBE).expect(204);
    }
    bystanders.finish()
}

/// Windows that are closed under load have every packet of both directions once.
#[test]
fn windows_under_load_have_each_packet_once() -> Result<()> {
    let scene = Scene::new()?;
    let _forward = scene.topology.forward_to_egress()?;
    let daemon = Daemon::start(scene.topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &scene.topology)?;
    daemon
        .put(PROBE, &Reading::Window.config(&SHARED, &[]))
        .expect(201);
    let windows = Windows::of(&daemon, "shared");
    let load = scene.generator.spawn(Load::default());
    let mut counted = [0; 2];
    let mut add = |document: &Value| {
        let [packets_in, packets_out] = seen(document, true);
        counted = [counted[0] + packets_in, counted[1] + packets_out];
    };
    for _ in 0..20 {
        add(&windows.close());
    }
    let sent = load.stop()?;
    add(&windows.close());
    assert_eq!(counted, [sent; 2]);
    bystanders.finish()
}

/// If a daemon ends at any step of a reading or a replacement, nothing is lost or counted twice.
#[test]
fn a_daemon_that_ends_at_any_step_loses_nothing() -> Result<()> {
    let mut scene = Scene::new()?;
    let _forward = scene.topology.forward_to_egress()?;
    let mut daemon = Daemon::start(scene.topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &scene.topology)?;
    let options = DaemonOptions::default();
    // A usual run takes every second end, with each kind of reading.
    let some = 10_usize.div_ceil(scaled(5, 10) as usize);
    let ends = [
        (Reading::Init, "moved"),
        (Reading::Init, "emptied:2"),
        (Reading::Init, "popped:30"),
        (Reading::Init, "discarded:2"),
        (Reading::Window, "flipped"),
        (Reading::Window, "written"),
        (Reading::Window, "stored"),
        (Reading::Cumulative, "summed:3"),
        (Reading::Cumulative, "stored"),
    ];
    for (reading, step) in ends.into_iter().step_by(some) {
        daemon.put(PROBE, &reading.config(&SHARED, &[])).expect(201);
        scene.generator.send(200)?;
        daemon = daemon.restart(
            libc::SIGKILL,
            &options.clone().environment("TWINPROBE_CRASH_AT", step),
        )?;
        let answer = daemon.try_request("GET", METRICS, &[], b"");
        ensure!(answer.is_err(), "{step} was not reached: {answer:?}");
        daemon = daemon.restart(libc::SIGKILL, &options)?;
        scene.generator.send(30)?;
        let (first, second) = (daemon.json(METRICS), daemon.json(METRICS));
        let read = [&first, &second].map(|document| seen(document, true)[0]);
        let expected = if reading.is_reset() {
            [200, 30]
        } else {
            [200, 230]
        };
        ensure!(read == expected, "{reading:?}, {step}: {read:?}");
        if reading.is_reset() {
            let sizes = [&first, &second].map(|document| {
                document["egress"]["sizes"]["entries"]
                    .as_array()
                    .map(Vec::len)
            });
            ensure!(
                sizes == [Some(400), Some(60)],
                "{reading:?}, {step}: {sizes:?}"
            );
        }
        daemon.delete(PROBE).expect(204);
    }
    let steps = ["pinned", "switched", "committed", "transferred", "retired"];
    let ends = [Reading::Cumulative, Reading::Live]
        .into_iter()
        .flat_map(|reading| steps.map(|step| (reading, step)));
    for (reading, step) in ends.step_by(some) {
        daemon.put(PROBE, &reading.config(&[], &[])).expect(201);
        scene.generator.send(200)?;
        daemon.get(METRICS).expect(200);
        scene.generator.send(20)?;
        daemon = daemon.restart(
            libc::SIGKILL,
            &options.clone().environment("TWINPROBE_CRASH_AT", step),
        )?;
        let body = reading.config(&SHARED, &[]).to_string();
        let headers = [("content-type", "application/json")];
        let answer = daemon.try_request("PUT", PROBE, &headers, body.as_bytes());
        ensure!(answer.is_err(), "{step} was not reached: {answer:?}");
        daemon = daemon.restart(libc::SIGKILL, &options)?;
        scene.generator.send(3)?;
        let document = daemon.json(METRICS);
        let counted = if daemon.json(PROBE).get("shared_maps").is_some() {
            seen(&document, true)
        } else {
            [
                sum(&document, "ingress", "in"),
                sum(&document, "egress", "out"),
            ]
        };
        ensure!(counted == [223; 2], "{reading:?}, {step}: {counted:?}");
        daemon.delete(PROBE).expect(204);
    }
    bystanders.finish()
}
