//! Notifications are signed, with keys that can be exchanged while the daemon runs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::{Daemon, DaemonOptions, Topology, webhook};

use crate::scene::{ReceivedMessage, Receiver, close, counter, generator, rule, wait_for_rule};

const FIRST: &str = "a first key of 32 bytes, in ASCII";
const SECOND: &str = "a second key, which is a bit longer";

/// Checks the signatures as a receiver does that knows this key.
fn is_signed(message: &ReceivedMessage, key: &str) -> Result<bool> {
    webhook::is_signed(
        |name| message.header(name).map(str::to_owned),
        &message.body,
        key,
    )
}

#[test]
fn a_receiver_can_check_who_has_sent_a_notification() -> Result<()> {
    let topology = Topology::new()?;
    let folder = tempfile::tempdir()?;
    let keys = folder.path().join("keys");
    fs::write(&keys, webhook::key_line(FIRST))?;
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o600))?;
    let options = DaemonOptions::default()
        .argument("--notification-keys")
        .argument(keys.as_os_str());
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let receiver = Receiver::new(&topology)?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    daemon
        .put(
            "/v1/rules/many",
            &rule(&json!([{ "notify": receiver.url() }])),
        )
        .expect(201);
    let mut generator = generator(&topology)?;
    let mut fire = |index: usize| -> Result<ReceivedMessage> {
        generator.send(10)?;
        close(&daemon);
        wait_for_rule(&daemon, "many", |status| {
            status["firings"][index]["done"].is_string()
        })?;
        close(&daemon);
        wait_for_rule(&daemon, "many", |status| {
            status["firings"][index]["ended"].is_string()
        })?;
        receiver
            .messages
            .lock()
            .expect("no panic")
            .pop()
            .context("a message")
    };
    let message = fire(0)?;
    ensure!(
        is_signed(&message, FIRST)? && !is_signed(&message, SECOND)?,
        "{message:?}"
    );
    let body: Value = serde_json::from_slice(&message.body)?;
    ensure!(
        body["identity"].as_str() == message.header("idempotency-key"),
        "{message:?}"
    );
    let mut changed = message;
    changed.body.push(b' ');
    ensure!(
        !is_signed(&changed, FIRST)?,
        "another body has another signature"
    );
    // While the receiver changes its key, there are two keys.
    fs::write(&keys, webhook::key_line(SECOND) + &webhook::key_line(FIRST))?;
    let message = fire(1)?;
    ensure!(
        is_signed(&message, FIRST)? && is_signed(&message, SECOND)?,
        "{message:?}"
    );
    // Without a key that can be read nothing is sent.
    fs::write(&keys, "whsec_none")?;
    generator.send(10)?;
    close(&daemon);
    let has_error = |status: &Value| status["notifications"][0]["error"].is_string();
    let status = wait_for_rule(&daemon, "many", has_error)?;
    let reason = status["notifications"][0]["error"]
        .as_str()
        .unwrap_or_default();
    ensure!(
        reason.contains("--notification-keys") && reason.contains("line 1"),
        "{status}"
    );
    ensure!(
        receiver.messages.lock().expect("no panic").is_empty(),
        "a message without a signature"
    );
    // The message comes once the file is mended.
    fs::write(&keys, webhook::key_line(SECOND))?;
    wait_for_rule(&daemon, "many", |status| {
        status["firings"][2]["done"].is_string()
    })?;
    let message = receiver
        .messages
        .lock()
        .expect("no panic")
        .pop()
        .context("a message")?;
    ensure!(is_signed(&message, SECOND)?, "{message:?}");
    for key in [FIRST, SECOND] {
        let line = webhook::key_line(key);
        let secret = line.trim_start_matches("whsec_").trim_end();
        ensure!(!daemon.log().contains(secret), "a key is in the log");
    }
    Ok(())
}

/// A daemon without keys sends the same messages as earlier versions, with the headers that
/// identify messages.
#[test]
fn without_keys_there_is_no_signature() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let receiver = Receiver::new(&topology)?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    daemon
        .put(
            "/v1/rules/many",
            &rule(&json!([{ "notify": receiver.url() }])),
        )
        .expect(201);
    generator(&topology)?.send(10)?;
    close(&daemon);
    wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["done"].is_string()
    })?;
    let message = receiver
        .messages
        .lock()
        .expect("no panic")
        .pop()
        .context("a message")?;
    ensure!(
        message.header("webhook-id").is_some() && message.header("webhook-signature").is_none(),
        "{message:?}"
    );
    Ok(())
}
