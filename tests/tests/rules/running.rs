//! Rules at work.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use anyhow::{Result, ensure};
use serde_json::json;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

use crate::scene::{Receiver, close, counter, deploys, generator, rule, wait_for_rule};

/// A rule judges each window, also those that a fast collector has acknowledged while the rule was
/// busy or its daemon dead.
#[test]
fn collectors_take_no_window_from_a_rule() -> Result<()> {
    let topology = Topology::new()?;
    topology.monitor().run("ip", &["link", "set", "lo", "up"])?;
    let receiver = topology
        .monitor()
        .enter(|| TcpListener::bind("127.0.0.1:0"))??;
    let daemon = Daemon::start(topology.monitor())?;
    let mut config = counter();
    config["window"] = json!({ "collectors": ["c"] });
    daemon.put("/v1/probes/p", &config).expect(201);
    let url = format!("http://{}/", receiver.local_addr()?);
    daemon
        .put("/v1/rules/many", &rule(&json!([{ "notify": url }])))
        .expect(201);
    let mut generator = generator(&topology)?;
    generator.send(10)?;
    close(&daemon);
    let (_unanswered, _) = receiver.accept()?;
    for _ in 0..3 {
        close(&daemon);
    }
    daemon
        .delete("/v1/probes/p/windows/4?collector=c")
        .expect(204);
    let listed = daemon.json("/v1/probes/p/windows?after=0");
    ensure!(
        listed["windows"] == json!([]) && listed["lost_windows"] == 0,
        "{listed}"
    );
    let directories = daemon.kill()?;
    let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    ensure!(
        daemon.json("/v1/probes/p/windows?after=0")["windows"] == json!([]),
        "no window comes back"
    );
    close(&daemon);
    daemon
        .delete("/v1/probes/p/windows/5?collector=c")
        .expect(204);
    let (mut again, _) = receiver.accept()?;
    ensure!(
        again.read(&mut [0; 4096])? > 0,
        "the notification comes again"
    );
    again.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")?;
    let status = wait_for_rule(&daemon, "many", |status| {
        status["window"] == 5 && status["firings"][0]["ended"].is_string()
    })?;
    ensure!(
        status["missed"] == 0 && status["state"] == "watching",
        "{status}"
    );
    let firing = &status["firings"][0];
    ensure!(
        firing["window"] == 1 && firing["ended"].is_string(),
        "{status}"
    );
    daemon.delete("/v1/rules/many").expect(204);
    ensure!(
        daemon.json("/v1/probes/p")["windows"]["lost"] == 0,
        "the collector has all"
    );
    Ok(())
}

