//! `docs/reference/metrics.md`: the metrics that a daemon has of itself, from the page that a
//! scraper gets. The daemon's probes have all features that such metrics exist for.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::net::UnixStream;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use twinprobe_tests::pods::{CgroupDriver, Pod};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

use crate::schema::{Schema, cell};

const HEAD: &str = "# Reference: metrics of the daemon

<!-- written by `make reference` from the page of a daemon -->

The daemon's own metrics in `GET /metrics`, beside those of its probes ([scraping](../windows.md#scraping)). Counters begin when the daemon
starts. A family is absent if there is nothing to count: for example, without events there are no metrics of events.

| metric | type | labels | meaning |
|---|---|---|---|
";

/// A probe with a sum of windows that is shown in part, maps that count refused entries, and both
/// kinds of event maps.
const SOURCE: &str = "
#include <twinprobe.h>
TP_HASH(flows, struct tp_flow, struct tp_counters, 16);
TP_RINGBUF(ring, __u64, 4096);
struct { __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY); __type(key, __u32); __type(value, __u32); } perf SEC(\".maps\");
TP_PROBE(count, packet)
{
    struct tp_flow flow;
    __u64 *event;

    tp_parse(packet);
    if (tp_flow(packet, &flow))
        tp_count(flows, &flow, tp_length(packet));
    event = tp_reserve(ring);
    if (event) {
        *event = 1;
        tp_submit(event);
    }
    return TP_PASS;
}
char LICENSE[] SEC(\"license\") = \"GPL\";
";

pub fn page() -> Result<String> {
    let topology = Topology::new()?;
    let files = tempfile::tempdir()?;
    fs::write(files.path().join("broken.json"), "{")?;
    let options = DaemonOptions::default()
        .argument("--measure-cost")
        .argument("--probes")
        .argument(files.path())
        .argument("--header-timeout")
        .argument("1");
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let config = json!({ "interface": "mon0", "window": { "collectors": ["archive"] }, "ingress": { "source": SOURCE, "sample": 2, "max_ns_per_packet": 1000000, "metrics": [
        { "name": "flows", "map": "flows", "snapshot": true, "max_series": 100 },
        { "name": "ring", "map": "ring" }, { "name": "perf", "map": "perf" } ] } });
    daemon.put("/v1/probes/flows", &config).expect(201);
    // The other end of mon0 is in a pod.
    let mut pod = Pod::new(CgroupDriver::Systemd)?;
    pod.make_cgroup()?;
    pod.run_in(topology.generator())?;
    let pods = json!({ "pods": [pod.entry(&json!({}), &json!({}))] });
    daemon.put("/v1/pods", &pods).expect(200);
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let _silent = UnixStream::connect(daemon.directories().socket())?;
    // The live cost is known once the daemon has measured while packets came. The silent client is
    // cut off after a second.
    let scraped = wait_for("all metrics", PATIENCE, || {
        generator.send(1000)?;
        let scraped = daemon.get("/metrics").expect(200);
        for late in [
            "twinprobe_probe_live_seconds_per_packet{",
            "twinprobe_http_connections_cut_total{",
        ] {
            ensure!(
                scraped.text().contains(late),
                "no {late} in:\n{}",
                scraped.text()
            );
        }
        Ok(scraped)
    })?;
    let page = table(scraped.text())?;
    let schema = Schema::read()?;
    let described = schema
        .at("/paths/~1metrics/get/description")?
        .as_str()
        .unwrap_or_default();
    for name in described
        .split('`')
        .filter(|word| word.starts_with("twinprobe_"))
    {
        let name = name.split('{').next().unwrap_or(name);
        ensure!(
            page.contains(&format!("| `{name}` |")),
            "the page lacks {name}, which openapi.yaml describes"
        );
    }
    Ok(page)
}

#[derive(Default)]
struct Family {
    kind: String,
    help: String,
    /// The names of its samples' labels, in their order.
    labels: Vec<String>,
}

fn table(scraped: &str) -> Result<String> {
    let mut families: BTreeMap<&str, Family> = BTreeMap::new();
    for line in scraped.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "TYPE", name, kind] => {
                kind.clone_into(&mut families.entry(name).or_default().kind);
            }
            ["#", "HELP", name, help] => {
                help.clone_into(&mut families.entry(name).or_default().help);
            }
            _ => {}
        }
        let Some((sample, labels)) = line.split_once('{') else {
            continue;
        };
        let names = ["_total", "_bucket", "_count", "_sum", "_info", ""]
            .iter()
            .filter_map(|end| sample.strip_suffix(end));
        let Some(name) = names.into_iter().find(|name| families.contains_key(name)) else {
            continue;
        };
        let family = families.entry(name).or_default();
        let (labels, _) = labels.rsplit_once('}').context("a sample's labels end")?;
        for label in labels
            .split("\",")
            .filter_map(|label| Some(label.split_once('=')?.0))
        {
            if label != "le" && !family.labels.iter().any(|known| known == label) {
                family.labels.push(label.to_owned());
            }
        }
    }
    let mut page = HEAD.to_owned();
    for (name, Family { kind, help, labels }) in families {
        if !name.starts_with("twinprobe_") && !name.starts_with("process_") {
            continue;
        }
        let end = match kind.as_str() {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(
            page,
            "| `{name}{end}` | {kind} | {} | {} |",
            labels.join(", "),
            cell(help.trim_end_matches('.'))
        )?;
    }
    Ok(page)
}
