//! Revisions: the earlier configurations of a probe, and the return to one of them.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use twinprobe_tests::layouts::{Layout, Reading, packets};
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Stand, Topology, scaled};

const PROBE: &str = "/v1/probes/p";
const REVISIONS: &str = "/v1/probes/p/revisions";
const ROLLBACK: &str = "/v1/probes/p/rollback";

/// Returns a configuration that differs from others only in a metric's help.
fn config(help: &str) -> Value {
    let mut config = counter_config("mon0", "XDP_PASS");
    config["ingress"]["metrics"] = json!([{ "name": "packets", "map": "packets", "help": help }]);
    config
}

fn help(config: &Value) -> &str {
    config["ingress"]["metrics"][0]["help"]
        .as_str()
        .unwrap_or_default()
}

/// Returns the number and the help of each revision, and whether it is the present one.
fn revisions(daemon: &Daemon) -> Result<Vec<(u64, String, bool)>> {
    let document = daemon.json(REVISIONS);
    let list = document["revisions"]
        .as_array()
        .with_context(|| format!("no list in {document}"))?;
    let one = |revision: &Value| {
        assert!(
            revision["created"]
                .as_str()
                .is_some_and(|time| time.ends_with('Z')),
            "{revision}"
        );
        let number = revision["revision"].as_u64().context("a number")?;
        Ok((
            number,
            help(&revision["config"]).to_owned(),
            revision["current"] == true,
        ))
    };
    list.iter().map(one).collect()
}

fn rollback(daemon: &Daemon, body: &[u8]) -> twinprobe_tests::Response {
    daemon.request("POST", ROLLBACK, &[], body)
}

fn expected(list: &[(u64, &str)]) -> Vec<(u64, String, bool)> {
    let last = list.len() - 1;
    list.iter()
        .enumerate()
        .map(|(i, (number, help))| (*number, (*help).to_owned(), i == last))
        .collect()
}

#[test]
fn a_probe_goes_back_to_what_it_was() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon.get(REVISIONS).expect(404);
    rollback(&daemon, b"").expect(404);
    daemon.put(PROBE, &config("one")).expect(201);
    assert_eq!(revisions(&daemon)?, expected(&[(1, "one")]));
    rollback(&daemon, b"").expect(409);
    daemon.put(PROBE, &config("two")).expect(200);
    daemon.put(PROBE, &config("three")).expect(200);
    // A refused configuration is not a revision.
    let mut bad = config("bad");
    bad["ingress"]["source"] = json!("int x");
    daemon.put(PROBE, &bad).expect(422);
    let history = expected(&[(1, "one"), (2, "two"), (3, "three")]);
    assert_eq!(revisions(&daemon)?, history);

    // A rollback without a number goes to the revision before; the answer is that of a replacement.
    let answer = rollback(&daemon, b"").expect(200).json();
    assert_eq!(help(&answer["config"]), "two");
    assert_eq!(answer, daemon.json(PROBE));
    assert_eq!(
        revisions(&daemon)?,
        expected(&[(1, "one"), (2, "two"), (3, "three"), (4, "two")])
    );
    // A rollback with a number goes to that revision.
    let answer = rollback(&daemon, b"{\"revision\": 1}").expect(200).json();
    assert_eq!(help(&answer["config"]), "one");
    let history = expected(&[(1, "one"), (2, "two"), (3, "three"), (4, "two"), (5, "one")]);
    assert_eq!(revisions(&daemon)?, history);

    let before = daemon.json(PROBE);
    // A number that no revision can have may be called unknown, invalid or malformed.
    for (body, right) in [
        (&b"{\"revision\": 99}"[..], &[404][..]),
        (b"{\"revision\": 0}", &[404, 422]),
        (b"{\"revision\": -1}", &[404, 422, 400]),
        (b"{\"revision\": \"one\"}", &[422, 400]),
        (b"{\"revison\": 1}", &[422, 400]),
        (b"{", &[400]),
    ] {
        let answer = rollback(&daemon, body);
        let text = String::from_utf8_lossy(body);
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json"),
            "{text}"
        );
        assert!(right.contains(&answer.status), "{text}: {}", answer.text());
    }
    assert_eq!(
        (daemon.json(PROBE), revisions(&daemon)?),
        (before.clone(), history.clone())
    );

    for signal in [libc::SIGTERM, libc::SIGKILL] {
        daemon = daemon.restart(signal, &DaemonOptions::default())?;
        assert_eq!(
            (daemon.json(PROBE), revisions(&daemon)?),
            (before.clone(), history.clone())
        );
    }
    rollback(&daemon, b"{\"revision\": 3}").expect(200);
    assert_eq!(help(&daemon.json(PROBE)["config"]), "three");
    // A probe that was deleted has no history; a new one of its name begins anew.
    daemon.delete(PROBE).expect(204);
    daemon.get(REVISIONS).expect(404);
    daemon.put(PROBE, &config("new")).expect(201);
    assert_eq!(
        revisions(&daemon)?.last().map(|(_, help, _)| help.as_str()),
        Some("new")
    );
    assert_eq!(revisions(&daemon)?.len(), 1);
    bystanders.finish()
}

