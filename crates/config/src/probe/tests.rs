mod fields;
mod interfaces;
mod openapi;
mod shared;

use std::time::Duration;

use serde_json::{Value, json};
use twinprobe_api::parse_document;
use twinprobe_ebpf_common::hook::{Position, Verdict, XdpMode};
use twinprobe_ebpf_common::metric::{Counting, MapCopy, OnReplace, Visibility};
use twinprobe_ebpf_common::{Aggregation, MergeRule};

use super::*;
use crate::direction::code::Code;
use crate::metric::MetricConfig;
use crate::validate::names::is_probe_name;

fn validate(config: &Value) -> Result<ProbeConfig, Vec<(String, String)>> {
    let document = parse_document(config.to_string().as_bytes()).expect("a well-formed document");
    ProbeConfig::validate("flows", &document).map_err(|rejection| {
        rejection
            .findings
            .into_iter()
            .map(|f| (f.field.unwrap_or_default(), f.message))
            .collect()
    })
}

/// Returns a valid configuration with `patch` merged into it recursively.
fn patched(patch: &Value) -> Value {
    fn merge(base: &mut Value, patch: &Value) {
        match (base, patch) {
            (Value::Object(base), Value::Object(patch)) => {
                for (key, value) in patch {
                    merge(base.entry(key).or_insert(Value::Null), value);
                }
            }
            (base, patch) => *base = patch.clone(),
        }
    }
    let mut config = json!({ "interface": "eth0", "ingress": { "source": "int x;" } });
    merge(&mut config, patch);
    config
}

#[track_caller]
fn refused(patch: &Value, field: &str, words: &str) {
    let findings = validate(&patched(patch)).expect_err("must be refused");
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].0, field);
    assert!(
        findings[0].1.contains(words),
        "{:?} lacks {words:?}",
        findings[0].1
    );
}

#[test]
fn defaults_are_those_of_the_contract() {
    let probe = validate(&json!({
        "interface": "eth0",
        "ingress": { "source": "int x;", "metrics": [{ "name": "n", "map": "m" }] },
        "egress": { "source": "int y;" },
    }))
    .unwrap();
    let names: Vec<_> = probe
        .places
        .interfaces
        .iter()
        .map(|interface| interface.text.as_str())
        .collect();
    assert_eq!(
        (probe.name.as_str(), names, probe.format),
        ("flows", vec!["eth0"], Format::Json)
    );
    let directions: Vec<_> = probe
        .directions()
        .map(|(direction, config)| (direction, config.attach.hook.name()))
        .collect();
    assert_eq!(
        directions,
        [
            (Direction::Ingress, "xdp"),
            (Direction::Egress, "tc-egress")
        ]
    );
    let ingress = probe.direction(Direction::Ingress).unwrap();
    let attach = ingress.attach;
    assert_eq!(
        (attach.xdp_mode, attach.verdict, attach.priority),
        (XdpMode::Auto, Verdict::Observe, 0)
    );
    let Code::Source(source) = &ingress.code else {
        panic!("{:?}", ingress.code)
    };
    assert_eq!((source.text.as_str(), source.defines.len()), ("int x;", 0));
    let MetricConfig {
        request: metric,
        help,
        ..
    } = &ingress.metrics[0];
    assert_eq!((&metric.name[..], &metric.map[..], help), ("n", "m", &None));
    assert_eq!(metric.counting, Counting::Live);
    assert_eq!(
        (metric.visibility, metric.aggregation),
        (Visibility::Export, None)
    );
    assert_eq!(metric.on_replace, OnReplace::Carry);
    assert!(!probe.places.wait_for_interface);
    assert_eq!(probe.places.netns(), None);
    let egress = probe.direction(Direction::Egress).unwrap();
    assert_eq!(
        (egress.attach.priority, egress.attach.position),
        (0, Position::Last)
    );
}

