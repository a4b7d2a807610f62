//! Windows of large sums hold only the changes. Readers get them with the sums, even if the daemon
//! is killed or the previous windows are removed.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::http;
use twinprobe_tests::sample::total;
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::windows::{SOURCE, Windows};
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

const PROBE: &str = "/v1/probes/p";
const METRICS: &str = "/v1/probes/p/metrics";
const FORMATS: [&str; 3] = ["json", "xml", "openmetrics"];
const MAPS: [&str; 2] = ["in_array", "in_hash"];

/// A probe whose sums have 4096 entries. Packets change 256 at most.
fn config() -> Value {
    let sum = |map: &str| json!({ "name": map, "map": map, "snapshot": true });
    let defines = json!({ "VERDICT": "XDP_DROP", "KEYS": "4096" });
    let metrics = MAPS.map(sum);
    json!({
        "interface": "mon0",
        "ingress": { "verdict": "enforce", "source": SOURCE, "defines": defines, "metrics": metrics },
        "window": { "retain": 100 }
    })
}

struct Scene {
    generator: Generator,
    sent: u64,
    /// The bytes of each window so far, in each format.
    documents: Vec<(u64, &'static str, Vec<u8>)>,
}

impl Scene {
    fn send(&mut self) -> Result<()> {
        self.sent += 100;
        self.generator.send(100)
    }

    /// Checks that a window has all packets so far. Returns its size, as the list has it.
    fn note(&mut self, windows: &Windows, document: &Value) -> Result<u64> {
        for map in MAPS {
            let (found, sent) = (total(document, "ingress", map), self.sent);
            ensure!(found == sent, "{map}: {found} of {sent} packets");
        }
        let seq = document["window"]["seq"].as_u64().unwrap_or_default();
        self.documents
            .extend(FORMATS.map(|format| (seq, format, windows.bytes(seq, format))));
        let list = windows.try_list("")?;
        let window = list.windows.iter().find(|window| window.seq == seq);
        Ok(window.map_or(0, |window| window.bytes))
    }

    fn check(&self, windows: &Windows) {
        for (seq, format, known) in &self.documents {
            assert!(
                windows.bytes(*seq, format) == *known,
                "{format} of window {seq}"
            );
        }
    }
}

/// A chart of all windows has each packet once, whether windows hold sums or changes.
fn chart(daemon: &Daemon, sent: u64) -> Result<()> {
    let chart = daemon.json("/v1/probes/p/series?metric=in_hash&top=3");
    let series = chart["series"].as_array().cloned().unwrap_or_default();
    let parts = series.iter().chain([&chart["others"]]);
    let totals: Vec<u64> = parts
        .clone()
        .filter_map(|part| part["total"].as_u64())
        .collect();
    ensure!(
        series.len() == 3 && totals.iter().sum::<u64>() == sent,
        "{totals:?} of {sent} packets"
    );
    ensure!(
        totals[..3].is_sorted_by(|a, b| a >= b),
        "the largest come first: {totals:?}"
    );
    let values = parts.filter_map(|part| part["values"].as_array()).flatten();
    ensure!(
        values.filter_map(Value::as_u64).sum::<u64>() == sent,
        "the points come to all packets: {chart}"
    );
    ensure!(
        chart["shows"] == "increase" && chart["left_out"].is_null(),
        "{chart}"
    );
    for (query, why) in [
        ("metric=none", "they have in_array, in_hash"),
        ("metric=in_hash&field=x", "leave field out"),
    ] {
        let refused = daemon
            .get(&format!("/v1/probes/p/series?{query}"))
            .expect(400)
            .json();
        ensure!(
            refused["detail"]
                .as_str()
                .is_some_and(|detail| detail.contains(why)),
            "{refused}"
        );
    }
    Ok(())
}

/// The daemon dies at each step of storing a window that holds changes: the second one after its
/// start.
#[test]
fn windows_that_hold_what_has_changed_are_read_as_if_they_had_the_sums() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    daemon.put(PROBE, &config()).expect(201);
    let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let mut scene = Scene {
        generator,
        sent: 0,
        documents: Vec::new(),
    };
    for step in [
        "summed:3",
        "summed:4",
        "written:2",
        "filed:2",
        "listed:2",
        "stored:2",
    ] {
        let dying = DaemonOptions::default().environment("TWINPROBE_CRASH_AT", step);
        daemon = daemon.restart(libc::SIGKILL, &dying)?;
        let windows = Windows::of(&daemon, "p");
        scene.send()?;
        let whole = scene.note(&windows, &windows.close())?;
        scene.send()?;
        let answer = http::request(
            &daemon.address(),
            "POST",
            &format!("{PROBE}/windows"),
            &[],
            b"",
        );
        ensure!(answer.is_err(), "{step} was not reached: {answer:?}");

        daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
        let windows = Windows::of(&daemon, "p");
        scene.check(&windows);
        scene.note(&windows, &daemon.json(METRICS))?;
        scene.send()?;
        scene.note(&windows, &windows.close())?;
        for _ in 0..2 {
            scene.send()?;
            let bytes = scene.note(&windows, &windows.close())?;
            ensure!(
                bytes < whole / 4,
                "{bytes} bytes hold what has changed, {whole} the sums"
            );
        }
    }
    let windows = Windows::of(&daemon, "p");
    chart(&daemon, scene.sent)?;
    // A deleted window's body stays while later windows build on it, but no list shows the window.
    let last = windows
        .try_list("")?
        .seqs()
        .into_iter()
        .max()
        .unwrap_or_default();
    windows
        .request("DELETE", &windows.path(last - 1))?
        .expect(204);
    scene.documents.retain(|(seq, ..)| *seq == last);
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        daemon = daemon.restart(signal, &DaemonOptions::default())?;
        let windows = Windows::of(&daemon, "p");
        assert_eq!(windows.try_list("")?.seqs(), [last]);
        scene.check(&windows);
    }
    // A replacement continues with the sums.
    let mut next = config();
    next["priority"] = json!(7);
    daemon.put(PROBE, &next).expect(200);
    scene.send()?;
    let windows = Windows::of(&daemon, "p");
    scene.note(&windows, &windows.close())?;
    scene.check(&windows);
    Ok(())
}

/// An unsigned number that is smaller than before was reset. A signed number has decreased.
#[test]
fn a_chart_shows_how_a_signed_sum_falls() -> Result<()> {
    const SOURCE: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __s64);
} balance SEC(".maps");
SEC("xdp") int count(struct xdp_md *ctx)
{
	__u32 key = 0;
	__s64 *value = bpf_map_lookup_elem(&balance, &key);
	if (value)
		__sync_fetch_and_add(value, -3);
	return XDP_DROP;
}
char LICENSE[] SEC("license") = "GPL";
"#;
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let metric = json!({ "name": "balance", "map": "balance", "snapshot": true });
    let ingress = json!({ "verdict": "enforce", "source": SOURCE, "metrics": [metric] });
    daemon
        .put(PROBE, &json!({ "interface": "mon0", "ingress": ingress }))
        .expect(201);
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let windows = Windows::of(&daemon, "p");
    for packets in [100, 200, 0] {
        generator.send(packets)?;
        windows.close();
    }
    let chart = daemon.json("/v1/probes/p/series?metric=balance");
    let series = &chart["series"][0];
    ensure!(
        series["values"] == json!([-300, -600, 0]) && series["total"] == -900,
        "{chart}"
    );
    Ok(())
}
