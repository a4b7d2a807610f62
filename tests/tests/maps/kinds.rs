//! Further map types: every packet is in every map, with any strategy and any kind of metric.

use crate::scene::{ADDRESSES, MAPS, Scene, metric};
use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::sample::{total, window};

const PACKETS: u64 = 5_000;

/// Returns a metric's values by source address.
fn by_address(document: &Value, name: &str, address: impl Fn(&Value) -> u64) -> Vec<(u64, u64)> {
    let entries = document["ingress"][name]["entries"]
        .as_array()
        .expect("entries");
    let mut counts: Vec<(u64, u64)> = entries
        .iter()
        .map(|entry| {
            (
                address(&entry["key"]),
                entry["value"].as_u64().expect("a count"),
            )
        })
        .collect();
    counts.sort_unstable();
    counts
}

fn expected() -> Vec<(u64, u64)> {
    let first = u64::from(u32::from_be_bytes([198, 18, 0, 0]));
    (0..ADDRESSES)
        .map(|n| (first + n, PACKETS / ADDRESSES))
        .collect()
}

fn dotted(text: &Value) -> u64 {
    let address: std::net::Ipv4Addr = text.as_str().expect("text").parse().expect("an address");
    u64::from(u32::from(address))
}

/// LRU_PERCPU_HASH, LPM_TRIE and keys of seven bytes are exact with every strategy.
#[test]
fn further_types_count_every_packet() -> Result<()> {
    let scene = Scene::new()?;
    for strategy in ["auto", "iterative"] {
        for (snapshot, init) in [(true, true), (false, true), (true, false), (false, false)] {
            let metrics = ["in_lru_percpu_hash", "in_lpm_trie", "odd_keys"].map(|map| {
                let mut metric = metric(map, map, snapshot, init);
                metric["strategy"] = json!(strategy);
                if map == "in_lru_percpu_hash" {
                    metric["agg"] = json!("sum");
                }
                metric
            });
            scene.deploy(&json!(metrics));
            for round in 1..=3 {
                scene.send(PACKETS)?;
                let document = scene.read();
                let times = if init { 1 } else { round };
                let expected: Vec<_> = expected()
                    .into_iter()
                    .map(|(key, count)| (key, count * times))
                    .collect();
                let what = format!("{strategy} {snapshot} {init} {round}");
                let number = |key: &Value| key.as_u64().expect("a number");
                assert_eq!(
                    by_address(&document, "in_lru_percpu_hash", number),
                    expected,
                    "{what}"
                );
                assert_eq!(
                    by_address(&document, "in_lpm_trie", |key| dotted(&key["address"])),
                    expected,
                    "{what}"
                );
                assert_eq!(
                    by_address(&document, "odd_keys", |key| number(&key["address"])),
                    expected,
                    "{what}: {document}"
                );
            }
        }
    }
    let document = scene.read();
    let types =
        ["in_lru_percpu_hash", "in_lpm_trie"].map(|name| &document["ingress"][name]["type"]);
    assert_eq!(types, [&json!("lru_percpu_hash"), &json!("lpm_trie")]);
    scene.bystanders.finish()
}

