//! Counters, labels and bounds of the series that Prometheus gets, and the count of windows that
//! collectors have missed.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Spread};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, Topology};

use crate::prometheus_page::Page;

const SOURCE: &str = r#"
#include <twinprobe.h>

typedef __u32 port TP_AS(ifindex);

struct counts {
    __u64 packets;
    __u64 bytes_total;
    __u64 longest;
};

TP_HASH(ports, port, struct counts, 16);
TP_HASH(senders, tp_ip, __u64, 4096);

TP_PROBE(count, packet)
{
    __u32 length = tp_length(packet);
    port port = tp_ifindex(packet);
    struct counts *counts = tp_get(ports, &port);
    __u64 *seen;
    tp_ip sender;

    tp_parse(packet);
    sender = tp_source(packet);
    if (counts) {
        tp_add(&counts->packets, 1);
        tp_add(&counts->bytes_total, length);
        tp_max(&counts->longest, length);
    }
    seen = tp_get(senders, &sender);
    if (seen)
        tp_add(seen, 1);
    return TP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
"#;

fn config(senders: &Value) -> Value {
    let merge = json!({ "longest": "max" });
    let ports = json!({ "name": "port", "map": "ports", "snapshot": true, "merge": merge });
    let mut own = json!({ "name": "senders", "map": "senders", "snapshot": true });
    own.as_object_mut()
        .unwrap()
        .extend(senders.as_object().unwrap().clone());
    json!({ "interface": "mon0", "ingress": { "source": SOURCE, "metrics": [ports, own] } })
}

fn send(topology: &Topology, first: u32, addresses: u32, count: u64) -> Result<()> {
    let spread = Spread {
        addresses,
        ports: 1,
        ..Spread::default()
    };
    let options = GeneratorOptions {
        spread,
        ..GeneratorOptions::default()
    };
    let mut generator = Generator::new(topology.generator(), "gen0", options)?;
    generator.continue_at(first)?;
    generator.send(count)
}

#[test]
fn sums_are_counters_with_labels_of_choice_and_no_more_than_asked_for() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let senders = json!({ "key_label": "sender", "max_series": 10, "sum_expires": "1s" });
    daemon.put("/v1/probes/p", &config(&senders)).expect(201);
    send(&topology, 0, 25, 250)?;
    let page = Page::scrape(&daemon);
    for (family, kind) in [
        ("port_packets", "counter"),
        ("port_bytes", "counter"),
        ("port_longest", "gauge"),
        ("senders", "counter"),
    ] {
        ensure!(page.kind(family) == kind, "{family}: {}", page.text);
    }
    let port = [("probe", "p"), ("interface", "mon0")];
    ensure!(page.one("port_packets_total", &port) == 250.0);
    ensure!(page.one("port_bytes_total", &port) == 250.0 * page.one("port_longest", &port));
    let labels = |page: &Page| {
        let of = page
            .samples
            .keys()
            .filter(|(name, _)| name == "senders_total");
        of.map(|(_, labels)| labels["sender"].clone())
            .collect::<Vec<String>>()
    };
    let mut first = labels(&page);
    ensure!(first.len() == 11, "{}", page.text);
    first.retain(|label| label != "other");
    ensure!(first.len() == 10, "{}", page.text);
    ensure!(
        page.one("senders_total", &[("sender", "other")]) == 150.0,
        "{}",
        page.text
    );
    ensure!(
        page.one("twinprobe_export_other_entries", &[("metric", "senders")]) == 15.0,
        "{}",
        page.text
    );
    ensure!(
        page.one("twinprobe_export_skipped_total", &[("probe", "p")]) == 15.0,
        "{}",
        page.text
    );
    // A silent sender is removed from the sum, and others replace it.
    wait_for("other senders", PATIENCE, || {
        send(&topology, 100, 5, 50)?;
        let page = Page::scrape(&daemon);
        let mut now = labels(&page);
        now.retain(|label| label != "other");
        ensure!(!now.is_empty() && now.len() <= 10, "{now:?}");
        ensure!(
            now.iter().all(|label| !first.contains(label)),
            "{now:?} after {first:?}"
        );
        Ok(())
    })?;
    ensure!(
        page_total(&daemon, "port_packets_total") > 250.0,
        "the other metric keeps its sum"
    );
    Ok(())
}

/// A flood of small senders does not hide the largest sender, in any order, and the sum of all is
/// complete.
#[test]
fn the_largest_are_shown_whoever_came_first() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut config: Value =
        serde_json::from_str(include_str!("../../../probes/top-talkers/top-talkers.json"))?;
    let ingress = config["ingress"].as_object_mut().context("a direction")?;
    ingress.insert("defines".into(), json!({ "TALKERS": "65536" }));
    let limited = json!({ "name": "p", "interface": "mon0", "ingress": ingress });
    daemon.put("/v1/probes/p", &limited).expect(201);
    send(&topology, 0, 3000, 3000)?;
    // The largest entry comes last.
    let spoofed = 3000;
    let base = u32::from(Spread::default().base_address) + spoofed;
    let spread = Spread {
        addresses: 1,
        ports: 1,
        base_address: base.into(),
        ..Spread::default()
    };
    let options = GeneratorOptions {
        spread,
        ..GeneratorOptions::default()
    };
    Generator::new(topology.generator(), "gen0", options)?.send(500)?;
    let page = Page::scrape(&daemon);
    let own = page.samples.iter().filter(|((name, labels), _)| {
        name == "talker_packets_total"
            && labels
                .get("address")
                .is_some_and(|address| address != "other")
    });
    let own: Vec<f64> = own.map(|(_, number)| *number).collect();
    ensure!(own.len() == 1000 && own.contains(&500.0), "{own:?}");
    let other = page.one("talker_packets_total", &[("address", "other")]);
    ensure!(other == f64::from(spoofed + 1 - 1000), "{other}");
    ensure!(own.iter().sum::<f64>() + other == f64::from(spoofed + 500));
    ensure!(
        page.one("twinprobe_export_other_entries", &[("metric", "talker")]) == 2001.0,
        "{}",
        page.text
    );
    // The same chart for a chosen number, and for one that does not exist.
    let by = |field: &str| {
        let mut config = limited.clone();
        config["ingress"]["metrics"][0]["series_by"] = json!(field);
        daemon.put("/v1/probes/p", &config)
    };
    let problem = by("octets").expect(422).json();
    ensure!(
        problem["errors"][0]["field"] == "ingress.metrics[0].series_by",
        "{problem}"
    );
    let message = problem["errors"][0]["message"]
        .as_str()
        .context("a message")?;
    ensure!(message.contains("packets, bytes, first, last"), "{message}");
    by("last").expect(200);
    let page = Page::scrape(&daemon);
    ensure!(
        page.sum("talker_packets_total", &[]) == f64::from(spoofed + 500),
        "{}",
        page.text
    );
    Ok(())
}

