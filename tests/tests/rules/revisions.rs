//! The revisions of a rule, and the rollback to one of them.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::{Daemon, DaemonOptions, Response, Topology};

use crate::scene::{close, counter, generator, rule, wait_for_rule};

/// The numbers, authors' reasons and texts of the documents that the daemon has kept.
fn kept(daemon: &Daemon) -> Value {
    let list = daemon.json("/v1/rules/many/revisions");
    let shown = |revision: &Value| {
        json!([
            revision["revision"],
            revision["message"],
            revision["rule"]["do"][0]["mark"],
            revision["current"]
        ])
    };
    list["revisions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(shown)
        .collect()
}

fn put(daemon: &Daemon, text: &str, message: &str) -> Response {
    daemon.put(
        &format!("/v1/rules/many?message={message}"),
        &rule(&json!([{ "mark": text }])),
    )
}

fn back(daemon: &Daemon, body: &Value) -> Response {
    daemon.post("/v1/rules/many/rollback", body)
}

#[test]
fn a_rule_goes_back_to_what_it_was() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    back(&daemon, &json!({})).expect(404);
    put(&daemon, "first", "why").expect(201);
    back(&daemon, &json!({})).expect(409);
    put(&daemon, "second", "more").expect(200);
    // A configuration that already runs makes no revision.
    put(&daemon, "second", "again").expect(200);
    let two = json!([[1, "why", "first", false], [2, "more", "second", true]]);
    ensure!(kept(&daemon) == two, "{}", kept(&daemon));

    let options = DaemonOptions::default();
    let daemon = Daemon::start_in(topology.monitor(), &options, daemon.kill()?)?;
    ensure!(kept(&daemon) == two, "{}", kept(&daemon));
    back(&daemon, &json!({ "revision": 9 })).expect(404);
    back(&daemon, &json!({ "revision": "one" })).expect(400);
    let status = back(&daemon, &json!({})).expect(200).json();
    ensure!(
        status["revision"] == 3 && status["rule"]["do"][0]["mark"] == "first",
        "{status}"
    );
    let status = back(&daemon, &json!({ "revision": 2 })).expect(200).json();
    ensure!(
        status["revision"] == 4 && status["rule"]["do"][0]["mark"] == "second",
        "{status}"
    );
    let last = kept(&daemon)[3].clone();
    ensure!(
        last == json!([4, "back to revision 2", "second", true]),
        "{last}"
    );

    // The present revision of the rule runs.
    generator(&topology)?.send(10)?;
    close(&daemon);
    let status = wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["done"].is_string()
    })?;
    ensure!(
        status["firings"][0]["do"][0]["mark"] == "second",
        "{status}"
    );
    daemon.delete("/v1/rules/many").expect(204);
    daemon.get("/v1/rules/many/revisions").expect(404);
    put(&daemon, "anew", "why").expect(201);
    ensure!(
        kept(&daemon) == json!([[1, "why", "anew", true]]),
        "{}",
        kept(&daemon)
    );
    Ok(())
}

/// A rollback to a document that would be refused today is refused, and the rule continues.
#[test]
fn a_rule_that_is_refused_today_stays_as_it_is() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    daemon.put("/v1/probes/q", &counter()).expect(201);
    let mut other = rule(&json!([{ "mark": "first" }]));
    other["watch"] = json!("q");
    daemon.put("/v1/rules/many", &other).expect(201);
    put(&daemon, "second", "why").expect(200);
    daemon.delete("/v1/probes/q").expect(204);
    let refused = back(&daemon, &json!({})).expect(422).json();
    ensure!(refused["errors"][0]["field"] == "watch", "{refused}");
    let status = daemon.json("/v1/rules/many");
    ensure!(
        status["revision"] == 2 && status["rule"]["watch"] == "p",
        "{status}"
    );
    Ok(())
}
