//! The stream tells the lost windows with their numbers before it sends the next one.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::Store;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::{COLLECTOR, Node, Stream, configuration, duckdb};
use crate::tables::layouts::close;

/// Checks samples of the stream's receiver.
fn expect(stream: &Stream, samples: [(&str, f64); 4]) -> Result<()> {
    for (name, value) in samples {
        let found = stream.sample(&format!("twinprobe_stream_{name}{{receiver=\"file\"}}"))?;
        ensure!((found - value).abs() < 0.5, "{name} is {found}");
    }
    Ok(())
}

/// The rows about gaps in the files below a directory.
fn gaps(windows: &std::path::Path) -> Result<Value> {
    duckdb(&format!(
        "SELECT node, first_seq::BIGINT, last_seq::BIGINT, windows::BIGINT FROM read_parquet('{}/p/gaps/*.parquet') ORDER BY 2",
        windows.display()
    ))
}

fn wait_until_sent(node: &Node) -> Result<()> {
    wait_for("the windows", PATIENCE, || {
        let list = node.daemon().json("/v1/probes/p/windows");
        ensure!(list["windows"] == json!([]), "{list}");
        Ok(())
    })
}

#[test]
fn lost_windows_are_a_gap_in_log_metrics_and_files() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let node = Node::new("node-0")?;
    node.deploy(&json!({ "retain": 2, "collectors": [COLLECTOR] }));
    (0..5).for_each(|_| drop(close(&node, "p")));
    let windows = directory.path().join("windows");
    let to = json!([{ "file": { "directory": windows, "every": "50ms" } }]);
    let config = configuration(
        directory.path(),
        &[&node],
        &to,
        &json!({ "listen": "127.0.0.1:0" }),
    )?;
    let stream = Stream::start(&config)?;
    wait_until_sent(&node)?;
    let log = stream.log();
    ensure!(log.contains("first=1 last=3 windows=3"), "{log}");
    expect(
        &stream,
        [
            ("gaps_total", 1.0),
            ("lost_windows_total", 3.0),
            ("windows_total", 2.0),
            ("receiver_up", 1.0),
        ],
    )?;
    stream.terminate()?;
    let gaps = gaps(&windows)?;
    ensure!(gaps == json!([["node-0", 1, 3, 3]]), "{gaps}");
    Ok(())
}

/// Windows in the middle of an answer are damaged on disk. All others arrive, and the stream
/// reports each gap once, both for a probe that names the stream and for one without collectors.
#[test]
fn damaged_windows_are_gaps_that_are_told_once() -> Result<()> {
    for collectors in [json!([COLLECTOR]), json!([])] {
        let directory = tempfile::tempdir()?;
        let node = Node::new("node-0")?;
        node.deploy(&json!({ "collectors": collectors }));
        (0..9).for_each(|_| drop(close(&node, "p")));
        let store = Store::open(&node.daemon().directories())?;
        [3, 5, 6]
            .into_iter()
            .try_for_each(|seq| store.flip_body("p", seq, 40, 4))?;
        let windows = directory.path().join("windows");
        let to = json!([{ "file": { "directory": windows, "every": "50ms" } }]);
        let config = configuration(
            directory.path(),
            &[&node],
            &to,
            &json!({ "listen": "127.0.0.1:0" }),
        )?;
        let stream = Stream::start(&config)?;
        wait_until_sent(&node)?;
        // A gap is reported once, not again with the next windows.
        (0..3).for_each(|_| drop(close(&node, "p")));
        wait_until_sent(&node)?;
        expect(
            &stream,
            [
                ("gaps_total", 2.0),
                ("lost_windows_total", 3.0),
                ("windows_total", 9.0),
                ("receiver_up", 1.0),
            ],
        )?;
        let log = stream.log();
        ensure!(
            log.matches("windows were lost").count() == 2,
            "{collectors}: {log}"
        );
        stream.terminate()?;
        let gaps = gaps(&windows)?;
        ensure!(
            gaps == json!([["node-0", 3, 3, 1], ["node-0", 5, 6, 2]]),
            "{collectors}: {gaps}"
        );
    }
    Ok(())
}
