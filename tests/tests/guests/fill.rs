//! Maps that a configuration fills, and entries that change while packets come.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Topology, scaled};

use crate::scene::{clangs, compile, directory, of_object, source};

const PROBE: &str = "/v1/probes/p";
/// The maps of the source whose entries belong together, each with its count of packets that have
/// found a mixture.
const PAIRS: [(&str, usize); 7] = [
    ("hash", 2),
    ("lru_hash", 3),
    ("percpu_hash", 4),
    ("lru_percpu_hash", 5),
    ("array", 6),
    ("percpu_array", 7),
    ("lpm_trie", 8),
];
/// The number of addresses that packets come from.
const ADDRESSES: u64 = 256;

fn entry(key: &Value, number: u64) -> Value {
    json!({ "key": key, "value": { "first": number, "second": number } })
}

/// Returns the two entries of a map, with one number.
fn pair(map: &str, number: u64) -> Value {
    let keys = if map == "lpm_trie" {
        [json!("10.0.0.0/8"), json!("11.0.0.0/9")]
    } else {
        [json!(0), json!(1)]
    };
    keys.iter().map(|key| entry(key, number)).collect()
}

/// Returns entries for the last bytes of the addresses.
fn watched(last: &[u64]) -> Value {
    last.iter()
        .map(|last| entry(&json!(format!("198.18.0.{last}")), 1))
        .collect()
}

fn config(code: &Value, watches: &[u64]) -> Value {
    let mut config = json!({
        "interface": "mon0",
        "fill": { "watched": watched(watches) },
        "ingress": { "metrics": [{ "name": "counts", "map": "counts", "snapshot": true, "init": true, "agg": "sum" }] },
    });
    for (map, _) in PAIRS {
        config["fill"][map] = pair(map, 1);
    }
    if let (Some(direction), Some(code)) = (config["ingress"].as_object_mut(), code.as_object()) {
        direction.extend(code.clone());
    }
    config
}

fn entries(map: &str) -> String {
    format!("{PROBE}/maps/{map}/entries")
}

/// Closes the window and returns its counts.
fn counts(daemon: &Daemon) -> Result<Vec<u64>> {
    let document = daemon.json(&format!("{PROBE}/metrics"));
    let rows = document["ingress"]["counts"]["entries"]
        .as_array()
        .with_context(|| document.to_string())?;
    rows.iter()
        .map(|row| row["value"].as_u64().with_context(|| row.to_string()))
        .collect()
}

/// Sends packets of each address. Expects that both twins watch this many of them, and that all
/// pairs are complete.
fn expect(daemon: &Daemon, generator: &mut Generator, watched: u64) -> Result<()> {
    for _ in 0..2 {
        generator.send(10 * ADDRESSES)?;
        let counts = counts(daemon)?;
        let wanted = [10 * ADDRESSES, 10 * watched, 0, 0, 0, 0, 0, 0, 0, 0];
        ensure!(counts == wanted, "{counts:?} instead of {wanted:?}");
    }
    Ok(())
}

#[test]
fn entries_are_there_from_the_start_and_can_be_replaced() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let code = json!({ "source": source("filter")? });
    daemon.put(PROBE, &config(&code, &[1])).expect(201);
    expect(&daemon, &mut generator, 1)?;
    assert_eq!(
        daemon.json(PROBE)["config"]["fill"]["watched"],
        watched(&[1])
    );

    let answer = daemon
        .put(&entries("watched"), &watched(&[2, 3]))
        .expect(200)
        .json();
    assert_eq!(
        (&answer["change"]["atomic"], &answer["revision"]),
        (&json!(true), &json!(2)),
        "{answer}"
    );
    expect(&daemon, &mut generator, 2)?;
    assert_eq!(
        daemon.json(&entries("watched"))["entries"],
        watched(&[2, 3])
    );
    daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
    expect(&daemon, &mut generator, 2)?;
    // A daemon that finds nothing to adopt fills new maps.
    let directories = daemon.kill()?;
    std::fs::remove_dir_all(directories.bpffs().join("probes"))?;
    daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    expect(&daemon, &mut generator, 2)?;

    // A replacement keeps entries that it does not name, unless the map begins anew.
    let mut next = config(&code, &[4]);
    daemon.put(PROBE, &next).expect(200);
    expect(&daemon, &mut generator, 3)?;
    next["fill"]["watched"] = json!([]);
    daemon.put(PROBE, &next).expect(200);
    expect(&daemon, &mut generator, 3)?;
    next["on_replace"] = json!("reset");
    next["fill"]["watched"] = watched(&[5]);
    daemon.put(PROBE, &next).expect(200);
    expect(&daemon, &mut generator, 1)?;
    // An earlier revision has its own entries and no others.
    daemon
        .post(&format!("{PROBE}/rollback"), &json!({ "revision": 2 }))
        .expect(200);
    expect(&daemon, &mut generator, 2)?;
    daemon
        .put(&entries("watched"), &json!({ "entries": [] }))
        .expect(200);
    expect(&daemon, &mut generator, 0)
}

