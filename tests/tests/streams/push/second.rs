//! Remote write 2.0 into the handler and the database of Prometheus, which Go builds: `make
//! test-streams`.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tempfile::TempDir;
use twinprobe_tests::scaled;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use super::server::{Server, ask, send_all};
use crate::scene::{COLLECTOR, Node, configuration, free_port, kill_in_turn, tool};

/// A receiver that reads 2.0 only.
struct Receiver {
    server: Server,
    base: String,
    _directory: TempDir,
}

impl Receiver {
    fn new() -> Result<Self> {
        let (directory, port) = (tempfile::tempdir()?, free_port()?);
        let arguments = [
            format!("127.0.0.1:{port}"),
            directory.path().join("data").display().to_string(),
        ];
        let server = Server::start(
            &tool("bin/prometheus-2")?,
            arguments.into(),
            port,
            directory.path(),
        )?;
        Ok(Self {
            server,
            base: format!("http://127.0.0.1:{port}"),
            _directory: directory,
        })
    }

    fn ask(&self, query: &str) -> Result<f64> {
        ask(&self.base, query, &[])
    }

    /// The value of a counter of the handler.
    fn counter(&self, name: &str) -> Result<f64> {
        let output = Command::new("curl")
            .args(["-sSf", &format!("{}/metrics", self.base)])
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .context(text.clone())?;
        Ok(line.trim().parse()?)
    }
}

/// Stream, receiver and daemon are killed at any moment. Each window is one sample, and the sums
/// are the sent packets. Each series has its metadata.
#[test]
fn series_of_version_2_have_each_packet_once() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (mut receiver, mut node) = (Receiver::new()?, Node::new("gw-1.example")?);
    node.deploy(&json!({ "interval": "50ms", "retain": 10_000, "collectors": [COLLECTOR] }));
    let traffic = node.traffic()?;
    let to = json!([{ "prometheus": { "url": format!("{}/api/v1/write", receiver.base) } }]);
    let config = configuration(directory.path(), &[&node], &to, &json!({}))?;
    let mut restart = || {
        receiver.server.kill()?;
        receiver.server.again()
    };
    kill_in_turn(&mut node, &config, scaled(9, 300), Some(&mut restart))?;
    let sent = traffic.stop()?;
    node.daemon()
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
    let told = send_all(&config)?;
    ensure!(
        !told.contains("refuses") && !told.contains("1.0 only"),
        "{told}"
    );
    let counted = receiver.ask("sum(sum_over_time(packets{node=\"gw-1.example\"}[1h]))")? as u64;
    ensure!(counted == sent, "{sent} were sent, {counted} are there");
    let of_windows = "{node=\"gw-1.example\",probe=\"p\"}[1h])";
    let [samples, last] = ["count", "max"].map(|what| {
        receiver.ask(&format!(
            "{what}_over_time(twinprobe_window_seq{of_windows}"
        ))
    });
    let (samples, last) = (samples? as u64, last? as u64);
    ensure!(
        samples == last && last > 9,
        "{samples} samples, the last is of window {last}"
    );
    let unnamed =
        receiver.counter("prometheus_api_remote_write_without_metadata_appended_samples_total")?;
    ensure!(
        unnamed < 0.5,
        "{unnamed} samples of families without a type"
    );
    Ok(())
}

/// If the receiver has later samples of a window, the window is also a repeat in 2.0.
#[test]
fn repeats_of_version_2_are_known() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (receiver, node) = (Receiver::new()?, Node::new("node-0")?);
    node.deploy(&json!({ "collectors": [COLLECTOR, "second"] }));
    for _ in 0..5 {
        node.daemon()
            .request("POST", "/v1/probes/p/windows", &[], b"")
            .expect(201);
    }
    let to = json!([{ "prometheus": { "url": format!("{}/api/v1/write", receiver.base), "maxBytes": 4096 } }]);
    send_all(&configuration(directory.path(), &[&node], &to, &json!({}))?)?;
    let told = send_all(&configuration(
        directory.path(),
        &[&node],
        &to,
        &json!({ "name": "second" }),
    )?)?;
    ensure!(
        told.contains("4 there already") && !told.contains("refuses"),
        "{told}"
    );
    wait_for("all windows", PATIENCE, || {
        let windows = receiver.ask("sum(count_over_time(twinprobe_window_seq[1h]))")?;
        ensure!(windows as u64 == 5, "{windows}");
        Ok(())
    })
}
