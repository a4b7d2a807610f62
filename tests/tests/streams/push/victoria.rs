//! Remote write into VictoriaMetrics.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::json;
use twinprobe_tests::scaled;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use super::server::{Server, ask, send_all};
use crate::scene::{COLLECTOR, Node, configuration, free_port, kill_in_turn};

/// Stream and daemon are killed at any moment, VictoriaMetrics ends in order: it answers before its data is on disk.
#[test]
fn victoria_has_each_packet_once() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let port = free_port()?;
    let arguments = [
        format!("-storageDataPath={}", directory.path().join("data").display()),
        format!("-httpListenAddr=127.0.0.1:{port}"),
        // Samples of one time are one sample.
        "-dedup.minScrapeInterval=1ms".to_owned(),
        "-search.latencyOffset=1ms".to_owned(),
        "-search.disableCache".to_owned(),
    ];
    let program = Path::new("/usr/bin/victoria-metrics");
    let mut server = Server::start(program, arguments.into(), port, directory.path())?;
    let mut node = Node::new("gw-1.example")?;
    node.deploy(&json!({ "interval": "50ms", "retain": 10_000, "collectors": [COLLECTOR] }));
    let traffic = node.traffic()?;
    let base = format!("http://127.0.0.1:{port}");
    let to = json!([{ "prometheus": { "url": format!("{base}/api/v1/write") } }]);
    let config = configuration(directory.path(), &[&node], &to, &json!({}))?;
    let mut restart = || {
        server.terminate()?;
        server.again()
    };
    kill_in_turn(&mut node, &config, scaled(6, 150), Some(&mut restart))?;
    let sent = traffic.stop()?;
    node.daemon().request("POST", "/v1/probes/p/windows", &[], b"").expect(201);
    send_all(&config)?;
    // The last writes show up after a while.
    wait_for("all samples", PATIENCE, || {
        let counted = ask(&base, "sum(sum_over_time(packets{node=\"gw-1.example\"}[1h]))", &[])? as u64;
        ensure!(counted == sent, "{sent} were sent, {counted} are there");
        Ok(())
    })
}
