//! Notifications whose receiver is down, answers slowly, or can't be reached: they block nothing,
//! and the status shows them.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

use crate::scene::{Receiver, close, counter, deploys, generator, rule, wait_for_rule};

/// Returns an address of the daemon's host at which no one listens.
fn silent_address(topology: &Topology) -> Result<SocketAddr> {
    topology.monitor().run("ip", &["link", "set", "lo", "up"])?;
    Ok(topology
        .monitor()
        .enter(|| TcpListener::bind("127.0.0.1:0"))??
        .local_addr()?)
}

fn sample(daemon: &Daemon, name: &str) -> Option<String> {
    let page = daemon.get("/metrics").expect(200);
    let line = page.text().lines().find(|line| line.starts_with(name))?;
    line.rsplit(' ').next().map(str::to_owned)
}

/// The receiver comes back after more than three seconds and a kill of the daemon. Meanwhile the
/// other actions of the rule are taken, and windows are judged.
#[test]
fn a_receiver_that_is_down_for_a_while_holds_nothing_up() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let address = silent_address(&topology)?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    let url = format!("http://me:secret-word@{address}/hook");
    daemon
        .put(
            "/v1/rules/many",
            &rule(&json!([{ "notify": url }, deploys("fine")])),
        )
        .expect(201);
    let mut generator = generator(&topology)?;
    generator.send(10)?;
    close(&daemon);
    wait_for_rule(&daemon, "many", |status| {
        status["probes"] == json!(["fine"])
    })?;
    close(&daemon);
    generator.send(10)?;
    close(&daemon);
    let status = wait_for_rule(&daemon, "many", |status| {
        // The pauses before the fifth attempt take 7.5 s.
        status["window"] == 3 && status["notifications"][0]["attempts"].as_u64() >= Some(4)
    })?;
    let waiting = &status["notifications"];
    ensure!(
        waiting.as_array().map(Vec::len) == Some(2),
        "two firings: {status}"
    );
    ensure!(
        waiting[0]["window"] == 1 && waiting[0]["error"].is_string(),
        "{status}"
    );
    ensure!(
        status["state"] == "firing" && status["missed"] == 0,
        "{status}"
    );
    ensure!(
        status["firings"][0]["done"].is_null() && status["firings"][0]["ended"].is_string(),
        "{status}"
    );
    ensure!(
        sample(
            &daemon,
            "twinprobe_rule_notifications_waiting{rule=\"many\"}"
        )
        .as_deref()
            == Some("2")
    );
    ensure!(
        daemon
            .log()
            .contains("a notification did not arrive; it is sent again"),
        "{}",
        daemon.log()
    );
    ensure!(
        status["firings"][0]["do"][0]["notify"] == format!("http://me:***@{address}/hook"),
        "{status}"
    );
    ensure!(
        status["rule"]["do"][0]["notify"] == url,
        "who may write it sees it: {status}"
    );
    let shown = daemon.client(&["rules", "get", "many"])?;
    let shown = String::from_utf8(shown.stdout)?;
    for said in [
        "notification do[0] of window 1 has not arrived after",
        "notifying",
        "actions left in this hour: 16 of 20",
    ] {
        ensure!(shown.contains(said), "{said}: {shown}");
    }
    ensure!(
        !shown.contains("secret-word") && !daemon.log().contains("secret-word"),
        "{shown}"
    );
    let daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
    let receiver = Receiver::at(&topology, address)?;
    let status = wait_for_rule(&daemon, "many", |status| status["notifications"].is_null())?;
    ensure!(
        status["firings"][0]["done"].is_string() && status["firings"][1]["done"].is_string(),
        "{status}"
    );
    let told = receiver.identities.lock().expect("no panic").clone();
    let instance = daemon.json("/v1/probes/p")["instance"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let windows: BTreeSet<_> = told
        .iter()
        .filter_map(|identity| identity.split_once(&instance))
        .collect();
    ensure!(
        windows.iter().map(|(_, rest)| *rest).eq(["/1/0", "/3/0"]),
        "{told:?}"
    );
    let message = receiver
        .messages
        .lock()
        .expect("no panic")
        .pop()
        .context("a message")?;
    ensure!(
        message
            .header("authorization")
            .is_some_and(|header| header.starts_with("Basic ")),
        "{message:?}"
    );
    Ok(())
}