#[test]
fn everything_that_is_given_arrives() {
    let probe = validate(&patched(&json!({
        "name": "flows", "format": "xml",
        "ingress": { "hook": "tc", "verdict": "enforce", "defines": { "N": "4" }, "metrics": [
            { "name": "a:b", "map": "m", "help": "h", "snapshot": true, "init": true, "export": false, "agg": "avg" },
            { "name": "total", "map": "t", "snapshot": true },
            { "name": "parts", "map": "p", "snapshot": true, "merge": { "tcp.syn": "max" } },
        ] },
    })))
    .unwrap();
    assert_eq!(probe.format, Format::Xml);
    let ingress = probe.direction(Direction::Ingress).unwrap();
    assert_eq!(
        (ingress.attach.hook.name(), ingress.attach.verdict),
        ("tc-ingress", Verdict::Enforce)
    );
    let Code::Source(source) = &ingress.code else {
        panic!("{:?}", ingress.code)
    };
    assert_eq!(source.defines["N"], "4");
    let requests: Vec<_> = ingress
        .metrics
        .iter()
        .map(|metric| &metric.request)
        .collect();
    let [window, total, parts] = requests[..] else {
        panic!("three metrics")
    };
    assert_eq!(window.counting, Counting::Window(MapCopy::Snapshot));
    assert_eq!(
        (window.visibility, window.aggregation),
        (Visibility::Hidden, Some(Aggregation::Avg))
    );
    assert_eq!(total.rules().unwrap().default, MergeRule::Sum);
    assert_eq!(parts.rules().unwrap().fields["tcp.syn"], MergeRule::Max);
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let findings = validate(&json!({
        "format": "yaml",
        "interfaces": ["eth0", "eth0", "a/b"],
        "ingress": { "hook": "kprobe", "verdict": "drop", "source": " \n", "metrics": [
            { "map": "m", "agg": "median" }, { "name": "1x", "map": "m", "init": true } ] },
        "egress": { "mode": "native" },
    }))
    .unwrap_err();
    let fields: Vec<_> = findings.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "interfaces[1]",
            "interfaces[2]",
            "format",
            "ingress.hook",
            "ingress.verdict",
            "ingress.source",
            "ingress.metrics[0].name",
            "ingress.metrics[0].agg",
            "ingress.metrics[1].name",
            "egress.mode",
            "egress.source",
            "ingress.metrics[1].init",
        ]
    );
}

#[test]
fn probe_names_are_path_segments() {
    for good in ["a", "0", "Flow-features_2.1", &"x".repeat(64)] {
        assert!(is_probe_name(good), "{good}");
    }
    for bad in [
        "",
        ".",
        "..",
        "-a",
        "_a",
        ".a",
        "a/b",
        "a b",
        "ä",
        "a\n",
        "a%2f",
        &"x".repeat(65),
    ] {
        assert!(!is_probe_name(bad), "{bad}");
        let document = ConfigDocument::default();
        let findings = ProbeConfig::validate(bad, &document).unwrap_err().findings;
        assert_eq!(findings[0].field.as_deref(), Some("name"));
    }
    refused(&json!({ "name": "other" }), "name", "they must agree");
}

#[test]
fn order_and_replacement_are_inherited_and_overridden() {
    let probe = validate(&json!({
        "interface": "eth0", "priority": -5, "position": "first", "on_replace": "reset",
        "ingress": { "source": "x", "metrics": [
            { "name": "a", "map": "a" }, { "name": "b", "map": "b", "on_replace": "carry" } ] },
        "egress": { "source": "x", "priority": 32767, "position": "last" },
    }))
    .unwrap();
    let [ingress, egress] = Direction::ALL.map(|direction| probe.direction(direction).unwrap());
    assert_eq!(
        (ingress.attach.priority, ingress.attach.position),
        (-5, Position::First)
    );
    assert_eq!(
        (egress.attach.priority, egress.attach.position),
        (32767, Position::Last)
    );
    let on_replace: Vec<_> = ingress
        .metrics
        .iter()
        .map(|metric| metric.request.on_replace)
        .collect();
    assert_eq!(on_replace, [OnReplace::Reset, OnReplace::Carry]);

    refused(&json!({ "priority": 32768 }), "priority", "-32768 to 32767");
    refused(
        &json!({ "ingress": { "priority": -32769 } }),
        "ingress.priority",
        "lower ones run first",
    );
    refused(
        &json!({ "position": "middle" }),
        "position",
        "use one of first, last",
    );
    refused(
        &json!({ "on_replace": "keep" }),
        "on_replace",
        "use one of carry, reset",
    );
    let metrics = json!([{ "name": "a", "map": "m", "on_replace": "keep" }]);
    refused(
        &json!({ "ingress": { "metrics": metrics } }),
        "ingress.metrics[0].on_replace",
        "use one of carry, reset",
    );
}

