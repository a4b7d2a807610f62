//! The entries that maps begin with.

use std::sync::Arc;

use serde_json::{Value, json};
use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::hook::Hook;
use twinprobe_ebpf_common::metric::{Counting, MapCopy};
use twinprobe_ebpf_common::request::{Fills, MetricRequest};

use super::scene::{FACTS, at, compile, cumulative, live, texts, window};
use crate::plan::inherit::{Inherited, ReplacedDirection, inherit, origins};
use crate::plan::probe_plan::{FillEntry, MapPlan, ProbePlan};
use crate::plan::request::DirectionRequest;

const SOURCE: &str = r#"
#define SEC(name) __attribute__((section(name), used))
#define ADDRESS __attribute__((btf_decl_tag("ipv4")))
typedef unsigned int u32;
typedef unsigned char u8;
struct prefix { u32 length; u32 address ADDRESS; };
struct limit { u32 packets; u32 bytes; };
#define MAP(kind, count, K, V, name) \
    struct { int (*type)[kind]; int (*max_entries)[count]; K *key; V *value; } name SEC(".maps")
MAP(1, 4, struct prefix, struct limit, hosts);
MAP(2, 2, u32, u8, enabled);
MAP(6, 2, u32, u32, each);
MAP(22, 2, u32, u32, waiting);
struct { int (*type)[11]; int (*max_entries)[8]; int (*map_flags)[1]; struct prefix *key; u32 *value; } nets SEC(".maps");
char _license[] SEC("license") = "GPL";
SEC("xdp") int entry(void *ctx) { return 2; }
"#;

fn request(fill: Value, metrics: Vec<MetricRequest>) -> DirectionRequest {
    let fill: Fills = serde_json::from_value(fill).unwrap();
    DirectionRequest {
        fill: Arc::new(fill),
        ..at(Hook::Xdp, metrics)
    }
}

fn plan(request: DirectionRequest) -> (ProbePlan, Vec<Finding>) {
    let elf = compile(SOURCE);
    let (plan, _, findings) = ProbePlan::build([(request, &elf[..])], &[], FACTS);
    (plan, findings)
}

fn map(fill: Value, name: &str) -> MapPlan {
    let (plan, findings) = plan(request(fill, Vec::new()));
    assert_eq!(texts(&findings), []);
    plan.directions[0].map(name).unwrap().clone()
}

fn refused(fill: Value, metrics: Vec<MetricRequest>) -> Vec<(String, String)> {
    texts(&plan(request(fill, metrics)).1)
}

fn entry(key: &[u8], value: &[u8]) -> FillEntry {
    FillEntry {
        key: key.into(),
        value: value.into(),
    }
}

#[test]
fn entries_are_written_as_documents_show_them() {
    let fill = json!({ "hosts": [{ "key": { "length": 1, "address": "192.0.2.1" }, "value": { "bytes": 7 } }] });
    let wanted = entry(&[1, 0, 0, 0, 192, 0, 2, 1], &[0, 0, 0, 0, 7, 0, 0, 0]);
    assert_eq!(map(fill, "hosts").fill, [wanted]);
    assert_eq!(
        map(json!({ "each": [{ "key": 1, "value": 2 }] }), "each")
            .fill
            .len(),
        1
    );
}

#[test]
fn a_prefix_has_one_key_however_it_is_written() {
    let wanted = [entry(&[12, 0, 0, 0, 10, 16, 0, 0], &[1, 0, 0, 0])];
    for key in [
        json!("10.16.0.0/12"),
        json!("10.17.1.1/12"),
        json!({ "length": 12, "address": "10.16.9.9" }),
    ] {
        assert_eq!(
            map(json!({ "nets": [{ "key": key, "value": 1 }] }), "nets").fill,
            wanted
        );
    }
}