/// A rule that is replaced keeps its notifications; one that is deleted does not.
#[test]
fn notifications_end_with_the_rule() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let address = silent_address(&topology)?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    let url = format!("http://{address}/hook");
    for name in ["kept", "deleted"] {
        daemon
            .put(
                &format!("/v1/rules/{name}"),
                &rule(&json!([{ "notify": url }])),
            )
            .expect(201);
    }
    generator(&topology)?.send(10)?;
    close(&daemon);
    for name in ["kept", "deleted"] {
        wait_for_rule(&daemon, name, |status| {
            status["notifications"][0]["attempts"].as_u64() >= Some(1)
        })?;
    }
    daemon
        .put("/v1/rules/kept", &rule(&json!([{ "mark": "many" }])))
        .expect(200);
    daemon.delete("/v1/rules/deleted").expect(204);
    ensure!(
        daemon.wait_for_log(
            "the deleted rule had notifications that never arrived",
            PATIENCE
        ),
        "{}",
        daemon.log()
    );
    ensure!(
        sample(
            &daemon,
            "twinprobe_rule_notifications_waiting{rule=\"deleted\"}"
        )
        .is_none()
    );
    let receiver = Receiver::at(&topology, address)?;
    wait_for_rule(&daemon, "kept", |status| status["notifications"].is_null())?;
    let told = receiver.identities.lock().expect("no panic").clone();
    ensure!(
        told.iter().all(|identity| identity.contains("/kept/")) && !told.is_empty(),
        "{told:?}"
    );
    Ok(())
}

/// A notification that can never arrive is given up, and the rule continues.
#[test]
fn what_can_not_be_sent_is_given_up_and_told() -> Result<()> {
    let topology = Topology::new()?;
    let audit = tempfile::tempdir()?;
    let log = audit.path().join("audit");
    let options = DaemonOptions::default()
        .argument("--audit-log")
        .argument(log.as_os_str());
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    let actions = json!([{ "notify": "http://me:secret-word@[hook/" }, { "mark": "many" }]);
    daemon.put("/v1/rules/many", &rule(&actions)).expect(201);
    generator(&topology)?.send(10)?;
    close(&daemon);
    let status = wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["error"].is_string()
    })?;
    let error = status["firings"][0]["error"].as_str().unwrap_or_default();
    ensure!(
        error.starts_with("do[0] of window 1: the notification is given up: "),
        "{status}"
    );
    ensure!(
        status["state"] == "firing" && status["notifications"].is_null(),
        "{status}"
    );
    ensure!(
        status["last_error"] == error && status["firings"][0]["done"].is_null(),
        "{status}"
    );
    wait_for("the counter", PATIENCE, || {
        let given_up = sample(
            &daemon,
            "twinprobe_rule_notifications_given_up_total{rule=\"many\"}",
        );
        ensure!(given_up.as_deref() == Some("1"), "{given_up:?}");
        Ok(())
    })?;
    let audited = std::fs::read_to_string(&log)?;
    ensure!(
        audited
            .lines()
            .any(|line| line.contains("GIVE UP /v1/rules/many")),
        "{audited}"
    );
    ensure!(
        audited
            .lines()
            .any(|line| line.contains("MARK /v1/rules/many")),
        "{audited}"
    );
    for text in [
        &audited,
        &daemon.log(),
        &status["firings"].to_string(),
        error,
    ] {
        ensure!(!text.contains("secret-word"), "{text}");
    }
    close(&daemon);
    wait_for_rule(&daemon, "many", |status| {
        status["state"] == "watching" && status["window"] == 2
    })?;
    Ok(())
}

/// The daemon follows no redirect, and does not read what a receiver answers.
#[test]
fn strange_answers_do_no_harm() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    topology.monitor().run("ip", &["link", "set", "lo", "up"])?;
    let bind = || {
        topology
            .monitor()
            .enter(|| TcpListener::bind("127.0.0.1:0"))
    };
    let (large, moved) = (bind()??, bind()??);
    let elsewhere = Receiver::new(&topology)?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    for (name, listener) in [("large", &large), ("moved", &moved)] {
        let url = format!("http://{}/hook", listener.local_addr()?);
        daemon
            .put(
                &format!("/v1/rules/{name}"),
                &rule(&json!([{ "notify": url }])),
            )
            .expect(201);
    }
    let answer = |listener: TcpListener, head: String, body: usize| {
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let _ = stream.read(&mut [0; 4096]);
                // The daemon may hang up in the middle.
                let sent = stream.write_all(head.as_bytes());
                let _ = sent
                    .and_then(|()| (0..body).try_for_each(|_| stream.write_all(&[b'x'; 1 << 20])));
            }
        })
    };
    answer(
        large,
        "HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n".to_owned(),
        100,
    );
    let location = elsewhere.url();
    answer(
        moved,
        format!("HTTP/1.1 307 Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"),
        0,
    );
    generator(&topology)?.send(10)?;
    let before = daemon.rss_kib();
    close(&daemon);
    wait_for_rule(&daemon, "large", |status| {
        status["firings"][0]["done"].is_string()
    })?;
    let is_told = |status: &Value| {
        let error = status["notifications"][0]["error"]
            .as_str()
            .unwrap_or_default();
        error.contains("answered a notification with 307")
    };
    wait_for_rule(&daemon, "moved", is_told)?;
    ensure!(
        elsewhere.messages.lock().expect("no panic").is_empty(),
        "the redirect was followed"
    );
    ensure!(
        daemon.rss_kib() < before + (64 << 10),
        "{before} KiB, then {} KiB",
        daemon.rss_kib()
    );
    Ok(())
}
