//! The meaning of a field decides how its values join: in the open window that a replacement takes
//! over, in live maps, in sums of windows and over CPUs.

use anyhow::{Context, Result};
use jiff::{Span, Timestamp};
use serde_json::{Value, json};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{Daemon, Topology};

const SOURCE: &str = include_str!("../../bpf/meanings.bpf.c");
const PROBE: &str = "/v1/probes/p";
const MAPS: [&str; 3] = ["hash", "each_cpu", "array"];
const WEIGHT: u64 = 3_000_000_000;

fn config(flags: &Value, defines: &Value) -> Value {
    let metric = |map: &&str| {
        let mut metric = json!({ "name": map, "map": map });
        for (flag, value) in flags.as_object().into_iter().flatten() {
            metric[flag] = value.clone();
        }
        if *map == "each_cpu" {
            metric["agg"] = json!("sum");
        }
        metric
    };
    let metrics: Vec<Value> = MAPS.iter().map(metric).collect();
    json!({ "interface": "mon0", "ingress": { "source": SOURCE, "defines": defines, "metrics": metrics } })
}

fn generator(topology: &Topology) -> Result<Generator> {
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())
}

/// Checks the values of all maps after this many packets. Returns the first one.
#[track_caller]
fn check(document: &Value, packets: u64, weight: u64, began: Timestamp) -> Value {
    let values = MAPS.map(|map| document["ingress"][map]["entries"][0]["value"].clone());
    let now = Timestamp::now() + Span::new().seconds(1);
    for value in &values {
        assert_eq!(
            (&value["packets"], &value["weight"]),
            (&json!(packets), &json!(weight)),
            "{value}"
        );
        let length = &value["min_length"];
        assert_eq!(
            (&value["max_length"], length.as_u64() > Some(20)),
            (length, true),
            "{value}"
        );
        let rest =
            ["port", "local_port", "ttl", "tcp_flags", "options"].map(|field| value[field].clone());
        assert_eq!(
            rest,
            [json!(80), json!(443), json!(64), json!(0x10), json!("0x07")],
            "{value}"
        );
        let side = |number: u64| json!({ "packets": packets, "peer_port": 443 + number, "ttl": 64, "tcp_flags": 1 << number });
        assert_eq!(value["sides"], json!([side(0), side(1)]), "{value}");
        let time = |field: &str| -> Timestamp {
            value[field].as_str().unwrap_or("").parse().expect(field)
        };
        let (first, last) = (time("first"), time("last"));
        assert!(
            began <= first && first <= last && last <= now,
            "{began} {value} {now}"
        );
    }
    values[0].clone()
}

/// A replacement by larger maps, or by maps of another layout, takes over the open window and live
/// maps: counts are added, other values are not.
#[test]
fn a_replacement_adds_what_can_be_added() -> Result<()> {
    let topology = Topology::new()?;
    let mut generator = generator(&topology)?;
    let daemon = Daemon::start(topology.monitor())?;
    for flags in [
        json!({ "snapshot": true, "init": true }),
        json!({ "snapshot": true }),
        json!({}),
    ] {
        for defines in [json!({ "ENTRIES": "32" }), json!({ "LAYOUT": "1" })] {
            let began = Timestamp::now() - Span::new().seconds(1);
            daemon.put(PROBE, &config(&flags, &json!({}))).expect(201);
            generator.send(1)?;
            daemon.put(PROBE, &config(&flags, &defines)).expect(200);
            generator.send(1)?;
            // The value of a live map is as wide as its field, and so are the numbers that the
            // program adds to it.
            let is_live = flags == json!({});
            let document = daemon.json(&format!("{PROBE}/metrics"));
            let weight = if is_live {
                u64::from((2 * WEIGHT) as u32)
            } else {
                2 * WEIGHT
            };
            let value = check(&document, 2, weight, began);
            assert_eq!(
                value.get("new_one"),
                (defines["LAYOUT"] == "1").then(|| json!(0)).as_ref()
            );
            daemon.delete(PROBE).expect(204);
        }
    }
    Ok(())
}

/// Sums have 64 bits in documents and on the page for Prometheus, for every width of the field,
/// also after a restart. A sum that becomes live shows the largest number of its field, not the
/// rest of an overflow.
#[test]
fn sums_are_as_wide_as_they_need() -> Result<()> {
    let topology = Topology::new()?;
    let mut generator = generator(&topology)?;
    let daemon = Daemon::start(topology.monitor())?;
    let began = Timestamp::now() - Span::new().seconds(1);
    let flags = json!({ "snapshot": true });
    daemon.put(PROBE, &config(&flags, &json!({}))).expect(201);
    let read = |daemon: &Daemon| daemon.json(&format!("{PROBE}/metrics"));
    for packets in 1..=3 {
        generator.send(1)?;
        check(&read(&daemon), packets, packets * WEIGHT, began);
    }
    let joins = daemon.json(PROBE)["joins"].clone();
    let fields = json!({ "first": "min", "last": "max", "min_length": "min", "max_length": "max", "port": "last",
        "local_port": "last", "ttl": "last", "tcp_flags": "or", "options": "last",
        "sides.peer_port": "last", "sides.ttl": "last", "sides.tcp_flags": "or" });
    assert_eq!(
        joins[0],
        json!({ "direction": "ingress", "metric": "hash", "fields": fields })
    );
    let line = "hash_weight_total{probe=\"p\",direction=\"ingress\",interface=\"mon0\",key=\"0\"} 9000000000";
    let page = daemon.get("/metrics").expect(200).text().to_owned();
    page.lines()
        .find(|found| *found == line)
        .with_context(|| format!("{line} is missing in\n{page}"))?;
    let daemon = daemon.restart(libc::SIGKILL, &twinprobe_tests::DaemonOptions::default())?;
    generator.send(1)?;
    check(&read(&daemon), 4, 4 * WEIGHT, began);
    daemon
        .put(PROBE, &config(&flags, &json!({ "LAYOUT": "1" })))
        .expect(200);
    generator.send(1)?;
    check(&read(&daemon), 5, 5 * WEIGHT, began);
    // A live map has no room for the sum: it shows the largest number, and no small one.
    daemon
        .put(PROBE, &config(&json!({}), &json!({ "LAYOUT": "1" })))
        .expect(200);
    check(&read(&daemon), 5, u32::MAX.into(), began);
    Ok(())
}

/// Sums over CPUs within a window also have 64 bits.
#[test]
fn values_of_cpus_are_added_without_wrapping() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let began = Timestamp::now() - Span::new().seconds(1);
    daemon
        .put(
            PROBE,
            &config(&json!({ "snapshot": true, "init": true }), &json!({})),
        )
        .expect(201);
    let cpus = std::thread::available_parallelism()?.get().min(2);
    for cpu in 0..cpus {
        let options = GeneratorOptions {
            cpu: Some(cpu),
            ..GeneratorOptions::default()
        };
        Generator::new(topology.generator(), "gen0", options)?.send(1)?;
    }
    let document = daemon.json(&format!("{PROBE}/metrics"));
    let value = &document["ingress"]["each_cpu"]["entries"][0]["value"];
    assert_eq!(value["weight"], json!(cpus as u64 * WEIGHT), "{value}");
    let time = |field: &str| {
        value[field]
            .as_str()
            .context("a time")?
            .parse::<Timestamp>()
            .context("a time")
    };
    assert!(
        began <= time("first")? && time("first")? <= time("last")?,
        "{value}"
    );
    assert_eq!(
        (&value["port"], &value["ttl"], &value["tcp_flags"]),
        (&json!(80), &json!(64), &json!(0x10))
    );
    Ok(())
}
