//! A window with very many entries costs a receiver a few times the size of its document, not
//! dozens of times.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::sample::{window, xdp_counter};

use super::clickhouse::Clickhouse;
use super::layouts::close;
use super::postgres;
use crate::scene::{COLLECTOR, Node, Stream, configuration};

const ENTRIES: u64 = 500_000;
/// The most memory for a byte of the document: the document, its rows, and the buffers of these
/// while they grow.
const TIMES: u64 = 14;

/// Sends a window to a receiver. `rows` counts the rows of its table.
fn check(node: &Node, to: &Value, rows: impl FnOnce() -> Result<String>) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let more = json!({ "listen": "127.0.0.1:0" });
    let running = Stream::start(&configuration(directory.path(), &[node], to, &more)?)?;
    running.sends_in_little_memory(node, TIMES, || {
        Ok(serde_json::to_string(&close(node, "p"))?.len() as u64)
    })?;
    ensure!(rows()? == ENTRIES.to_string());
    Ok(())
}

#[test]
fn a_window_of_half_a_million_entries_needs_little_memory() -> Result<()> {
    let node = Node::new("node-0")?;
    let source =
        xdp_counter("XDP_PASS").replace("max_entries, 1", &format!("max_entries, {ENTRIES}"));
    let ingress = json!({ "source": source, "metrics": [window("packets", "packets")] });
    let kept = json!({ "retain": 10, "collectors": [COLLECTOR] });
    node.daemon()
        .put(
            "/v1/probes/p",
            &json!({ "interface": "mon0", "ingress": ingress, "window": kept }),
        )
        .expect(201);
    let clickhouse = Clickhouse::new()?;
    let count = || clickhouse.rows("SELECT count() FROM windows.`p.ingress.packets`");
    check(&node, &clickhouse.receiver(&json!({})), count)?;
    let server = postgres::Server::new()?;
    let count = || server.rows("SELECT count(*) FROM twinprobe.\"p.ingress.packets\"");
    check(&node, &server.receiver(&json!({})), count)
}