fn page_total(daemon: &Daemon, name: &str) -> f64 {
    Page::scrape(daemon).sum(name, &[])
}

#[test]
fn labels_that_a_map_has_no_use_for_are_refused() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let queue = r#"
#include <twinprobe.h>
struct pair { __u32 from; __u32 to; };
struct { __uint(type, BPF_MAP_TYPE_QUEUE); __uint(max_entries, 8); __type(value, __u64); } queue SEC(".maps");
TP_HASH(pairs, struct pair, __u64, 8);
TP_ARRAY(slots, __u64, 8);
TP_PROBE(count, packet) { return TP_PASS; }
char LICENSE[] SEC("license") = "Dual BSD/GPL";
"#;
    for (metric, message) in [
        (json!({ "map": "pairs", "key_label": "pair" }), "has parts"),
        (json!({ "map": "queue", "key_label": "x" }), "has no keys"),
        (json!({ "map": "queue", "max_series": 1 }), "has no keys"),
        (
            json!({ "map": "slots", "snapshot": true, "sum_expires": "1m" }),
            "are never removed",
        ),
    ] {
        let mut metric = metric;
        metric["name"] = json!("m");
        let config =
            json!({ "interface": "mon0", "ingress": { "source": queue, "metrics": [metric] } });
        let answer = daemon.put("/v1/probes/p", &config).expect(422);
        ensure!(
            answer.text().contains(message),
            "{message}: {}",
            answer.text()
        );
        ensure!(
            answer.text().contains("ingress.metrics[0]."),
            "{}",
            answer.text()
        );
    }
    Ok(())
}

/// All places show one number: a window that a named collector misses counts as lost, a window
/// without a collector does not.
#[test]
fn windows_are_lost_to_collectors_that_are_named_and_to_nobody_else() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let put = |name: &str, collectors: &[&str], status: u16| {
        let mut config = counter_config("mon0", "XDP_PASS");
        config["window"] = json!({ "retain": 2, "collectors": collectors });
        daemon
            .put(&format!("/v1/probes/{name}"), &config)
            .expect(status);
    };
    put("free", &[], 201);
    put("kept", &["archive"], 201);
    let close = |name: &str| {
        daemon
            .request("POST", &format!("/v1/probes/{name}/windows"), &[], b"")
            .expect(201);
    };
    // The page, the list of probes, the status and the list of windows; and the data in documents
    // about it.
    let lost = |name: &str| -> Result<u64> {
        let page =
            Page::scrape(&daemon).one("twinprobe_windows_lost_total", &[("probe", name)]) as u64;
        let listed =
            daemon.json(&format!("/v1/probes/{name}/windows?after=0"))["lost_windows"].clone();
        let status = daemon.json(&format!("/v1/probes/{name}"))["windows"]["lost"].clone();
        let probes = daemon.json("/v1/probes");
        let of_probe = |probe: &&Value| probe["name"] == name;
        let probe = probes["probes"]
            .as_array()
            .and_then(|probes| probes.iter().find(of_probe))
            .cloned();
        let probe = probe.unwrap_or_default()["windows"]["lost"].clone();
        for number in [listed, status, probe] {
            ensure!(number == page, "{name}: {number}, but {page} in /metrics");
        }
        Ok(page)
    };
    for name in ["free", "kept"] {
        (0..5).for_each(|_| close(name));
    }
    ensure!((lost("free")?, lost("kept")?) == (0, 3));
    let told = |name: &str, seq: u64| {
        daemon.json(&format!("/v1/probes/{name}/windows/{seq}"))["window"]["lost_windows"].clone()
    };
    ensure!((told("free", 5), told("kept", 5)) == (Value::Null, json!(1)));
    let gone = daemon.get("/v1/probes/free/windows/1").expect(404);
    ensure!(
        gone.text().contains("is not retained any more"),
        "{}",
        gone.text()
    );
    // A window that was removed before a collector was named is not a loss of any collector.
    put("free", &["archive"], 200);
    ensure!(lost("free")? == 0);
    (0..2).for_each(|_| close("free"));
    ensure!(lost("free")? == 2);
    // Lost windows do not come back when collectors are no longer named.
    put("free", &[], 200);
    (0..2).for_each(|_| close("free"));
    ensure!(lost("free")? == 2);
    Ok(())
}

#[test]
fn the_schema_of_xml_is_served() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let answer = daemon.get("/metrics.xsd").expect(200);
    ensure!(
        answer.header("content-type") == Some("application/xml"),
        "{answer:?}"
    );
    ensure!(answer.text() == include_str!("../../../api/metrics.xsd"));
    Ok(())
}