/// The rule deploys a fine probe on the interface of the coarse one while the coarse one sees many
/// packets. The audit log names the rule as the author.
#[test]
fn a_probe_comes_and_goes_with_what_is_measured() -> Result<()> {
    let topology = Topology::new()?;
    let audit = tempfile::tempdir()?;
    let log = audit.path().join("audit");
    let options = DaemonOptions::default()
        .argument("--audit-log")
        .argument(log.as_os_str());
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let receiver = Receiver::new(&topology)?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    let actions = json!([deploys("fine"), { "mark": "{{sum(ingress.packets)}} packets" }, { "notify": receiver.url() }]);
    daemon.put("/v1/rules/many", &rule(&actions)).expect(201);
    daemon.put("/v1/rules/many", &rule(&actions)).expect(200);
    let mut generator = generator(&topology)?;
    close(&daemon);
    generator.send(10)?;
    close(&daemon);
    let status = wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["done"].is_string()
    })?;
    ensure!(
        status["state"] == "firing" && status["revision"] == 1,
        "{status}"
    );
    ensure!(
        status["firings"][0]["window"] == 2 && status["probes"] == json!(["fine"]),
        "{status}"
    );
    ensure!(
        status["firings"][0]["do"][1]["mark"] == "10 packets",
        "{status}"
    );
    let fine = daemon.json("/v1/probes/fine");
    ensure!(
        fine["pushed_by"] == "rule:many" && fine["interfaces"][0]["interface"] == "mon0",
        "{fine}"
    );
    ensure!(
        receiver.identities.lock().expect("no panic").len() == 1,
        "one notification"
    );
    generator.send(7)?;
    let document = daemon
        .request("POST", "/v1/probes/fine/windows", &[], b"")
        .expect(201)
        .json();
    ensure!(
        document["ingress"]["packets"]["entries"][0]["value"] == 7,
        "{document}"
    );
    close(&daemon);
    close(&daemon);
    let status = wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["ended"].is_string()
    })?;
    ensure!(
        status["state"] == "watching" && status["window"] == 4 && status["missed"] == 0,
        "{status}"
    );
    daemon.get("/v1/probes/fine").expect(404);
    let audited = std::fs::read_to_string(&log)?;
    for wanted in [
        "PUT /v1/probes/fine",
        "DELETE /v1/probes/fine",
        "MARK /v1/rules/many",
    ] {
        let lines = audited
            .lines()
            .filter(|line| line.contains(wanted) && line.contains("rule:many"));
        ensure!(lines.count() == 1, "{wanted}: {audited}");
    }
    // A probe that a rule has made ends with the rule.
    generator.send(10)?;
    close(&daemon);
    wait_for_rule(&daemon, "many", |status| {
        status["firings"][1]["done"].is_string()
    })?;
    daemon.get("/v1/probes/fine").expect(200);
    daemon.delete("/v1/rules/many").expect(204);
    daemon.get("/v1/rules/many").expect(404);
    daemon.get("/v1/probes/fine").expect(404);
    Ok(())
}

/// No window of a removed probe can end the actions of a firing.
#[test]
fn actions_end_when_the_watched_probe_is_removed() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    daemon
        .put("/v1/rules/many", &rule(&json!([deploys("fine")])))
        .expect(201);
    let mut generator = generator(&topology)?;
    generator.send(10)?;
    close(&daemon);
    wait_for_rule(&daemon, "many", |status| {
        status["probes"] == json!(["fine"])
    })?;
    // A person may delete a probe that a rule has made.
    daemon.delete("/v1/probes/fine").expect(204);
    let status = daemon.json("/v1/rules/many");
    ensure!(
        status["state"] == "firing" && status["probes"] == json!([]),
        "{status}"
    );
    daemon.delete("/v1/probes/p").expect(204);
    let status = wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["ended"].is_string()
    })?;
    ensure!(status["state"] == "waiting", "{status}");
    ensure!(
        status["last_error"]
            .as_str()
            .is_some_and(|error| error.contains("probe p was removed")),
        "{status}"
    );
    daemon.put("/v1/probes/p", &counter()).expect(201);
    wait_for_rule(&daemon, "many", |status| status["state"] == "watching")?;
    generator.send(10)?;
    close(&daemon);
    wait_for_rule(&daemon, "many", |status| {
        status["probes"] == json!(["fine"])
    })?;
    Ok(())
}

/// The programs of a rule's probe are compiled before the rule fires. They stay on disk as long as
/// the rule is there.
#[test]
fn a_probe_is_ready_before_the_rule_fires() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let directory = daemon.directories().state().join("objects");
    let objects = || anyhow::Ok(std::fs::read_dir(&directory)?.count());
    let compiled = || {
        let page = daemon.get("/metrics").expect(200).text().to_owned();
        let lines = page
            .lines()
            .filter(|line| line.starts_with("twinprobe_compilation_seconds_count"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    daemon.put("/v1/probes/p", &counter()).expect(201);
    let before = objects()?;
    let apply = json!({ "name": "fine", "probe": "packet-counter", "expires": "10m",
        "defines": { "TWINPROBE_SINGLE_BUFFER": "1" } });
    daemon
        .put("/v1/rules/many", &rule(&json!([{ "apply": apply }])))
        .expect(201);
    wait_for("the programs of the probe", PATIENCE, || {
        ensure!(objects()? > before, "{} objects", objects()?);
        Ok(())
    })?;
    let (known, ready) = (compiled(), objects()?);
    generator(&topology)?.send(10)?;
    close(&daemon);
    wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["done"].is_string()
    })?;
    ensure!(compiled() == known, "{known:?}, then {:?}", compiled());
    close(&daemon);
    wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["ended"].is_string()
    })?;
    daemon.get("/v1/probes/fine").expect(404);
    ensure!(objects()? == ready, "the programs stay for the next firing");
    daemon.delete("/v1/rules/many").expect(204);
    daemon.delete("/v1/probes/p").expect(204);
    ensure!(objects()? == 0, "{} objects are left", objects()?);
    Ok(())
}

