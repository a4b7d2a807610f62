//! Samples that Prometheus refuses for good: they are counted and reported, and later samples
//! arrive.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use serde_json::json;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use super::prometheus::Prometheus;
use crate::scene::{COLLECTOR, Node, Stream, configuration};

/// Returns a field of a message of protobuf with bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}

/// Writes a sample of another series, this many hours in the future.
fn write(prometheus: &Prometheus, hours: u64) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as u64;
    let label = [field(1, b"__name__"), field(2, b"ahead")].concat();
    let (mut time, mut left) = (vec![2 << 3], now + hours * 3_600_000);
    while left > 0 {
        time.push((left & 0x7f) as u8 | if left > 0x7f { 0x80 } else { 0 });
        left >>= 7;
    }
    let series = [field(1, &label), field(2, &time)].concat();
    let message = field(1, &series);
    // One literal is already a message of snappy.
    let literal = [
        &[message.len() as u8, 60 << 2, message.len() as u8 - 1],
        &message[..],
    ]
    .concat();
    let file = prometheus.path("message");
    std::fs::write(&file, literal)?;
    let url = prometheus.receiver(&json!({}))[0]["prometheus"]["url"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let mut command = Command::new("curl");
    command.args([
        "-sS",
        "--fail-with-body",
        "--data-binary",
        &format!("@{}", file.display()),
    ]);
    command.args([
        "-H",
        "Content-Encoding: snappy",
        "-H",
        "Content-Type: application/x-protobuf",
    ]);
    let output = command.args(prometheus.credentials()).arg(url).output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    Ok(())
}

/// Prometheus refuses samples that are much older than its newest one. Such windows are reported
/// and counted, and block no others.
#[test]
fn refused_samples_are_told_and_hold_nothing_up() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (prometheus, node) = (Prometheus::new()?, Node::new("node-0")?);
    node.deploy(&json!({ "collectors": [COLLECTOR] }));
    write(&prometheus, 3)?;
    for _ in 0..3 {
        node.daemon()
            .request("POST", "/v1/probes/p/windows", &[], b"")
            .expect(201);
    }
    let to = prometheus.receiver(&json!({}));
    let config = configuration(
        directory.path(),
        &[&node],
        &to,
        &json!({ "listen": "127.0.0.1:0" }),
    )?;
    let running = Stream::start(&config)?;
    wait_for("the windows", PATIENCE, || {
        ensure!(node.unacknowledged() == 0, "{}", running.log());
        Ok(())
    })?;
    let log = running.log();
    ensure!(
        log.contains("/p/1") && log.contains("out of bounds") && log.contains("is_whole=true"),
        "{log}"
    );
    let sample = |name: &str| {
        running.sample(&format!(
            "twinprobe_stream_{name}{{receiver=\"prometheus\"}}"
        ))
    };
    ensure!(sample("refused_windows_total")? as u64 == 3 && sample("windows_total")? as u64 == 0);
    let samples = sample("refused_samples_total")? as u64;
    ensure!(
        samples >= 3 * 4 && sample("receiver_up")? as u64 == 1,
        "{samples}"
    );
    running.terminate()
}
