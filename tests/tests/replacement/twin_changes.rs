//! Metrics that become snapshots or stop being ones while windows are closed: the map that is kept
//! is the one that packets are counted in when the programs are switched, not when they were
//! loaded.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::http;
use twinprobe_tests::sample::{total, window};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::windows::Windows;
use twinprobe_tests::{Daemon, DaemonOptions, Topology, scaled};

const PROBES: [&str; 3] = ["p", "q", "r"];

/// Returns a program that counts packets in `always` and `turned`.
fn source() -> String {
    let map = |name: &str| {
        format!(
            "struct {{ __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32);\n\
             __type(value, __u64); }} {name} SEC(\".maps\");\n"
        )
    };
    format!(
        "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n{}{}\
         static __always_inline void add(void *map) {{\n\
         __u32 key = 0; __u64 *value = bpf_map_lookup_elem(map, &key);\n\
         if (value) __sync_fetch_and_add(value, 1);\n}}\n\
         SEC(\"xdp\") int count(struct xdp_md *ctx) {{ add(&always); add(&turned); return XDP_PASS; }}\n\
         char LICENSE[] SEC(\"license\") = \"GPL\";\n",
        map("always"),
        map("turned")
    )
}

/// Returns a configuration where `turned` belongs to the windows or is read live.
fn config(snapshot: bool, interval: Option<&str>) -> Value {
    let turned = if snapshot {
        window("turned", "turned")
    } else {
        json!({ "name": "turned", "map": "turned" })
    };
    let mut config = json!({
        "interface": "mon0",
        "ingress": { "source": source(), "metrics": [window("always", "always"), turned] },
        "window": { "retain": 100_000 }
    });
    if let Some(interval) = interval {
        config["window"]["interval"] = json!(interval);
    }
    config
}

fn path(probe: &str) -> String {
    format!("/v1/probes/{probe}")
}

/// Returns the counts in all windows of a probe: first of the metric that is always in windows,
/// then of the one that is sometimes there.
fn in_windows(daemon: &Daemon, probe: &str) -> [u64; 2] {
    let windows = Windows::of(daemon, probe);
    let list = windows.list("");
    assert_eq!(list.lost, 0);
    list.seqs()
        .into_iter()
        .fold([0, 0], |[always, turned], seq| {
            let document = windows.get(seq);
            let here = document["ingress"]
                .get("turned")
                .map_or(0, |_| total(&document, "ingress", "turned"));
            [
                always + total(&document, "ingress", "always"),
                turned + here,
            ]
        })
}

/// Closes the last window of all probes and checks that each packet is in one window.
fn check(daemon: &Daemon, sent: u64, what: &str) {
    for probe in PROBES {
        // A configuration without interval closes no further window.
        daemon.put(&path(probe), &config(true, None)).expect(200);
        Windows::of(daemon, probe).close();
        assert_eq!(in_windows(daemon, probe), [sent, sent], "{probe}, {what}");
    }
}

#[test]
fn a_metric_becomes_a_snapshot_and_live_again_under_load() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    for probe in PROBES {
        daemon
            .put(&path(probe), &config(true, Some("5ms")))
            .expect(201);
    }
    let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let load = generator.spawn(Load::default());
    let mut were_live = Vec::new();
    for _ in 0..scaled(4, 100) {
        for probe in PROBES {
            daemon
                .put(&path(probe), &config(false, Some("5ms")))
                .expect(200);
        }
        for probe in PROBES {
            let live = total(
                &daemon.json(&format!("{}/metrics", path(probe))),
                "ingress",
                "turned",
            );
            let last = Windows::of(&daemon, probe)
                .seqs()
                .last()
                .copied()
                .unwrap_or_default();
            were_live.push((probe, last, live));
            daemon
                .put(&path(probe), &config(true, Some("5ms")))
                .expect(200);
        }
    }
    let sent = load.stop()?;
    check(&daemon, sent, "after replacements");
    // The live counts are in the window that was open when the metric became a snapshot.
    for (probe, last, live) in were_live {
        let windows = Windows::of(&daemon, probe);
        let documents = windows
            .seqs()
            .into_iter()
            .filter(|seq| *seq > last)
            .map(|seq| windows.get(seq));
        let first = documents
            .map(|document| document["ingress"].clone())
            .find(|ingress| ingress.get("turned").is_some());
        let first = total(&json!({ "ingress": first }), "ingress", "turned");
        assert!(
            first >= live,
            "{probe}: {first} in the first window after {last}, {live} before it"
        );
    }
    Ok(())
}

/// A daemon is killed in the middle of such a replacement. Finally, all windows are read: the
/// interval keeps their number small on a slow machine.
#[test]
fn killed_while_a_metric_becomes_a_snapshot_or_live() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    for probe in PROBES {
        daemon
            .put(&path(probe), &config(true, Some("20ms")))
            .expect(201);
    }
    let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let load = generator.spawn(Load::default());
    for (round, step) in [
        "pinned",
        "prepared",
        "attached",
        "switched",
        "committed",
        "retired",
    ]
    .into_iter()
    .enumerate()
    {
        for snapshot in [false, true] {
            let dying = DaemonOptions::default().environment("TWINPROBE_CRASH_AT", step);
            daemon = daemon.restart(libc::SIGKILL, &dying)?;
            let mut body = config(snapshot, Some("20ms"));
            // A PUT of the running configuration would replace nothing.
            body["ingress"]["metrics"][0]["help"] = json!(format!("{step} {snapshot}"));
            let body = body.to_string();
            let path = path(PROBES[round % PROBES.len()]);
            let answer = http::request(
                &daemon.address(),
                "PUT",
                &path,
                &[("content-type", "application/json")],
                body.as_bytes(),
            );
            ensure!(answer.is_err(), "{step} was not reached: {answer:?}");
            daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
        }
    }
    let sent = load.stop()?;
    check(&daemon, sent, "after kills");
    Ok(())
}