#[test]
fn positions_belong_to_tc() {
    let field = "ingress.position";
    refused(
        &json!({ "ingress": { "position": "first" } }),
        field,
        "use tc",
    );
    refused(
        &json!({ "ingress": { "hook": "xdp", "position": "last" } }),
        field,
        "use tc",
    );
    refused(
        &json!({ "ingress": { "hook": "tc", "position": "x" } }),
        field,
        "use one of first, last",
    );
    assert!(
        validate(&patched(&json!({ "position": "first" }))).is_ok(),
        "what is said for all directions may mean nothing for one"
    );
    assert!(
        validate(&patched(
            &json!({ "ingress": { "hook": "tc", "position": "first" } })
        ))
        .is_ok()
    );
    // The position adds no finding, because an unknown hook may have positions.
    refused(
        &json!({ "ingress": { "hook": "bogus", "position": "first" } }),
        "ingress.hook",
        "unknown hook",
    );
}

#[test]
fn hooks_modes_and_formats() {
    refused(
        &json!({ "ingress": { "mode": "fast" } }),
        "ingress.mode",
        "use one of auto, native, generic",
    );
    refused(
        &json!({ "ingress": { "hook": "tc", "mode": "auto" } }),
        "ingress.mode",
        "hook xdp",
    );
    refused(
        &json!({ "egress": { "hook": "xdp", "source": "x" } }),
        "egress.hook",
        "use tc",
    );
    refused(
        &json!({ "egress": { "hook": "tcx", "source": "x" } }),
        "egress.hook",
        "use tc",
    );
    refused(
        &json!({ "ingress": { "hook": "XDP" } }),
        "ingress.hook",
        "use xdp or tc",
    );
}

/// Returns a patch with a metric that has windows, and this `window`.
fn windowed(window: &Value) -> Value {
    json!({
        "ingress": { "metrics": [{ "name": "n", "map": "m", "snapshot": true, "init": true }] },
        "window": window,
    })
}

#[test]
fn windows_are_scheduled_and_retained() {
    let window = |window: Value| {
        validate(&patched(&windowed(&window)))
            .unwrap()
            .window
            .unwrap()
    };
    assert_eq!(window(json!({})), WindowConfig::default());
    let given = window(json!({
        "interval": "250ms", "align": true, "retain": 3, "retain_bytes": 4096, "collectors": ["a", "b-1"],
    }));
    let schedule = Schedule {
        interval: Duration::from_millis(250),
        align: true,
    };
    assert_eq!(given.schedule, Some(schedule));
    assert_eq!((given.retain, given.retain_bytes), (3, 4096));
    assert_eq!(given.collectors, ["a", "b-1"]);
    for (text, seconds) in [
        ("10s", 10),
        ("5m", 300),
        ("1h", 3600),
        ("24h", 86_400),
        ("1m 30s", 90),
    ] {
        let interval = window(json!({ "interval": text }))
            .schedule
            .unwrap()
            .interval;
        assert_eq!(interval, Duration::from_secs(seconds), "{text}");
    }
}

#[test]
fn mistakes_about_windows_name_their_field() {
    for text in ["", "10", "-5s", "ten seconds", "0s", "999us", "25h", "1d"] {
        refused(
            &windowed(&json!({ "interval": text })),
            "window.interval",
            &format!("{text:?} is no"),
        );
    }
    refused(
        &windowed(&json!({ "align": true })),
        "window.align",
        "needs an interval",
    );
    refused(
        &windowed(&json!({ "retain": 0 })),
        "window.retain",
        "1 to 100000",
    );
    refused(
        &windowed(&json!({ "retain": 100_001 })),
        "window.retain",
        "1 to 100000",
    );
    refused(
        &windowed(&json!({ "retain_bytes": 0 })),
        "window.retain_bytes",
        "at least 1 byte",
    );
    refused(
        &windowed(&json!({ "collectors": ["a", "a"] })),
        "window.collectors[1]",
        "listed twice",
    );
    refused(
        &windowed(&json!({ "collectors": ["/"] })),
        "window.collectors[0]",
        "not a name of a collector",
    );
}

