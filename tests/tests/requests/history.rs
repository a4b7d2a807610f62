//! The history: the changes with author, time, origin and reason, also of deleted probes.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

const PROBE: &str = "/v1/probes/p";
const HISTORY: &str = "/v1/probes/p/history";

fn config(interface: &str, more: &Value) -> Value {
    let mut config = counter_config(interface, "XDP_PASS");
    config
        .as_object_mut()
        .expect("an object")
        .extend(more.as_object().expect("an object").clone());
    config
}

/// Returns the changes of a list: kind, revision, author and reason.
fn changes(daemon: &Daemon, path: &str) -> Result<Vec<(String, u64, Value, Value)>> {
    let document = daemon.json(path);
    let list = document["history"]
        .as_array()
        .with_context(|| format!("no list in {document}"))?;
    let one = |entry: &Value| {
        let what = format!("{} {}", entry["change"].as_str()?, entry["probe"].as_str()?);
        Some((
            what,
            entry["revision"].as_u64()?,
            entry["who"].clone(),
            entry["message"].clone(),
        ))
    };
    list.iter()
        .map(|entry| one(entry).with_context(|| entry.to_string()))
        .collect()
}

fn change(what: &str, revision: u64, who: &str, why: Value) -> (String, u64, Value, Value) {
    let who = if who.is_empty() {
        Value::Null
    } else {
        json!(who)
    };
    (what.to_owned(), revision, who, why)
}

#[test]
fn each_change_is_told_and_outlives_its_probe() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    daemon.get(HISTORY).expect(404);
    daemon
        .put(
            &format!("{PROBE}?message=first"),
            &config("mon0", &json!({})),
        )
        .expect(201);
    // A request that changes nothing, or is refused, is not a change.
    daemon
        .put(
            &format!("{PROBE}?message=again"),
            &config("mon0", &json!({})),
        )
        .expect(200);
    daemon
        .put(
            &format!("{PROBE}?message=bad"),
            &config("missing", &json!({})),
        )
        .expect(422);
    daemon
        .put(PROBE, &config("mon0", &json!({ "priority": 7 })))
        .expect(200);
    daemon
        .request("POST", "/v1/probes/p/rollback", &[], b"")
        .expect(200);
    let entries = daemon.json(HISTORY)["history"]
        .as_array()
        .context("a list")?
        .clone();
    for entry in &entries {
        ensure!(
            entry["from"]["uid"] == 0 && entry["from"]["pid"].is_u64(),
            "{entry}"
        );
        ensure!(
            entry["from"]["user"] == "root" && entry["from"]["program"].is_string(),
            "{entry}"
        );
        ensure!(
            entry["time"]
                .as_str()
                .is_some_and(|time| time.ends_with('Z')),
            "{entry}"
        );
        let cost = &entry["cost_after"]["directions"]["ingress"];
        ensure!(
            cost["ns_per_packet"].is_u64() && cost["instructions"].is_u64(),
            "{entry}"
        );
    }
    ensure!(
        entries[0].get("cost_before").is_none()
            && entries[1]["cost_before"] == entries[0]["cost_after"]
    );
    daemon.delete(&format!("{PROBE}?message=done")).expect(204);
    daemon.put(PROBE, &config("mon0", &json!({}))).expect(201);
    let expected = [
        change("created p", 1, "uid:0", json!("first")),
        change("replaced p", 2, "uid:0", Value::Null),
        change("replaced p", 3, "uid:0", json!("back to revision 1")),
        change("removed p", 3, "uid:0", json!("done")),
        change("created p", 1, "uid:0", Value::Null),
    ];
    assert_eq!(changes(&daemon, HISTORY)?, expected);
    daemon = daemon.restart(libc::SIGTERM, &DaemonOptions::default())?;
    assert_eq!(changes(&daemon, HISTORY)?, expected);
    assert_eq!(changes(&daemon, "/v1/history")?, expected);
    daemon.delete(PROBE).expect(204);
    assert_eq!(changes(&daemon, HISTORY)?.len(), 6);
    daemon
        .delete(&format!("{PROBE}?message={}", "x".repeat(1025)))
        .expect(400);
    Ok(())
}

#[test]
fn the_end_of_a_lease_is_a_change_of_nobody() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon
        .put(PROBE, &config("mon0", &json!({ "expires": "1s" })))
        .expect(201);
    let found = wait_for("the end of the lease", PATIENCE, || {
        changes(&daemon, HISTORY)?
            .get(1)
            .cloned()
            .context("one change")
    })?;
    assert_eq!(found, change("expired p", 1, "", Value::Null));
    Ok(())
}

#[test]
fn changes_are_kept_as_long_as_the_option_says() -> Result<()> {
    let topology = Topology::new()?;
    let options = DaemonOptions::default()
        .argument("--keep-history")
        .argument("0s");
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    daemon.put(PROBE, &config("mon0", &json!({}))).expect(201);
    daemon.delete(PROBE).expect(204);
    assert_eq!(changes(&daemon, "/v1/history")?, []);
    daemon.get(HISTORY).expect(404);
    Ok(())
}

#[test]
fn the_audit_log_has_the_reason_and_a_file_is_an_author() -> Result<()> {
    let (topology, directory) = (Topology::new()?, tempfile::tempdir()?);
    let (log, probes) = (
        directory.path().join("audit.log"),
        directory.path().join("probes"),
    );
    fs::create_dir(&probes)?;
    let file = probes.join("one.json");
    fs::write(
        &file,
        config("mon0", &json!({ "name": "of-file" })).to_string(),
    )?;
    let options = DaemonOptions::default()
        .argument("--audit-log")
        .argument(&log);
    let options = options.argument("--probes").argument(&probes);
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    daemon
        .put(
            &format!("{PROBE}?message=why%20not"),
            &config("mon1", &json!({})),
        )
        .expect(201);
    daemon.delete(&format!("{PROBE}?message=done")).expect(204);
    let history = "/v1/probes/of-file/history";
    wait_for("the probe of the file", PATIENCE, || {
        ensure!(daemon.get(history).status == 200);
        Ok(())
    })?;
    let of_file = changes(&daemon, history)?;
    assert_eq!(
        of_file,
        [change("created of-file", 1, "file:one.json", Value::Null)]
    );
    let entry = &daemon.json(history)["history"][0];
    assert_eq!(entry["from"], json!({ "file": file }));
    let text = fs::read_to_string(&log)?;
    let lines = text
        .lines()
        .map(serde_json::from_str)
        .collect::<serde_json::Result<Vec<Value>>>()?;
    let reasons: Vec<_> = lines
        .iter()
        .filter_map(|line| Some((&line["outcome"], line["message"].as_str()?)))
        .collect();
    assert_eq!(reasons, [(&json!(201), "why not"), (&json!(204), "done")]);
    Ok(())
}