#[test]
fn the_maps_of_an_object_are_filled() -> Result<()> {
    let clangs = clangs();
    let clang = clangs.first().context("no clang")?;
    let object = of_object(&compile(clang, &directory().join("filter.bpf.c"), &[])?);
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    daemon.put(PROBE, &config(&object, &[1, 2, 3])).expect(201);
    expect(&daemon, &mut generator, 3)
}

#[test]
fn packets_meet_all_of_the_old_entries_or_all_of_the_new_ones() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    daemon
        .put(
            PROBE,
            &config(&json!({ "source": source("filter")? }), &[1]),
        )
        .expect(201);
    let load = generator.spawn(Load::default());
    let mut sums = vec![0; 10];
    let mut read = || -> Result<Vec<u64>> {
        counts(&daemon)?
            .iter()
            .zip(&mut sums)
            .for_each(|(count, sum)| *sum += count);
        Ok(sums.clone())
    };
    for round in 0..scaled(5, 100) {
        for (map, _) in PAIRS {
            daemon.put(&entries(map), &pair(map, round + 2)).expect(200);
            let before = load.arrived();
            wait_for("packets with the new entries", PATIENCE, || {
                let arrived = load.arrived();
                ensure!(arrived > before, "{arrived} packets");
                Ok(())
            })?;
        }
        // Windows are closed between changes, and both twins are active in turn.
        read()?;
    }
    let sent = load.stop()?;
    let sums = read()?;
    ensure!(sums[0] == sent, "{} of {sent} packets", sums[0]);
    for (map, mixed) in PAIRS {
        ensure!(
            sums[mixed] == 0,
            "{} packets have met a mix of entries of {map}",
            sums[mixed]
        );
    }
    bystanders.finish()
}

#[test]
fn mistakes_change_nothing() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let code = json!({ "source": source("filter")? });
    daemon.put(PROBE, &config(&code, &[1])).expect(201);
    let refused =
        |map: &str, entries_of: Value, status: u16, field: &str, words: &str| -> Result<()> {
            let answer = daemon.put(&entries(map), &entries_of).expect(status).json();
            let fits = answer["errors"][0]["field"] == field && answer.to_string().contains(words);
            ensure!(fits, "{answer}");
            Ok(())
        };
    let bad = json!([entry(&json!("198.18.0.9"), 1), { "key": "198.18.0.x", "value": {} }]);
    refused(
        "watched",
        bad,
        422,
        "fill.watched[1].key",
        "an address such as 192.0.2.1 is needed",
    )?;
    let bad = json!([{ "key": 0, "value": { "third": 1 } }]);
    refused(
        "array",
        bad,
        422,
        "fill.array[0].value",
        "there is no field third; known are first, second",
    )?;
    refused(
        "hash",
        json!([{ "key": 0 }]),
        422,
        "[0]",
        "missing field `value`",
    )?;
    refused(
        "counts",
        json!([]),
        422,
        "map",
        "and not map counts; clients can write only to maps that fill names",
    )?;
    daemon.get(&entries("counts")).expect(404);
    let stale = [
        ("if-match", "\"7-never\""),
        ("content-type", "application/json"),
    ];
    assert_eq!(
        daemon
            .request("PUT", &entries("watched"), &stale, b"[]")
            .status,
        412
    );
    let mut whole = config(&code, &[1]);
    whole["fill"]["counts"] = json!([]);
    let answer = daemon.post("/v1/validate", &whole).expect(422);
    ensure!(
        answer
            .text()
            .contains("metric counts reads map counts and windows empty it"),
        "{}",
        answer.text()
    );
    assert_eq!(daemon.json(PROBE)["revision"], 1);
    expect(&daemon, &mut generator, 1)
}

#[test]
fn a_command_shows_and_replaces_entries() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon
        .put(
            PROBE,
            &config(&json!({ "source": source("filter")? }), &[1]),
        )
        .expect(201);
    let shown = daemon.client(&["entries", "p", "watched"])?;
    ensure!(
        String::from_utf8_lossy(&shown.stdout).contains("198.18.0.1"),
        "{shown:?}"
    );
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("entries.yaml");
    std::fs::write(&file, "- { key: 198.18.0.8, value: { first: 1 } }\n")?;
    let path = file.to_str().context("a path that is not UTF-8")?;
    let done = daemon.client(&["entries", "p", "watched", "-f", path, "-m", "another one"])?;
    ensure!(done.status.success(), "{done:?}");
    ensure!(
        String::from_utf8_lossy(&done.stdout).contains("has 1 entries; it is revision 2"),
        "{done:?}"
    );
    let revisions = daemon.json(&format!("{PROBE}/revisions"));
    assert_eq!(revisions["revisions"][1]["message"], "another one");
    let wrong = daemon.client(&["entries", "p", "counts", "-f", path])?;
    ensure!(!wrong.status.success(), "{wrong:?}");
    Ok(())
}
