//! Several metrics of one map, and maps that both directions use.

use super::*;

/// Returns a patch with a metric `a` of map `m`, which is a snapshot, and another metric `b` of the
/// same map.
fn two(snapshot: bool, init: bool) -> Value {
    let first = json!({ "name": "a", "map": "m", "snapshot": true });
    let second =
        json!({ "name": "b", "map": "m", "snapshot": snapshot, "init": init, "export": false });
    json!({ "ingress": { "metrics": [first, second] } })
}

#[test]
fn metrics_of_one_map_agree_on_snapshot_and_init() {
    assert!(validate(&patched(&two(true, false))).is_ok());
    let words = "metric \"a\" reads map \"m\", too, with snapshot: true";
    refused(&two(false, false), "ingress.metrics[1].snapshot", words);
    let words = "with init: false; all metrics of a map must have the same snapshot and init";
    refused(&two(true, true), "ingress.metrics[1].init", words);
    // Each variable of a section counts as a map. Two metrics of one variable must agree.
    let variables = |second: &str| {
        let metric =
            |name: &str, map: &str, init: bool| json!({ "name": name, "map": map, "init": init });
        json!({ "ingress": { "metrics": [metric("a", ".bss:a", true), metric("b", second, false)] } })
    };
    assert!(validate(&patched(&variables(".bss:b"))).is_ok());
    refused(
        &variables(".bss:a"),
        "ingress.metrics[1].init",
        "reads map \".bss:a\", too",
    );
}

#[test]
fn metrics_of_a_shared_map_agree_in_both_directions() {
    let with = |shared: Value, init: bool| {
        let metric = |name: &str, init: bool| json!({ "name": name, "map": "m", "snapshot": true, "init": init });
        json!({
            "shared_maps": shared,
            "ingress": { "metrics": [metric("a", true)] },
            "egress": { "source": "int y;", "metrics": [metric("a", init)] },
        })
    };
    // The directions are two sources: the same names may mean different maps.
    assert!(validate(&patched(&with(json!([]), false))).is_ok());
    assert!(validate(&patched(&with(json!(["n"]), false))).is_ok());
    let agreed = validate(&patched(&with(json!(["n", "m"]), true))).unwrap();
    assert_eq!(agreed.shared_maps, ["n", "m"]);
    refused(
        &with(json!(["m"]), false),
        "egress.metrics[0].init",
        "metric \"a\" reads map \"m\", too",
    );
}

#[test]
fn shared_maps_are_names_of_maps_in_both_directions() {
    refused(
        &json!({ "shared_maps": ["m"] }),
        "shared_maps",
        "both are needed",
    );
    let both = |shared: Value| json!({ "shared_maps": shared, "egress": { "source": "int y;" } });
    refused(
        &both(json!(["m", "n", "m"])),
        "shared_maps[2]",
        "\"m\" is listed twice",
    );
    for name in ["", ".bss:x", ".bss", "a b", "1a"] {
        refused(
            &both(json!([name])),
            "shared_maps[0]",
            "is not a name of a map in the source",
        );
    }
    assert!(validate(&patched(&both(json!([])))).is_ok());
}
