//! Changes by several users: conditions, and requests that change nothing.

use std::thread;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{Daemon, DaemonOptions, Response, Topology};

const PROBE: &str = "/v1/probes/p";

fn config(help: &str) -> Value {
    let mut config = counter_config("mon0", "XDP_PASS");
    config["ingress"]["metrics"][0]["help"] = json!(help);
    config
}

fn put(daemon: &Daemon, help: &str, headers: &[(&str, &str)]) -> Response {
    daemon.request("PUT", PROBE, headers, config(help).to_string().as_bytes())
}

fn tag(answer: &Response) -> String {
    answer.header("etag").expect("a tag").to_owned()
}

#[test]
fn whoever_comes_second_is_refused() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let delete = |headers: &[(&str, &str)]| daemon.request("DELETE", PROBE, headers, b"").status;
    let rollback =
        |headers: &[(&str, &str)]| daemon.request("POST", PROBE_ROLLBACK, headers, b"").status;
    let new = [("if-none-match", "*")];
    put(&daemon, "one", &[("if-match", "*")]).expect(412);
    assert_eq!(delete(&[("if-match", "*")]), 404);
    let created = put(&daemon, "one", &new).expect(201);
    let first = tag(&created);
    assert_eq!(tag(&daemon.get(PROBE)), first);
    put(&daemon, "two", &new).expect(412);
    let second = tag(&put(&daemon, "two", &[("if-match", &first)]).expect(200));
    assert!(second != first && tag(&daemon.get(PROBE)) == second);
    let before = (
        daemon.json(PROBE),
        daemon.json(&format!("{PROBE}/revisions")),
    );
    for stale in [
        &*first,
        "\"x\"",
        "",
        &format!("W/{second}"),
        &second.replace('"', ""),
    ] {
        let refused = put(&daemon, "three", &[("if-match", stale)])
            .expect(412)
            .json();
        assert!(
            refused["detail"]
                .as_str()
                .is_some_and(|detail| detail.contains(&second)),
            "{refused}"
        );
        assert_eq!(
            (
                delete(&[("if-match", stale)]),
                rollback(&[("if-match", stale)])
            ),
            (412, 412),
            "{stale}"
        );
    }
    put(&daemon, "three", &[("if-none-match", &second)]).expect(412);
    assert_eq!(
        (
            daemon.json(PROBE),
            daemon.json(&format!("{PROBE}/revisions"))
        ),
        before
    );
    assert_eq!(rollback(&[("if-match", &second)]), 200);
    let third = tag(&daemon.get(PROBE));
    // A restart changes no tag.
    let daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
    assert_eq!(tag(&daemon.get(PROBE)), third);
    let delete = |headers: &[(&str, &str)]| daemon.request("DELETE", PROBE, headers, b"").status;
    assert_eq!(
        (
            delete(&[("if-match", &second)]),
            delete(&[("if-match", &format!("\"x\", {third}"))])
        ),
        (412, 204)
    );
    // A probe that is deleted and created again counts as another probe, although its revision has
    // the same number.
    put(&daemon, "one", &[]).expect(201);
    put(&daemon, "two", &[("if-match", &first)]).expect(412);
    assert_eq!(daemon.json(PROBE)["revision"], 1);
    Ok(())
}

const PROBE_ROLLBACK: &str = "/v1/probes/p/rollback";

/// The first of several clients with the same condition succeeds, and the others fail.
#[test]
fn one_of_many_is_first() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for condition in ["if-none-match", "if-match"] {
        let value = if condition == "if-match" {
            tag(&daemon.get(PROBE))
        } else {
            "*".to_owned()
        };
        let statuses: Vec<u16> = thread::scope(|scope| {
            let ask = |client: usize| {
                let (daemon, value) = (&daemon, &value);
                // Each client sends a new configuration: a request with the running one would
                // change nothing.
                scope.spawn(move || {
                    put(
                        daemon,
                        &format!("{condition} {client}"),
                        &[(condition, value)],
                    )
                    .status
                })
            };
            let clients: Vec<_> = (0..6).map(ask).collect();
            clients
                .into_iter()
                .map(|client| client.join().expect("no panic"))
                .collect()
        });
        let first = statuses
            .iter()
            .filter(|status| [200, 201].contains(status))
            .count();
        let others = statuses.iter().filter(|status| **status == 412).count();
        assert_eq!((first, others), (1, 5), "{statuses:?}");
    }
    assert_eq!(daemon.json(PROBE)["revision"], 2);
    Ok(())
}

/// A PUT of the running configuration makes no revision, compiles nothing, and leaves the maps
/// alone.
#[test]
fn what_runs_already_goes_on() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let original = config("one");
    let created = daemon.put(PROBE, &original).expect(201);
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(7)?;
    let compiled = || {
        let page = daemon.get("/metrics").expect(200).text().to_owned();
        page.lines()
            .find(|line| line.starts_with("twinprobe_compilation_seconds_count"))
            .map(str::to_owned)
    };
    let before = compiled().context("a count")?;
    let mut same = original.clone();
    same["name"] = json!("p");
    same["interfaces"] = json!([same["interface"].take()]);
    same.as_object_mut()
        .context("an object")?
        .remove("interface");
    same["ingress"]["verdict"] = json!("observe");
    same["ingress"]["hook"] = json!("xdp");
    same["format"] = json!("json");
    for again in [&original, &same] {
        let answer = daemon.put(PROBE, again).expect(200);
        assert_eq!(
            (tag(&answer), &answer.json()["revision"]),
            (tag(&created), &json!(1))
        );
    }
    assert_eq!(compiled().context("a count")?, before);
    assert_eq!(
        daemon.json("/v1/probes/p/revisions")["revisions"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    assert_eq!(
        total(&daemon.json("/v1/probes/p/metrics"), "ingress", "packets"),
        7
    );
    // The smallest difference is one.
    let mut other = original.clone();
    other["ingress"]["source"] = json!(format!(
        "{}\n",
        original["ingress"]["source"].as_str().context("a source")?
    ));
    assert_eq!(daemon.put(PROBE, &other).expect(200).json()["revision"], 2);
    // A rollback to the same content still makes a revision, so that it can be undone.
    daemon.put(PROBE, &original).expect(200);
    let back = daemon
        .post(PROBE_ROLLBACK, &json!({ "revision": 1 }))
        .expect(200)
        .json();
    assert_eq!(back["revision"], 4);
    Ok(())
}
