//! Metrics that read global variables.

use crate::scene::{Scene, metric};
use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::traffic::Load;

const FRAME: u64 = 60;

fn value(document: &Value, name: &str) -> Value {
    let metric = &document["ingress"][name];
    assert_eq!(metric["type"], "global", "{document}");
    let entries = metric["entries"].as_array().expect("entries");
    assert_eq!(entries.len(), 1, "{document}");
    assert!(entries[0].get("key").is_none(), "{document}");
    entries[0]["value"].clone()
}

#[test]
fn variables_are_read_reset_and_added_up() -> Result<()> {
    let scene = Scene::new()?;
    for (snapshot, init) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut metrics = vec![
            metric("packets", ".bss:packets", snapshot, init),
            metric("totals", ".bss:totals", snapshot, init),
            metric("build", ".rodata:build", false, false),
        ];
        // Windows that begin with 100 can't be added up.
        if !snapshot || init {
            metrics.push(metric("from_hundred", ".data:from_hundred", snapshot, init));
        }
        let status = scene.deploy(&json!(metrics));
        let warnings = status["warnings"].to_string();
        assert_eq!(warnings.contains("unnamed"), snapshot, "{warnings}");
        for round in 1..=3 {
            scene.send(1000)?;
            let document = scene.read();
            let count = 1000 * if init { 1 } else { round };
            assert_eq!(
                value(&document, "packets"),
                count,
                "{snapshot} {init} {round}"
            );
            assert_eq!(
                value(&document, "totals"),
                json!({ "packets": count, "bytes": FRAME * count })
            );
            assert_eq!(value(&document, "build"), 42);
            if metrics.len() > 3 {
                // A reset restores the initial value and leaves the variable beside it alone.
                assert_eq!(
                    value(&document, "from_hundred"),
                    100 + count,
                    "{snapshot} {init} {round}"
                );
            }
        }
    }
    scene.bystanders.finish()
}

/// An aligned number is read and reset in one step: no packet is lost, even live and under load.
#[test]
fn a_live_counter_loses_nothing_by_a_reset() -> Result<()> {
    let scene = Scene::new()?;
    scene.deploy(&json!([metric("packets", ".bss:packets", false, true)]));
    let packets = twinprobe_tests::scaled(500_000, 20_000_000);
    let load = scene.generator()?.spawn(Load {
        count: Some(packets),
        ..Load::default()
    });
    let (mut sum, mut readings) = (0, 0);
    loop {
        let last = load.is_finished();
        sum += value(&scene.read(), "packets").as_u64().expect("a number");
        readings += 1;
        if last {
            break;
        }
    }
    assert_eq!(load.join()?, packets);
    assert_eq!(sum, packets, "after {readings} readings");
    scene.bystanders.finish()
}

/// Windows of a variable add up as those of maps, and the variable agrees with a map in each
/// window.
#[test]
fn windows_of_variables_add_up() -> Result<()> {
    let scene = Scene::new()?;
    scene.deploy(&json!([
        metric("packets", ".bss:packets", true, true),
        metric("totals", ".bss:totals", true, true),
        metric("odd_keys", "odd_keys", true, true),
    ]));
    let packets = twinprobe_tests::scaled(300_000, 10_000_000);
    let load = scene.generator()?.spawn(Load {
        count: Some(packets),
        ..Load::default()
    });
    let mut sum = 0;
    loop {
        let last = load.is_finished();
        let document = scene.read();
        let count = value(&document, "packets").as_u64().expect("a number");
        assert_eq!(
            value(&document, "totals"),
            json!({ "packets": count, "bytes": FRAME * count })
        );
        assert_eq!(
            twinprobe_tests::sample::total(&document, "ingress", "odd_keys"),
            count
        );
        sum += count;
        if last {
            break;
        }
    }
    load.join()?;
    assert_eq!(sum, packets);
    scene.bystanders.finish()
}

#[test]
fn what_variables_can_not_do_is_refused() -> Result<()> {
    let scene = Scene::new()?;
    let cases = [
        (
            json!([metric("a", ".bss:nosuch", false, false)]),
            "[0].map",
            "it has packets, totals, unnamed",
        ),
        (
            json!([metric("a", ".data:packets", false, false)]),
            "[0].map",
            "from_hundred",
        ),
        (
            json!([metric("a", ".rodata:build", false, true)]),
            "[0].init",
            "constant",
        ),
        (
            json!([metric("a", ".rodata:build", true, false)]),
            "[0].snapshot",
            "constant",
        ),
        (
            json!([metric("a", ".data:from_hundred", true, false)]),
            "[0].init",
            "initial value",
        ),
        (
            json!([{ "name": "a", "map": ".bss:packets", "agg": "sum" }]),
            "[0].agg",
            "PERCPU",
        ),
        (
            json!([{ "name": "a", "map": ".bss:packets", "type": "struct totals" }]),
            "[0].type",
            "leave it out",
        ),
        (
            json!([
                metric("a", ".bss:packets", true, true),
                metric("b", ".bss:totals", false, false)
            ]),
            "[1].snapshot",
            "all of .bss is",
        ),
        (
            json!([metric("a", ".bss", false, false)]),
            "[0].map",
            ".bss:VAR",
        ),
        (
            json!([metric("a", ".text:f", false, false)]),
            "[0].map",
            ".bss:VAR",
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
        assert!(found, "{field} {message}: {problem}");
    }
    scene.bystanders.finish()
}
