//! Files of Parquet, read by DuckDB.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use twinprobe_tests::scaled;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::{COLLECTOR, Node, Stream, configuration, duckdb, stream};

/// Streams and daemons are killed at any moment. The files have each window and each packet once.
#[test]
fn files_have_each_packet_once_whatever_is_killed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let windows = directory.path().join("windows");
    let mut nodes = [Node::new("node-0")?, Node::new("gw/1.example")?];
    let mut running = Vec::new();
    for node in &nodes {
        node.deploy(&json!({ "interval": "50ms", "retain": 10_000, "collectors": [COLLECTOR] }));
        running.push(node.traffic()?);
    }
    let to = json!([{ "file": { "directory": windows, "every": "100ms" } }]);
    let config = configuration(directory.path(), &[&nodes[0], &nodes[1]], &to, &json!({}))?;
    let mut acknowledged = [0, 0];
    for kill in 0..scaled(6, 100) {
        let running = Stream::start(&config)?;
        for (node, before) in nodes.iter().zip(&mut acknowledged) {
            wait_for("an acknowledgement", PATIENCE, || {
                let list = node
                    .daemon()
                    .json(&format!("/v1/probes/p/windows?collector={COLLECTOR}"));
                let after = list["after"].as_u64().unwrap_or_default();
                ensure!(after > *before, "{list}");
                *before = after;
                Ok(())
            })?;
        }
        // Each kill comes at another moment: between a file and its acknowledgement, or with a
        // half-written file.
        thread::sleep(Duration::from_millis(31 * kill % 170));
        running.kill()?;
        if kill % 2 == 1 {
            nodes[(kill / 2 % 2) as usize].kill_daemon()?;
        }
    }
    let sent: Vec<u64> = running
        .into_iter()
        .map(|running| running.stop())
        .collect::<Result<_>>()?;
    for node in &nodes {
        node.daemon()
            .request("POST", "/v1/probes/p/windows", &[], b"")
            .expect(201);
    }
    let output = stream(&["-f", &config.display().to_string(), "--once"])?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let path = windows.display();
    let counted = duckdb(&format!(
        "SELECT node, sum(value)::BIGINT, count(DISTINCT seq)::BIGINT FROM read_parquet('{path}/p/ingress.packets/**/*.parquet') \
         GROUP BY node ORDER BY node DESC"
    ))?;
    let seqs = duckdb(&format!(
        "SELECT node, count(*), count(DISTINCT seq), max(seq)::BIGINT, min(seq)::BIGINT, sum(lost_windows)::BIGINT \
         FROM read_parquet('{path}/p/windows/**/*.parquet') GROUP BY node ORDER BY node DESC"
    ))?;
    for (index, name) in ["node-0", "gw/1.example"].into_iter().enumerate() {
        let (counts, rows) = (&counted[index], &seqs[index]);
        ensure!(
            counts[0] == name && counts[1] == sent[index],
            "{} were sent: {counted}",
            sent[index]
        );
        ensure!(
            rows[1] == rows[2] && rows[2] == rows[3] && rows[4] == 1 && rows[5] == 0,
            "{seqs}"
        );
        ensure!(counts[2] == rows[1], "{counted} {seqs}");
    }
    Ok(())
}

/// A replacement with another layout: earlier files keep their columns.
#[test]
fn a_new_layout_begins_a_new_file() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let node = Node::new("node-0")?;
    let config = |members: &str| {
        let source = format!(
            "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\nstruct counts {{ {members} }};\n\
             struct {{ __uint(type, BPF_MAP_TYPE_ARRAY); __type(key, __u32); __type(value, struct counts); \
             __uint(max_entries, 1); }} counts SEC(\".maps\");\n\
             SEC(\"xdp.frags\") int count(struct xdp_md *ctx) {{ __u32 key = 0; struct counts *c = bpf_map_lookup_elem(&counts, &key); \
             if (c) __sync_fetch_and_add(&c->packets, 1); return XDP_PASS; }}\nchar LICENSE[] SEC(\"license\") = \"GPL\";\n"
        );
        json!({ "interface": "mon0", "window": { "collectors": [COLLECTOR], "retain": 100 },
                "ingress": { "source": source, "metrics": [{ "name": "counts", "map": "counts", "snapshot": true, "init": true }] } })
    };
    let daemon = node.daemon();
    let close = || {
        daemon
            .request("POST", "/v1/probes/p/windows", &[], b"")
            .expect(201)
    };
    daemon
        .put("/v1/probes/p", &config("__u64 packets;"))
        .expect(201);
    close();
    close();
    daemon
        .put("/v1/probes/p", &config("__u64 packets; __u32 flags;"))
        .expect(200);
    close();
    let windows = directory.path().join("windows");
    let file = configuration(
        directory.path(),
        &[&node],
        &json!([{ "file": { "directory": windows } }]),
        &json!({ "from": { "servers": [node.url()], "probes": ["p*"] } }),
    )?;
    let output = stream(&["-f", &file.display().to_string(), "--once"])?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let rows = duckdb(&format!(
        "SELECT seq::BIGINT, packets::BIGINT, flags::BIGINT FROM read_parquet('{}/p/ingress.counts/**/*.parquet', \
         union_by_name=true) ORDER BY seq",
        windows.display()
    ))?;
    let flags: Vec<bool> = rows
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| row[2].is_null())
        .collect();
    ensure!(
        flags.len() >= 3 && flags[0] && flags[1] && !flags[flags.len() - 1],
        "{rows}"
    );
    ensure!(node.unacknowledged() == 0);
    Ok(())
}
