//! Entries that find no room in a map are counted: in its window or for good, across replacements
//! and the end of the daemon.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::packets::send_frames;
use twinprobe_tests::traffic::Frame;
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

const SOURCE: &str = include_str!("../../bpf/losses.bpf.c");
/// The room of each map.
const ROOM: u64 = 4;
/// The offset of the destination port in the default frame.
const PORT: usize = 36;

/// Returns a configuration: with windows (`twins`), or only with maps that both twins would share.
fn config(twins: bool, defines: &Value) -> Value {
    let mut metrics = vec![
        json!({ "name": "live", "map": "live" }),
        json!({ "name": "drained", "map": "drained", "init": true }),
        json!({ "name": "queue", "map": "queue" }),
    ];
    if twins {
        metrics.extend([
            json!({ "name": "windows", "map": "windows", "snapshot": true, "init": true }),
            json!({ "name": "sums", "map": "sums", "snapshot": true }),
            json!({ "name": "prefixes", "map": "prefixes", "snapshot": true, "init": true }),
        ]);
    }
    json!({ "interface": "mon0", "ingress": { "source": SOURCE, "defines": defines, "metrics": metrics } })
}

/// Sends one packet to each of `ports` ports.
fn send(topology: &Topology, ports: u64) -> Result<()> {
    let mut frame = Frame::default().bytes().to_vec();
    for port in 0..ports {
        frame[PORT..PORT + 2].copy_from_slice(&(1000 + port as u16).to_be_bytes());
        send_frames(topology.generator(), "gen0", &frame, 1)?;
    }
    Ok(())
}

/// Reads the metrics, and compares the failed insertions and the entries of the map.
fn expect(daemon: &Daemon, probe: &str, expected: &[(&str, u64, u64)]) {
    let document = daemon.json(&format!("/v1/probes/{probe}/metrics"));
    for (metric, lost, used) in expected {
        let metric = &document["ingress"][metric];
        assert_eq!(metric["completeness"]["failed_inserts"], *lost, "{metric}");
        assert_eq!(
            metric["completeness"]["fill"],
            if *used == ROOM {
                json!(1)
            } else {
                json!(*used as f64 / 4.0)
            }
        );
        assert_eq!(
            (&metric["entries_used"], &metric["max_entries"]),
            (&json!(used), &json!(ROOM)),
            "{metric}"
        );
        let full = *lost > 0 || *used == ROOM;
        assert_eq!(metric.get("full"), full.then_some(&json!(true)), "{metric}");
    }
}

#[test]
fn across_replacements_and_restarts() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let put = |daemon: &Daemon, status, defines: &Value| {
        daemon
            .put("/v1/probes/twins", &config(true, defines))
            .expect(status);
        daemon
            .put("/v1/probes/shared", &config(false, defines))
            .expect(status);
    };
    put(&daemon, 201, &json!({}));
    // In every window 10 ports are counted in maps for four, and then three.
    let mut total = 0;
    for round in 0..3 {
        send(&topology, 10)?;
        total += 6;
        let window = [
            ("windows", 6, 4),
            ("prefixes", 6, 4),
            ("drained", 6, 4),
            ("queue", 6, 4),
        ];
        expect(&daemon, "twins", &window);
        expect(&daemon, "shared", &window[2..]);
        send(&topology, 3)?;
        expect(
            &daemon,
            "twins",
            &[
                ("windows", 0, 3),
                ("sums", total, 3),
                ("live", total, 4),
                ("queue", 0, 3),
            ],
        );
        expect(
            &daemon,
            "shared",
            &[("drained", 0, 3), ("queue", 0, 3), ("live", total, 4)],
        );
        match round {
            0 => put(&daemon, 200, &json!({ "REVISION": "2" })),
            _ => {
                let directories = daemon.kill()?;
                daemon =
                    Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
            }
        }
    }
    let page = daemon.get("/metrics").expect(200);
    for (probe, map, lost) in [
        ("twins", "windows", total),
        ("twins", "sums", total),
        ("shared", "drained", total),
        ("twins", "live", total),
    ] {
        let labels = format!("{{probe=\"{probe}\",direction=\"ingress\",map=\"{map}\"}}");
        let sample = format!("twinprobe_map_failed_inserts_total{labels} {lost}\n");
        assert!(page.text().contains(&sample), "{sample}: {}", page.text());
    }
    // A map with more room is another map; earlier failed insertions still count.
    put(&daemon, 200, &json!({ "ROOM": "16" }));
    send(&topology, 10)?;
    let document = daemon.json("/v1/probes/twins/metrics");
    let sums = &document["ingress"]["sums"];
    assert_eq!(
        (&sums["entries_used"], &sums["max_entries"]),
        (&json!(10), &json!(16)),
        "{sums}"
    );
    assert_eq!(
        sums["completeness"],
        json!({ "fill": 0.625, "failed_inserts": total })
    );
    Ok(())
}