#[test]
fn sources_and_defines_are_limited() {
    refused(
        &json!({ "ingress": { "source": "x\n\u{0}" } }),
        "ingress.source",
        "NUL byte in line 2",
    );
    refused(
        &json!({ "ingress": { "source": "x".repeat((1 << 20) + 1) } }),
        "ingress.source",
        "the limit is 1048576",
    );
    refused(
        &json!({ "ingress": { "dialect": "c" } }),
        "ingress.dialect",
        "libbpf",
    );
    refused(
        &json!({ "ingress": { "entry": "a b" } }),
        "ingress.entry",
        "not a C identifier",
    );
    refused(
        &json!({ "ingress": { "defines": { "A B": "1" } } }),
        "ingress.defines",
        "not a C identifier",
    );
    refused(
        &json!({ "ingress": { "defines": { "A": "1\n2" } } }),
        "ingress.defines.A",
        "line break",
    );
    refused(
        &json!({ "ingress": { "defines": { "A": "1".repeat(4097) } } }),
        "ingress.defines.A",
        "the limit is 4096",
    );
    let long = json!({ "A".repeat(4097): "1" });
    refused(
        &json!({ "ingress": { "defines": long } }),
        "ingress.defines",
        "4097 bytes; the limit is 4096",
    );
    let many: serde_json::Map<_, _> = (0..257).map(|i| (format!("N{i}"), json!(""))).collect();
    refused(
        &json!({ "ingress": { "defines": many } }),
        "ingress.defines",
        "the limit is 256",
    );
}

#[test]
fn metrics_name_one_map_each() {
    let with = |metrics: Value| json!({ "ingress": { "metrics": metrics } });
    let at = |field: &str| format!("ingress.metrics{field}");
    refused(&with(json!([{ "map": "m" }])), &at("[0].name"), "no name");
    refused(
        &with(json!([{ "name": "a-b", "map": "m" }])),
        &at("[0].name"),
        "not a metric name",
    );
    refused(
        &with(json!([{ "name": "a" }])),
        &at("[0].map"),
        "names no map",
    );
    refused(
        &with(json!([{ "name": "a", "map": "" }])),
        &at("[0].map"),
        "not a name of a map",
    );
    refused(
        &with(json!([{ "name": "a", "map": ".text:v" }])),
        &at("[0].map"),
        ".bss:VAR",
    );
    refused(
        &with(json!([{ "name": "a", "map": ".bss:" }])),
        &at("[0].map"),
        "not a name of a map",
    );
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
    // The directions are two sources: the same names may mean different maps.
    let both = json!({ "source": "x", "metrics": [{ "name": "a", "map": "m" }] });
    assert!(validate(&patched(&json!({ "ingress": both, "egress": both }))).is_ok());
}

#[test]
fn merge_belongs_to_cumulative_snapshots() {
    let with = |snapshot: bool, init: bool, merge: Value| {
        let metric =
            json!({ "name": "a", "map": "m", "snapshot": snapshot, "init": init, "merge": merge });
        json!({ "ingress": { "metrics": [metric] } })
    };
    let field = "ingress.metrics[0].merge";
    refused(
        &with(false, false, json!("sum")),
        field,
        "needs snapshot: true and init: false",
    );
    refused(
        &with(true, true, json!("sum")),
        field,
        "needs snapshot: true and init: false",
    );
    refused(
        &with(true, false, json!("avg")),
        field,
        "use one of sum, max, min, or, last",
    );
    refused(
        &with(true, false, json!({ "b": "avg" })),
        "ingress.metrics[0].merge.b",
        "unknown merge rule",
    );
    assert!(validate(&patched(&with(true, false, json!("or")))).is_ok());
}

#[test]
fn no_bytes_panic() {
    let full = patched(&json!({
        "netns": "/run/netns/x", "priority": -1, "window": { "interval": "10s", "retain": 32 },
        "ingress": { "defines": { "N": "1024" }, "metrics": [{ "name": "n", "map": "m", "snapshot": true,
            "agg": "sum", "merge": { "bytes": "max" } }] },
    }));
    let full = full.to_string();
    let mut state = 1_u64;
    let mut next = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for _ in 0..20_000 {
        let mut bytes = full.as_bytes().to_vec();
        for _ in 0..=next(4) {
            let at = next(bytes.len());
            match next(4) {
                0 => bytes[at] = next(256) as u8,
                1 => bytes.truncate(at.max(1)),
                2 => bytes.insert(at, b"{}[]\",:\\n0"[next(10)]),
                _ => drop(bytes.remove(at)),
            }
            if bytes.is_empty() {
                bytes.push(b'{');
            }
        }
        if let Ok(document) = parse_document(&bytes) {
            let _ = ProbeConfig::validate("flows", &document);
        }
    }
}
