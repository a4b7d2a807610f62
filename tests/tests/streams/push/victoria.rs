//! Remote write into VictoriaMetrics.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use twinprobe_tests::sample::{window, xdp_counter};
use twinprobe_tests::scaled;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use super::server::{Server, ask, send_all};
use crate::scene::{COLLECTOR, Node, Stream, configuration, free_port, kill_in_turn};

/// A server that takes remote writes without a password.
struct Victoria {
    server: Server,
    base: String,
    directory: TempDir,
}

impl Victoria {
    fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let port = free_port()?;
        let arguments = [
            format!(
                "-storageDataPath={}",
                directory.path().join("data").display()
            ),
            format!("-httpListenAddr=127.0.0.1:{port}"),
            // Samples of one time are one sample.
            "-dedup.minScrapeInterval=1ms".to_owned(),
            "-search.latencyOffset=1ms".to_owned(),
            "-search.disableCache".to_owned(),
        ];
        let program = Path::new("/usr/bin/victoria-metrics");
        let server = Server::start(program, arguments.into(), port, directory.path())?;
        Ok(Self {
            server,
            base: format!("http://127.0.0.1:{port}"),
            directory,
        })
    }

    fn receiver(&self) -> Value {
        json!([{ "prometheus": { "url": format!("{}/api/v1/write", self.base) } }])
    }

    /// Waits until the answer to a query is this number: the last writes show up after a while.
    fn wait_for(&self, query: &str, expected: u64) -> Result<()> {
        wait_for("all samples", PATIENCE, || {
            let found = ask(&self.base, query, &[])? as u64;
            ensure!(found == expected, "{query} is {found}, not {expected}");
            Ok(())
        })
    }
}

/// Stream and daemon are killed at any moment. VictoriaMetrics is stopped properly, because it
/// answers before its data is on disk.
#[test]
fn victoria_has_each_packet_once() -> Result<()> {
    let mut victoria = Victoria::new()?;
    let mut node = Node::new("gw-1.example")?;
    node.deploy(&json!({ "interval": "50ms", "retain": 10_000, "collectors": [COLLECTOR] }));
    let traffic = node.traffic()?;
    let config = configuration(
        victoria.directory.path(),
        &[&node],
        &victoria.receiver(),
        &json!({}),
    )?;
    let mut restart = || {
        victoria.server.terminate()?;
        victoria.server.again()
    };
    kill_in_turn(&mut node, &config, scaled(6, 150), Some(&mut restart))?;
    let sent = traffic.stop()?;
    node.daemon()
        .request("POST", "/v1/probes/p/windows", &[], b"")
        .expect(201);
    send_all(&config)?;
    victoria.wait_for(
        "sum(sum_over_time(packets{node=\"gw-1.example\"}[1h]))",
        sent,
    )
}

/// A window of very many series costs the stream little more than its document.
#[test]
fn a_window_of_many_series_needs_little_memory() -> Result<()> {
    const ENTRIES: u64 = 200_000;
    /// The most memory for a byte of the document: the document, the buffers while it arrives, and
    /// a round of points.
    const TIMES: u64 = 5;
    let (victoria, node) = (Victoria::new()?, Node::new("node-0")?);
    let source =
        xdp_counter("XDP_PASS").replace("max_entries, 1", &format!("max_entries, {ENTRIES}"));
    let mut metric = window("packets", "packets");
    metric["max_series"] = json!(ENTRIES);
    let ingress = json!({ "source": source, "metrics": [metric] });
    let kept = json!({ "retain": 10, "collectors": [COLLECTOR] });
    node.daemon()
        .put(
            "/v1/probes/p",
            &json!({ "interface": "mon0", "ingress": ingress, "window": kept }),
        )
        .expect(201);
    let config = configuration(
        victoria.directory.path(),
        &[&node],
        &victoria.receiver(),
        &json!({ "listen": "127.0.0.1:0" }),
    )?;
    Stream::start(&config)?.sends_in_little_memory(&node, TIMES, || {
        node.daemon()
            .request("POST", "/v1/probes/p/windows", &[], b"")
            .expect(201);
        let path = "/v1/probes/p/windows/1?format=openmetrics";
        Ok(node
            .daemon()
            .request("GET", path, &[], b"")
            .expect(200)
            .text()
            .len() as u64)
    })?;
    victoria.wait_for(
        "sum(count_over_time(packets{node=\"node-0\"}[1h]))",
        ENTRIES,
    )
}