/// A rollback under load keeps the counts, as a replacement does.
#[test]
fn a_rollback_costs_no_packet() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    for reading in [Reading::Live, Reading::Cumulative] {
        let layout = Layout::new(reading);
        daemon.put(PROBE, &layout.config()).expect(201);
        daemon
            .put(
                PROBE,
                &Layout {
                    variant: 1,
                    ..layout
                }
                .config(),
            )
            .expect(200);
        let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
        let load = generator.spawn(Load::default());
        for round in 0..scaled(10, 100) {
            rollback(&daemon, b"").expect(200);
            if round % 3 != 0 {
                daemon.json("/v1/probes/p/metrics");
            }
        }
        let sent = load.stop()?;
        assert_eq!(
            packets(&daemon.json("/v1/probes/p/metrics")),
            sent,
            "{reading:?}"
        );
        daemon.delete(PROBE).expect(204);
    }
    bystanders.finish()
}

/// A revision that can't be deployed any more leaves the present one as it is.
#[test]
fn a_rollback_that_fails_changes_nothing() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy_at(&daemon, &topology, Stand::AT_MON0)?;
    let mut both = config("one");
    both.as_object_mut()
        .context("an object")?
        .remove("interface");
    both["interfaces"] = json!(["mon0", "mon1"]);
    daemon.put(PROBE, &both).expect(201);
    daemon.put(PROBE, &config("two")).expect(200);
    topology.monitor().run("ip", &["link", "del", "mon1"])?;
    let before = (daemon.json(PROBE), revisions(&daemon)?);
    let refused = rollback(&daemon, b"");
    assert!((400..500).contains(&refused.status), "{refused:?}");
    assert_eq!((daemon.json(PROBE), revisions(&daemon)?), before);
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(100)?;
    assert_eq!(
        total(&daemon.json("/v1/probes/p/metrics"), "ingress", "packets"),
        100
    );
    bystanders.finish()
}

/// The history is bounded: old revisions are removed, the present one and the one before stay.
#[test]
fn old_revisions_are_forgotten_at_some_time() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let puts = scaled(30, 300);
    for n in 1..=puts {
        let status = daemon.put(PROBE, &config(&n.to_string())).status;
        assert_eq!(status, if n == 1 { 201 } else { 200 });
    }
    let found = revisions(&daemon)?;
    let numbers: Vec<u64> = found.iter().map(|(number, ..)| *number).collect();
    let first = puts + 1 - numbers.len() as u64;
    assert_eq!(
        numbers,
        (first..=puts).collect::<Vec<_>>(),
        "the newest, in order"
    );
    assert!(numbers.len() >= 2);
    let forgotten = format!("{{\"revision\": {}}}", first - 1);
    rollback(&daemon, forgotten.as_bytes()).expect(404);
    bystanders.finish()
}