/// A receiver that never answers keeps its own rule waiting, and nothing else. A rule that fails
/// stops and says why.
#[test]
fn a_rule_that_fails_harms_no_other() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    topology.monitor().run("ip", &["link", "set", "lo", "up"])?;
    let silent = topology
        .monitor()
        .enter(|| TcpListener::bind("127.0.0.1:0"))??;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    let url = format!("http://{}/secret-path", silent.local_addr()?);
    daemon
        .put("/v1/rules/hangs", &rule(&json!([{ "notify": url }])))
        .expect(201);
    let mut broken = deploys("broken");
    broken["apply"]["config"]["ingress"]["source"] = json!("int x(void) { return y; }");
    daemon
        .put(
            "/v1/rules/breaks",
            &rule(&json!([deploys("first"), broken])),
        )
        .expect(201);
    daemon
        .put("/v1/rules/works", &rule(&json!([deploys("fine")])))
        .expect(201);
    generator(&topology)?.send(10)?;
    close(&daemon);
    wait_for_rule(&daemon, "works", |status| {
        status["firings"][0]["done"].is_string()
    })?;
    let status = wait_for_rule(&daemon, "breaks", |status| {
        status["state"] == "stopped" && status["firings"][0]["ended"].is_string()
    })?;
    let reason = status["reason"].as_str().unwrap_or_default();
    ensure!(
        reason.starts_with("do[1] of window 1: ") && reason.contains('y'),
        "{status}"
    );
    // The probe that the rule had deployed is removed.
    daemon.get("/v1/probes/first").expect(404);
    ensure!(status["probes"] == json!([]), "{status}");
    let page = daemon.get("/metrics").expect(200);
    ensure!(
        page.text()
            .contains("twinprobe_rule_stopped{rule=\"breaks\"} 1"),
        "{}",
        page.text()
    );
    ensure!(!daemon.log().contains("secret-path"), "{}", daemon.log());
    // The rule that waits for its receiver can be deleted at once.
    daemon.delete("/v1/rules/hangs").expect(204);
    // A PUT starts a rule again.
    daemon
        .put("/v1/rules/breaks", &rule(&json!([{ "mark": "many" }])))
        .expect(200);
    close(&daemon);
    wait_for_rule(&daemon, "breaks", |status| {
        status["state"] == "watching" && status["window"] == 2
    })?;
    wait_for("the end of fine", PATIENCE, || {
        ensure!(daemon.get("/v1/probes/fine").status == 404, "it is there");
        Ok(())
    })
}

/// A rule that would take too many actions stops. Windows that were acknowledged first are counted.
#[test]
fn limits_stop_a_rule() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start_with(topology.monitor(), &DaemonOptions::default())?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    let mut often = rule(&json!([{ "mark": "many" }]));
    often["max_actions_per_hour"] = json!(2);
    daemon.put("/v1/rules/often", &often).expect(201);
    let mut generator = generator(&topology)?;
    for _ in 0..3 {
        generator.send(10)?;
        close(&daemon);
        close(&daemon);
    }
    let status = wait_for_rule(&daemon, "often", |status| status["state"] == "stopped")?;
    ensure!(
        status["firings"]
            .as_array()
            .is_some_and(|firings| firings.len() == 2),
        "{status}"
    );
    ensure!(status["actions_left"] == 0, "{status}");
    Ok(())
}
