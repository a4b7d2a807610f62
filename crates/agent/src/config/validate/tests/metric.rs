//! Tests of the rules of `metrics`.

use super::*;

#[test]
fn metrics_name_one_map_each() {
    let with = |metrics: Value| json!({ "ingress": { "metrics": metrics } });
    let at = |field: &str| format!("ingress.metrics{field}");
    refused(&with(json!([{ "map": "m" }])), &at("[0].name"), "no name");
    refused(&with(json!([{ "name": "a-b", "map": "m" }])), &at("[0].name"), "no metric name");
    refused(&with(json!([{ "name": "a" }])), &at("[0].map"), "names no map");
    refused(&with(json!([{ "name": "a", "map": "" }])), &at("[0].map"), "no name of a map");
    refused(&with(json!([{ "name": "a", "map": ".text:v" }])), &at("[0].map"), ".bss:VAR");
    refused(&with(json!([{ "name": "a", "map": ".bss:" }])), &at("[0].map"), "no name of a map");
    refused(
        &with(json!([{ "name": "a", "map": "m", "strategy": "fast" }])),
        &at("[0].strategy"),
        "use one of auto, iterative",
    );
    refused(
        &with(json!([{ "name": "a", "map": "m", "agg": "median" }])),
        &at("[0].agg"),
        "use one of sum, avg, min, max",
    );
    let twice = json!([{ "name": "a", "map": "m" }, { "name": "a", "map": "n" }]);
    refused(&with(twice), &at("[1].name"), "called \"a\" already");
    let shared = json!([{ "name": "a", "map": "m" }, { "name": "b", "map": "m" }]);
    refused(&with(shared), &at("[1].map"), "map \"m\" is already read by metric \"a\"");
    // The directions are two sources: the same names may mean different maps.
    let both = json!({ "source": "x", "metrics": [{ "name": "a", "map": "m" }] });
    assert!(validate(&patched(&json!({ "ingress": both, "egress": both }))).is_ok());
}

#[test]
fn merge_belongs_to_cumulative_snapshots() {
    let with = |snapshot: bool, init: bool, merge: Value| {
        let metric = json!({ "name": "a", "map": "m", "snapshot": snapshot, "init": init, "merge": merge });
        json!({ "ingress": { "metrics": [metric] } })
    };
    let field = "ingress.metrics[0].merge";
    refused(&with(false, false, json!("sum")), field, "needs snapshot: true and init: false");
    refused(&with(true, true, json!("sum")), field, "needs snapshot: true and init: false");
    refused(&with(true, false, json!("avg")), field, "use one of sum, max, min, or, last");
    refused(&with(true, false, json!({ "b": "avg" })), "ingress.metrics[0].merge.b", "unknown merge rule");
    assert!(validate(&patched(&with(true, false, json!("or")))).is_ok());
}