/// Refusals name the valid choices.
#[test]
fn what_can_not_be_read_is_refused() -> Result<()> {
    let scene = Scene::new()?;
    let map = |definition: &str| {
        format!(
            "{}struct {{ {definition} }} m SEC(\".maps\");\n",
            MAPS.split_once("struct prefix").expect("prefix").0
        ) + "SEC(\"xdp\") int f(struct xdp_md *ctx) { return XDP_PASS; }\nchar L[] SEC(\"license\") = \"GPL\";\n"
    };
    let cases = [
        (
            "__uint(type, BPF_MAP_TYPE_PROG_ARRAY); __uint(max_entries, 1); __uint(key_size, 4); __uint(value_size, 4);",
            window("m", "m"),
            "map",
            "m is a table of programs (prog_array)",
        ),
        (
            "__uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 1); __uint(map_flags, BPF_F_RDONLY); __type(key, int); \
             __type(value, int);",
            window("m", "m"),
            "init",
            "BPF_F_RDONLY",
        ),
        (
            "__uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 1); __uint(map_flags, BPF_F_WRONLY); __type(key, int); \
             __type(value, int);",
            metric("m", "m", false, false),
            "map",
            "BPF_F_WRONLY",
        ),
        (
            "__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS); __uint(max_entries, 1); __type(key, int); __type(value, int);",
            window("m", "m"),
            "map",
            "__array(values",
        ),
    ];
    for (definition, metric, field, message) in cases {
        let config = json!({ "interface": "mon0", "ingress": { "source": map(definition), "metrics": [metric] } });
        let problem = scene
            .daemon
            .put("/v1/probes/other", &config)
            .expect(422)
            .json();
        let finding = &problem["errors"][0];
        assert_eq!(
            finding["field"],
            format!("ingress.metrics[0].{field}"),
            "{problem}"
        );
        assert!(
            finding["message"].as_str().expect("text").contains(message),
            "{problem}"
        );
    }
    // The finding has the message of the kernel, and a hint.
    for definition in [
        "__uint(type, BPF_MAP_TYPE_LPM_TRIE); __uint(max_entries, 1); __type(key, int); __type(value, int);",
        "__uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 1); __uint(key_size, 4); __uint(value_size, 0);",
    ] {
        let config = json!({
            "interface": "mon0", "ingress": { "source": map(definition), "metrics": [window("m", "m")] }
        });
        let problem = scene
            .daemon
            .put("/v1/probes/other", &config)
            .expect(422)
            .json();
        let message = problem["errors"][0]["message"].as_str().expect("text");
        assert!(
            message.contains("map m") && message.contains("a key of LPM_TRIE has 4 bytes"),
            "{problem}"
        );
    }
    scene.bystanders.finish()
}

/// A flow table of several batches is read live while packets come and the reader deletes entries:
/// a reading has only entries that a program wrote, no key twice, and it ends.
#[test]
fn live_readings_under_load() -> Result<()> {
    let scene = Scene::new()?;
    for strategy in ["auto", "iterative"] {
        let metrics = ["odd_keys", "in_lpm_trie"].map(|map| {
            let mut metric = metric(map, map, false, true);
            metric["strategy"] = json!(strategy);
            metric
        });
        scene.deploy(&json!(metrics));
        let load = scene
            .generator()?
            .spawn(twinprobe_tests::traffic::Load::default());
        let mut counted = 0;
        for _ in 0..50 {
            let document = scene.read();
            counted += total(&document, "ingress", "odd_keys");
            let keys = by_address(&document, "odd_keys", |key| {
                key["address"].as_u64().expect("a number")
            });
            assert!(keys.len() <= ADDRESSES as usize, "keys twice: {keys:?}");
            assert!(
                keys.windows(2).all(|pair| pair[0].0 != pair[1].0),
                "keys twice: {keys:?}"
            );
            assert!(
                keys.iter()
                    .all(|(key, count)| expected().iter().any(|(e, _)| e == key) && *count > 0)
            );
        }
        let sent = load.stop()?;
        counted += total(&scene.read(), "ingress", "odd_keys");
        // An addition during the removal of an entry may be lost, and nothing is counted twice.
        assert!((1..=sent).contains(&counted), "{counted} of {sent} packets");
    }
    scene.bystanders.finish()
}

/// Static maps, which clang names by their place in the section, are not mixed up.
#[test]
fn static_maps_are_not_mixed_up() -> Result<()> {
    let scene = Scene::new()?;
    let source = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#define COUNTER(NAME) static struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); \
	__type(value, __u64); } NAME SEC(".maps")
COUNTER(one);
COUNTER(two);
COUNTER(three);
static __always_inline void add(void *map, __u64 step)
{
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(map, &key);

	if (value)
		__sync_fetch_and_add(value, step);
}
SEC("xdp") int count(struct xdp_md *ctx)
{
	add(&three, 3);
	add(&one, 1);
	add(&two, 2);
	return XDP_DROP;
}
char LICENSE[] SEC("license") = "GPL";
"#;
    let metrics = [
        window("one", "one"),
        metric("two", "two", false, false),
        window("three", "three"),
    ];
    let config =
        json!({ "interface": "mon0", "ingress": { "source": source, "metrics": metrics } });
    scene.daemon.put("/v1/probes/maps", &config).expect(201);
    scene.send(1000)?;
    let document = scene.read();
    let totals = ["one", "two", "three"].map(|name| total(&document, "ingress", name));
    assert_eq!(totals, [1000, 2000, 3000]);
    scene.bystanders.finish()
}
