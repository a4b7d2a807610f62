//! Kafka: the real broker, read by kcat.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::cable::{Cable, CableEnd};
use twinprobe_tests::scaled;
use twinprobe_tests::servers::kafka::KafkaBroker;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::{COLLECTOR, Node, Stream, configuration, kill_in_turn, stream};

/// A receiver that connects over TLS, with these fields besides.
fn receiver(broker: &KafkaBroker, more: &Value) -> Value {
    let mut options = json!({
        "brokers": [format!("{}:{}", broker.address, broker.ports[1])], "topic": "windows", "tls": "require", "ca": broker.path("authority"),
        "cert": broker.path("client"), "key": broker.path("client"),
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        options[name] = value.clone();
    }
    json!([{ "kafka": options }])
}

fn packets(message: &Value) -> Result<u64> {
    let document: Value = serde_json::from_str(message["payload"].as_str().context("a document")?)?;
    let entries = document["ingress"]["packets"]["entries"]
        .as_array()
        .context("entries")?
        .clone();
    let value = |value: &Value| match value {
        Value::Array(cpus) => cpus.iter().filter_map(Value::as_u64).sum(),
        value => value.as_u64().unwrap_or_default(),
    };
    Ok(entries.iter().map(|entry| value(&entry["value"])).sum())
}

/// The header of a message: kcat lists names and values in turn.
fn header<'a>(message: &'a Value, name: &str) -> Option<&'a str> {
    let headers = message["headers"].as_array()?;
    headers
        .chunks(2)
        .find(|pair| pair[0] == name)?
        .get(1)?
        .as_str()
}

fn send_all(config: &Path) -> Result<()> {
    let output = stream(&["-f", &config.display().to_string(), "--once"])?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Stream, broker and daemon are killed at any moment, and the network between stream and broker is
/// cut. A reader of committed records sees each window and each packet once, in order.
#[test]
fn a_topic_has_each_packet_once_whatever_is_killed_or_cut() -> Result<()> {
    let (directory, cable) = (tempfile::tempdir()?, Cable::alone()?);
    let mut broker = cable.far().enter(|| KafkaBroker::at(&cable.address()))??;
    let mut node = Node::new("gw/1.example")?;
    node.deploy(&json!({ "interval": "50ms", "retain": 10_000, "collectors": [COLLECTOR] }));
    let traffic = node.traffic()?;
    let config = configuration(
        directory.path(),
        &[&node],
        &receiver(&broker, &json!({})),
        &json!({}),
    )?;
    cable.near().enter(|| {
        let mut strikes = 0;
        let mut strike = || {
            strikes += 1;
            if strikes % 2 == 1 {
                return cut(&cable, strikes);
            }
            broker.kill()?;
            cable.far().enter(|| broker.start())?
        };
        kill_in_turn(&mut node, &config, scaled(6, 600), Some(&mut strike))
    })??;
    let sent = traffic.stop()?;
    node.daemon()
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
    cable.near().enter(|| send_all(&config))??;
    let messages = cable.far().enter(|| broker.messages("windows"))??;
    for (index, message) in messages.iter().enumerate() {
        let seq = (index + 1).to_string();
        let is_next =
            header(message, "Twinprobe-Seq") == Some(&seq) && message["key"] == "gw%2F1.example/p";
        let is_named = header(message, "Twinprobe-Node") == Some("gw/1.example")
            && header(message, "Twinprobe-Probe") == Some("p");
        ensure!(is_next && is_named, "{message} is message {seq}");
    }
    let counted: u64 = messages.iter().map(packets).sum::<Result<u64>>()?;
    ensure!(
        counted == sent,
        "{sent} were sent, {counted} are in {} messages",
        messages.len()
    );
    Ok(())
}

/// Cuts a cable at one end for a moment. A full run has some longer cuts, which exceed the timeouts
/// of librdkafka and of the stream.
fn cut(cable: &Cable, number: u64) -> Result<()> {
    cable.cut(if number % 4 == 1 {
        CableEnd::Near
    } else {
        CableEnd::Far
    })?;
    thread::sleep(if number % 50 == 49 {
        Duration::from_secs(65)
    } else {
        Duration::from_millis(700)
    });
    cable.mend()
}

/// A message names the windows that retention removed. Windows also arrive without transactions. A
/// window too large for a message holds up its probe.
#[test]
fn gaps_are_messages_and_large_windows_wait() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (broker, node) = (KafkaBroker::new()?, Node::new("node-0")?);
    node.deploy(&json!({ "retain": 2, "collectors": [COLLECTOR] }));
    for _ in 0..5 {
        node.daemon()
            .request("POST", "/v1/probes/p/windows", &[], b"")
            .expect(201);
    }
    let small = receiver(&broker, &json!({ "maxMessageBytes": 1_100 }));
    let held = Stream::start(&configuration(
        directory.path(),
        &[&node],
        &small,
        &json!({}),
    )?)?;
    wait_for("the reason", PATIENCE, || {
        ensure!(
            held.log().contains("more than maxMessageBytes"),
            "{}",
            held.log()
        );
        Ok(())
    })?;
    held.terminate()?;
    ensure!(node.unacknowledged() == 2);
    for more in [
        json!({}),
        json!({ "exactlyOnce": false, "topic": "plain", "compression": "lz4" }),
    ] {
        let topic = more["topic"].as_str().unwrap_or("windows").to_owned();
        send_all(&configuration(
            directory.path(),
            &[&node],
            &receiver(&broker, &more),
            &json!({}),
        )?)?;
        let messages = broker.messages(&topic)?;
        let seqs: Vec<_> = messages
            .iter()
            .filter_map(|message| header(message, "Twinprobe-Seq"))
            .collect();
        if topic == "windows" {
            ensure!(
                seqs == ["3", "4", "5"]
                    && messages[0]["payload"]
                        .as_str()
                        .is_some_and(|text| text.contains("\"gap\"")),
                "{messages:?}"
            );
            node.daemon()
                .request("POST", "/v1/probes/p/windows", &[], b"")
                .expect(201);
        } else {
            ensure!(seqs == ["6"], "{messages:?}");
        }
    }
    Ok(())
}

