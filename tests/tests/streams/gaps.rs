//! The stream tells, with its numbers, what the daemon's retention removed before it was sent.

use anyhow::{Result, ensure};
use serde_json::json;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::{COLLECTOR, Node, Stream, configuration, duckdb};

#[test]
fn lost_windows_are_a_gap_in_log_metrics_and_files() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let node = Node::new("node-0")?;
    node.deploy(&json!({ "retain": 2, "collectors": [COLLECTOR] }));
    for _ in 0..5 {
        node.daemon().request("POST", "/v1/probes/p/windows", &[], b"").expect(201);
    }
    let windows = directory.path().join("windows");
    let to = json!([{ "file": { "directory": windows, "every": "50ms" } }]);
    let config = configuration(directory.path(), &[&node], &to, &json!({ "listen": "127.0.0.1:0" }))?;
    let stream = Stream::start(&config)?;
    wait_for("the windows", PATIENCE, || {
        ensure!(node.unacknowledged() == 0);
        Ok(())
    })?;
    let log = stream.log();
    ensure!(log.contains("first=1 last=3 windows=3"), "{log}");
    for (name, value) in [
        ("twinprobe_stream_gaps_total{receiver=\"file\"}", 1.0),
        ("twinprobe_stream_lost_windows_total{receiver=\"file\"}", 3.0),
        ("twinprobe_stream_windows_total{receiver=\"file\"}", 2.0),
        ("twinprobe_stream_receiver_up{receiver=\"file\"}", 1.0),
    ] {
        let found = stream.sample(name)?;
        ensure!((found - value).abs() < 0.5, "{name} is {found}");
    }
    stream.terminate()?;
    let gaps = duckdb(&format!(
        "SELECT node, first_seq::BIGINT, last_seq::BIGINT, windows::BIGINT FROM read_parquet('{}/p/gaps/*.parquet')",
        windows.display()
    ))?;
    ensure!(gaps == json!([["node-0", 1, 3, 3]]), "{gaps}");
    Ok(())
}