#[test]
fn mistakes_name_map_entry_and_field() {
    let one = |map: &str, key: Value, value: Value| {
        let mut found = refused(
            json!({ map: [{ "key": 0, "value": 0 }, { "key": key, "value": value }] }),
            Vec::new(),
        );
        found.retain(|(field, _)| !field.contains("[0]"));
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    };
    let (field, message) = one("enabled", json!(2), json!(1));
    assert_eq!(
        (&*field, &*message),
        (
            "fill.enabled[1].key",
            "2 does not fit; the map has the indices 0 to 1"
        )
    );
    let (field, message) = one("enabled", json!(1), json!(256));
    assert_eq!(field, "fill.enabled[1].value");
    assert!(message.contains("0 to 255"), "{message}");
    let (field, message) = one("enabled", json!(0), json!(1));
    assert_eq!(field, "fill.enabled[1].key");
    assert!(
        message.contains("has a value already, in fill.enabled[0]"),
        "{message}"
    );
    for key in ["10.0.0.0/33", "10.0.0.0/x", "2001:db8::/32"] {
        let (field, message) = one("nets", json!(key), json!(1));
        assert!(
            field == "fill.nets[1].key" && message.contains("does not fit"),
            "{field} {message}"
        );
    }
    let host = json!({ "length": 1, "address": "x" });
    assert_eq!(one("hosts", host, json!({})).0, "fill.hosts[1].key");
    let many: Vec<Value> = (0..3)
        .map(|key| json!({ "key": key, "value": 1 }))
        .collect();
    let found = refused(json!({ "enabled": many }), Vec::new());
    assert!(
        found[0]
            .1
            .contains("3 entries do not fit, the map has max_entries 2"),
        "{found:?}"
    );
}

#[test]
fn maps_that_can_not_be_filled_are_named_with_the_reason() {
    let found = refused(json!({ "missing": [] }), Vec::new());
    assert_eq!(found[0].0, "fill.missing");
    assert!(
        found[0]
            .1
            .contains("there is no map missing; there are each, enabled, hosts, nets, waiting"),
        "{found:?}"
    );
    let found = refused(json!({ "waiting": [] }), Vec::new());
    assert!(
        found[0]
            .1
            .contains("map waiting is a queue, and fill is for hash"),
        "{found:?}"
    );
    let init = MetricRequest {
        counting: Counting::Window(MapCopy::Live),
        ..live("each")
    };
    for metric in [window("each"), cumulative("each"), init] {
        let found = refused(json!({ "each": [] }), vec![metric]);
        assert!(
            found[0]
                .1
                .contains("metric of_each reads map each and windows empty it"),
            "{found:?}"
        );
    }
    assert_eq!(refused(json!({ "each": [] }), vec![live("each")]), []);
}

#[test]
fn a_replacement_keeps_a_map_unless_its_entries_are_new() {
    let origin = |before: &Value, after: DirectionRequest| {
        let (old, _) = plan(request(before.clone(), Vec::new()));
        let (new, _) = plan(after);
        let (old, new) = (&old.directions[0], &new.directions[0]);
        let none = Default::default();
        let old = [ReplacedDirection {
            plan: old,
            more_known: &none,
        }];
        let origins: Vec<Vec<usize>> = new
            .maps
            .iter()
            .map(|map| origins(&old, new, None, map))
            .collect();
        let index = new
            .maps
            .iter()
            .position(|map| map.name == "enabled")
            .unwrap();
        inherit(&old, new, &origins)[index]
    };
    let with = |entries: Value| json!({ "enabled": entries });
    let before = with(json!([{ "key": 0, "value": 1 }, { "key": 1, "value": 1 }]));
    let fewer = with(json!([{ "key": 1, "value": 1 }]));
    let other = with(json!([{ "key": 1, "value": 2 }]));
    let after = |fill: &Value| request(fill.clone(), Vec::new());
    assert_eq!(origin(&before, after(&before)), Inherited::Same);
    assert_eq!(origin(&before, after(&fewer)), Inherited::Same);
    assert_eq!(origin(&before, after(&json!({}))), Inherited::Same);
    assert_eq!(origin(&before, after(&other)), Inherited::Convert);
    let anew = DirectionRequest {
        anew: ["enabled".to_owned()].into(),
        ..after(&before)
    };
    assert_eq!(origin(&before, anew), Inherited::New);
}
