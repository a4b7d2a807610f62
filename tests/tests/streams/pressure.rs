//! A receiver that is down: the stream stays within its memory, and asks the daemon for nothing.

use anyhow::{Result, ensure};
use serde_json::json;
use twinprobe_tests::measure::Resident;
use twinprobe_tests::sample::{window, xdp_counter};
use twinprobe_tests::servers::nats::NatsServer;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::nats::{MAKE, messages};
use crate::scene::{COLLECTOR, Node, Stream, configuration, python};
use crate::tables::layouts::close;

/// The field `memory` of the stream in bytes.
const MEMORY: u64 = 2 << 20;
/// The memory of the process outside of it: buffers of connections, and the allocator's reserve.
const BESIDE: u64 = 8 << 10;
/// The windows before and during the outage, of about 60 KiB each.
const WINDOWS: [u64; 2] = [30, 170];

/// A node whose probe has large windows.
fn node() -> Result<Node> {
    let node = Node::new("node-0")?;
    let source = xdp_counter("XDP_PASS").replace("max_entries, 1", "max_entries, 3000");
    let ingress = json!({ "source": source, "metrics": [window("packets", "packets")] });
    let window = json!({ "retain": 10_000, "collectors": [COLLECTOR] });
    let config = json!({ "interface": "mon0", "ingress": ingress, "window": window });
    node.daemon().put("/v1/probes/p", &config).expect(201);
    Ok(node)
}

/// The questions about windows that the daemon has answered.
fn questions(node: &Node) -> u64 {
    let page = node.daemon().get("/metrics").expect(200);
    let of_windows = |line: &&str| {
        line.starts_with(
            "twinprobe_http_requests_total{method=\"GET\",route=\"/v1/probes/{name}/windows",
        )
    };
    let counts = page
        .text()
        .lines()
        .filter(of_windows)
        .filter_map(|line| line.rsplit(' ').next());
    counts.filter_map(|count| count.parse::<u64>().ok()).sum()
}

#[test]
fn an_outage_costs_no_more_than_the_memory_and_the_daemon_nothing() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut server = NatsServer::new(&directory.path().join("nats"))?;
    python(MAKE, &[&server.url()])?;
    server.kill()?;
    let node = node()?;
    (0..WINDOWS[0]).for_each(|_| drop(close(&node, "p")));
    let to =
        json!([{ "nats": { "servers": [server.url()], "stream": "WINDOWS", "create": false } }]);
    let more = json!({ "memory": MEMORY, "listen": "127.0.0.1:0" });
    let running = Stream::start(&configuration(directory.path(), &[&node], &to, &more)?)?;
    let memory = || running.sample("twinprobe_stream_memory_bytes{receiver=\"nats\"}");
    wait_for("the feed has its share of the memory", PATIENCE, || {
        let (bytes, asked) = (memory()?, questions(&node));
        ensure!(bytes > (MEMORY / 5) as f64, "{bytes}");
        // An answer that waits for room ends after a second.
        ensure!(running.sample("twinprobe_stream_failures_total{receiver=\"nats\"}")? >= 4.0);
        ensure!(questions(&node) == asked);
        Ok(())
    })?;
    let (before, asked) = (Resident::of(running.pid())?, questions(&node));
    for _ in 0..WINDOWS[1] {
        close(&node, "p");
        let bytes = memory()?;
        ensure!(bytes <= MEMORY as f64, "{bytes}");
    }
    let asked = questions(&node) - asked;
    ensure!(
        asked == 0,
        "the daemon was asked {asked} times for windows that the stream can't take"
    );
    let most = before.total_kib + (MEMORY >> 10) + BESIDE;
    let after = Resident::of(running.pid())?;
    ensure!(after.peak_kib <= most, "{before:?}, {after:?}");
    server.start()?;
    wait_for("the windows", PATIENCE, || {
        let left = node.unacknowledged();
        ensure!(left == 0, "{left} are left");
        Ok(())
    })?;
    let after = Resident::of(running.pid())?;
    ensure!(
        after.peak_kib <= most,
        "{before:?}, {after:?} once the receiver was back"
    );
    running.terminate()?;
    let seqs: Vec<_> = messages(&server)?
        .iter()
        .map(|message| message[2].clone())
        .collect();
    let expected: Vec<_> = (1..=WINDOWS.iter().sum::<u64>())
        .map(|seq| json!(seq))
        .collect();
    ensure!(seqs == expected, "{seqs:?}");
    println!("{before:?} before, {after:?} after {} windows", seqs.len());
    Ok(())
}