/// The log names the setting that an operator must change; nothing is acknowledged. A dry run
/// contacts nothing.
#[test]
fn refusals_of_the_broker_say_what_to_change() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (broker, node) = (KafkaBroker::new()?, Node::new("node-0")?);
    node.deploy(&json!({ "collectors": [COLLECTOR] }));
    node.daemon()
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
    let config = configuration(
        directory.path(),
        &[&node],
        &receiver(&broker, &json!({})),
        &json!({}),
    )?;
    let output = stream(&["-f", &config.display().to_string(), "--dry-run"])?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success() && told.contains("/windows key node-0/p"),
        "{told}"
    );
    for (more, expected) in [
        (json!({ "create": false }), "there is no topic windows"),
        (
            json!({ "ca": broker.path("other") }),
            "certificate verify failed",
        ),
        (json!({ "cert": null, "key": null }), "no answer of Kafka"),
        (json!({ "key": broker.path("none") }), "none: No such file"),
        // The topic of windows deletes old messages.
        (json!({ "exactlyOnce": false, "topic": "old" }), ""),
        (json!({ "cursorTopic": "old" }), "set it to compact"),
    ] {
        let before = node.unacknowledged();
        let config = configuration(
            directory.path(),
            &[&node],
            &receiver(&broker, &more),
            &json!({}),
        )?;
        if expected.is_empty() {
            send_all(&config)?;
            node.daemon()
                .request("POST", "/v1/probes/p/windows", &[], b"")
                .expect(201);
            continue;
        }
        let running = Stream::start(&config)?;
        wait_for("the reason", PATIENCE, || {
            let log = running.log();
            ensure!(log.contains(expected), "{more}: {log}");
            Ok(())
        })?;
        ensure!(node.unacknowledged() == before);
    }
    Ok(())
}
