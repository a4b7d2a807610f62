//! Maps of maps: the inner maps are read and reset, and each twin has its own.

use crate::scene::{ADDRESSES, Scene, metric};
use anyhow::Result;
use serde_json::{Value, json};

const PACKETS: u64 = 5_000;

/// Returns the entry of `by_parity` in this slot: the number of its addresses and of their packets.
fn slot(document: &Value, key: u64) -> (usize, u64) {
    let entries = document["ingress"]["by_parity"]["entries"]
        .as_array()
        .expect("entries");
    let entry = entries
        .iter()
        .find(|entry| entry["key"] == key)
        .expect("the slot");
    assert_eq!(entry["value"]["type"], "hash", "{document}");
    let inner = entry["value"]["entries"].as_array().expect("inner entries");
    let parity = u64::from(key == 3);
    assert!(
        inner
            .iter()
            .all(|entry| entry["key"].as_u64().expect("a number") % 2 == parity),
        "{document}"
    );
    (
        inner.len(),
        inner
            .iter()
            .map(|entry| entry["value"].as_u64().expect("a count"))
            .sum(),
    )
}

#[test]
fn the_maps_in_a_map_are_windows() -> Result<()> {
    let scene = Scene::new()?;
    for strategy in ["auto", "iterative"] {
        for (snapshot, init) in [(true, true), (false, true), (false, false)] {
            let mut metrics = [
                metric("by_parity", "by_parity", snapshot, init),
                metric("per_cpu", "per_cpu_by_parity", snapshot, init),
            ];
            metrics[1]["agg"] = json!("sum");
            for metric in &mut metrics {
                metric["strategy"] = json!(strategy);
            }
            scene.deploy(&json!(metrics));
            for round in 1..=3 {
                scene.send(PACKETS)?;
                let document = scene.read();
                let half = PACKETS / 2 * if init { 1 } else { round };
                let addresses = ADDRESSES as usize / 2;
                assert_eq!(document["ingress"]["by_parity"]["type"], "array_of_maps");
                assert_eq!(
                    document["ingress"]["by_parity"]["entries"]
                        .as_array()
                        .map(Vec::len),
                    Some(2)
                );
                assert_eq!(
                    (slot(&document, 0), slot(&document, 3)),
                    ((addresses, half), (addresses, half))
                );
                let per_cpu = &document["ingress"]["per_cpu"]["entries"];
                let inner =
                    json!({ "type": "percpu_array", "entries": [{ "key": 0, "value": half }] });
                let mut found: Vec<&Value> = per_cpu.as_array().expect("entries").iter().collect();
                found.sort_by_key(|entry| entry["key"].as_str().map(str::to_owned));
                assert_eq!(found.len(), 2, "{per_cpu}");
                assert!(
                    found.iter().all(|entry| entry["value"] == inner),
                    "{per_cpu}"
                );
            }
        }
    }
    scene.bystanders.finish()
}

/// Inner maps without a metric of their own are reset with the outer map.
#[test]
fn a_reset_reaches_the_maps_in_a_map() -> Result<()> {
    let scene = Scene::new()?;
    for on_replace in ["carry", "reset"] {
        let mut nested = metric("by_parity", "by_parity", false, false);
        scene.deploy(&json!([nested]));
        scene.send(PACKETS)?;
        let before = slot(&scene.read(), 0).1;
        nested["on_replace"] = json!(on_replace);
        nested["help"] = json!(format!("replaced, {on_replace}"));
        scene.deploy(&json!([nested]));
        scene.send(PACKETS)?;
        let kept = if on_replace == "carry" { before } else { 0 };
        assert_eq!(slot(&scene.read(), 0).1, kept + PACKETS / 2, "{on_replace}");
    }
    scene.bystanders.finish()
}

#[test]
fn nested_tables_in_xml() -> Result<()> {
    let scene = Scene::new()?;
    scene.deploy(&json!([metric("by_parity", "by_parity", true, true)]));
    scene.send(ADDRESSES)?;
    let xml = scene.daemon.request(
        "GET",
        "/v1/probes/maps/metrics",
        &[("accept", "application/xml")],
        b"",
    );
    let text = xml.text();
    assert!(
        text.contains("<entry><key>3</key><value><entry><key>"),
        "{text}"
    );
    assert!(
        text.contains("</entry></value></entry><completeness "),
        "{text}"
    );
    scene.bystanders.finish()
}

#[test]
fn what_does_not_go_together_is_refused() -> Result<()> {
    let scene = Scene::new()?;
    let cases = [
        // An inner map is read with its outer map, so it can't have a metric of its own.
        (
            json!([
                metric("a", "by_parity", true, true),
                metric("b", "even", true, true)
            ]),
            "[1].map",
            "already read",
        ),
        // A private inner map can't be in a shared outer map.
        (
            json!([
                metric("a", "even", true, true),
                metric("b", "by_parity", false, false)
            ]),
            "[1].snapshot",
            "snapshot",
        ),
        (
            json!([metric("a", "by_parity", true, false)]),
            "[0].init",
            "added up",
        ),
        (
            json!([{ "name": "a", "map": "by_parity", "agg": "sum" }]),
            "[0].agg",
            "hash",
        ),
    ];
    for (metrics, field, message) in cases {
        let problem = scene.put(&metrics).expect(422).json();
        let found = problem["errors"]
            .as_array()
            .expect("errors")
            .iter()
            .any(|finding| {
                finding["field"] == format!("ingress.metrics{field}")
                    && finding["message"]
                        .as_str()
                        .is_some_and(|text| text.contains(message))
            });
        assert!(found, "{problem}");
    }
    scene.bystanders.finish()
}

/// A metric on one inner map alone also makes the outer map private.
#[test]
fn an_inner_map_can_be_read_by_itself() -> Result<()> {
    let scene = Scene::new()?;
    scene.deploy(&json!([metric("even", "even", true, true)]));
    for _ in 0..3 {
        scene.send(PACKETS)?;
        let document = scene.read();
        let entries = document["ingress"]["even"]["entries"]
            .as_array()
            .expect("entries")
            .clone();
        assert_eq!(entries.len(), ADDRESSES as usize / 2);
        assert!(
            entries
                .iter()
                .all(|entry| entry["value"] == PACKETS / ADDRESSES),
            "{document}"
        );
    }
    scene.bystanders.finish()
}
