//! Fields of the probe as a whole, and samples.

use std::collections::BTreeMap;

use super::*;

#[test]
fn samples_are_one_packet_in_so_many() {
    let sample = |sample: Value| {
        let config = validate(&patched(&json!({ "ingress": { "sample": sample } }))).unwrap();
        config
            .ingress
            .unwrap()
            .attach
            .sample
            .map(std::num::NonZeroU32::get)
    };
    assert_eq!(sample(json!(1)), Some(1));
    assert_eq!(sample(json!(u32::MAX)), Some(u32::MAX));
    for wrong in [0, u64::from(u32::MAX) + 1, u64::MAX] {
        refused(
            &json!({ "ingress": { "sample": wrong } }),
            "ingress.sample",
            "1 to 4294967295",
        );
    }
    assert_eq!(
        validate(&patched(&json!({})))
            .unwrap()
            .ingress
            .unwrap()
            .attach
            .sample,
        None
    );
}

#[test]
fn labels_are_those_of_openmetrics() {
    let valid = json!({ "site": "turin", "_x9": "\"\\\n\t\u{e4}\u{1f980}", "indexed": "", "key": "k", "job": "j" });
    let labels = validate(&patched(&json!({ "labels": valid })))
        .unwrap()
        .labels;
    assert_eq!(serde_json::to_value(&labels).unwrap(), valid);
    assert_eq!(
        validate(&patched(&json!({}))).unwrap().labels,
        BTreeMap::new()
    );
    for name in ["", "9a", "a-b", "a.b", "\u{e4}", "__name__", "a b"] {
        refused(
            &json!({ "labels": { name: "x" } }),
            "labels",
            "is not a name of a label",
        );
    }
    for name in [
        "probe",
        "direction",
        "node",
        "instance",
        "cpu",
        "le",
        "quantile",
        "index",
        "index12",
    ] {
        refused(
            &json!({ "labels": { name: "x" } }),
            "labels",
            "choose another name",
        );
    }
    for subsystem in ["", "9", "a-b", "net ", &"n".repeat(65)] {
        refused(
            &json!({ "subsystem": subsystem }),
            "subsystem",
            "can't begin a metric's name",
        );
    }
    let subsystem = validate(&patched(&json!({ "subsystem": "net" })))
        .unwrap()
        .subsystem;
    assert_eq!(subsystem.as_deref(), Some("net"));
    refused(
        &json!({ "labels": { "n".repeat(129): "x" } }),
        "labels",
        "the limit is 128",
    );
    refused(
        &json!({ "labels": { "a": "x".repeat(1025) } }),
        "labels.a",
        "the limit is 1024",
    );
    for control in ["\u{0}", "a\rb", "\u{1b}", "\u{7f}", "\u{85}"] {
        refused(
            &json!({ "labels": { "a": control } }),
            "labels.a",
            "control character",
        );
    }
    let many = |count: usize| {
        (0..count)
            .map(|i| (format!("l{i}"), "x"))
            .collect::<BTreeMap<_, _>>()
    };
    assert!(validate(&patched(&json!({ "labels": many(32) }))).is_ok());
    refused(&json!({ "labels": many(33) }), "labels", "the limit is 32");
    let mistakes = json!({ "labels": { "probe": "x", "b": "\u{1}", "9": "x" } });
    assert_eq!(
        validate(&patched(&mistakes)).unwrap_err().len(),
        3,
        "all mistakes at once"
    );
}

#[test]
fn leases_are_durations() {
    let expires = |text: &str| {
        validate(&patched(&json!({ "expires": text })))
            .unwrap()
            .expires
            .unwrap()
    };
    for (text, milliseconds) in [
        ("100ms", 100),
        ("10m", 600_000),
        ("1h 30m", 5_400_000),
        ("8760h", 31_536_000_000),
    ] {
        assert_eq!(expires(text), Duration::from_millis(milliseconds), "{text}");
    }
    for text in ["", "10", "-5m", "99ms", "8761h", "1d", "never"] {
        refused(
            &json!({ "expires": text }),
            "expires",
            &format!("{text:?} is no"),
        );
    }
    assert_eq!(validate(&patched(&json!({}))).unwrap().expires, None);
}

#[test]
fn calls_are_functions_in_slots() {
    let valid = json!({ "parser": { "0": "outer", "4294967295": "inner" }, "none": {} });
    let found = validate(&patched(&json!({ "ingress": { "calls": valid } }))).unwrap();
    let Code::Source(source) = found.ingress.unwrap().code else {
        panic!("a source")
    };
    assert_eq!(
        source.calls["parser"],
        BTreeMap::from([(0, "outer".to_owned()), (u32::MAX, "inner".to_owned())])
    );
    assert!(source.calls["none"].is_empty());
    let calls = |calls: Value| json!({ "ingress": { "calls": calls } });
    refused(
        &calls(json!({ "a b": {} })),
        "ingress.calls",
        "not a name of a table of programs",
    );
    for slot in ["-1", "01", "x", "4294967296"] {
        refused(
            &calls(json!({ "t": { slot: "f" } })),
            "ingress.calls.t",
            "is not a slot",
        );
    }
    refused(
        &calls(json!({ "t": { "1": "a b" } })),
        "ingress.calls.t.1",
        "not a C identifier",
    );
    let many: Value = (0..251)
        .map(|slot: u32| (slot.to_string(), json!("f")))
        .collect();
    refused(
        &calls(json!({ "t": many })),
        "ingress.calls.t",
        "the limit is 250",
    );
    let libbpf = json!({ "ingress": { "dialect": "libbpf", "calls": {} } });
    refused(&libbpf, "ingress.calls", "calls is for the dialect bcc");
    let object = json!({ "ingress": { "source": null, "object": "AAAA", "calls": {} } });
    let mut object = patched(&object);
    object["ingress"].as_object_mut().unwrap().remove("source");
    assert_eq!(validate(&object).unwrap_err()[0].0, "ingress.calls");
}

#[test]
fn series_of_metrics_have_their_rules() {
    let metric = |more: Value| {
        let mut metric = json!({ "name": "m", "map": "m", "snapshot": true });
        metric
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({ "labels": { "site": "turin" }, "ingress": { "metrics": [metric] } })
    };
    let all = json!({ "sum_entries": 9, "sum_expires": "10m", "key_label": "sender", "max_series": 5, "series_by": "bytes" });
    let config = validate(&patched(&metric(all))).unwrap();
    let metric_of = &config.ingress.unwrap().metrics[0];
    assert_eq!(
        (metric_of.sum.entries, metric_of.sum.expires),
        (Some(9), Some(Duration::from_secs(600)))
    );
    assert_eq!(
        (metric_of.key_label.as_deref(), metric_of.max_series),
        (Some("sender"), Some(5))
    );
    assert_eq!(metric_of.series_by.as_deref(), Some("bytes"));
    let at = |field: &str| format!("ingress.metrics[0].{field}");
    refused(
        &metric(json!({ "series_by": "bytes" })),
        &at("series_by"),
        "it needs max_series",
    );
    for text in ["", "10", "99ms", "8761h", "never"] {
        refused(
            &metric(json!({ "sum_expires": text })),
            &at("sum_expires"),
            &format!("{text:?} is no"),
        );
    }
    refused(
        &metric(json!({ "sum_expires": "1h", "init": true })),
        &at("sum_expires"),
        "it needs snapshot",
    );
    for name in ["", "9a", "a-b", "__name__"] {
        refused(
            &metric(json!({ "key_label": name })),
            &at("key_label"),
            "is not a name of a label",
        );
    }
    for name in ["probe", "cpu", "le", "index", "site"] {
        refused(
            &metric(json!({ "key_label": name })),
            &at("key_label"),
            "choose another name",
        );
    }
    refused(
        &metric(json!({ "max_series": 0 })),
        &at("max_series"),
        "at least 1",
    );
}

#[test]
fn files_stay_in_the_folder_of_the_source() {
    let files = |files: Value| json!({ "ingress": { "files": files } });
    let valid = json!({ "sizes.h": "", "lib/a_b-c+d.h": "int x;", "lib/deep/..x.h": "" });
    let config = validate(&patched(&files(valid.clone()))).unwrap();
    let Some(Code::Source(source)) = config.ingress.map(|ingress| ingress.code) else {
        panic!("a source")
    };
    assert_eq!(serde_json::to_value(&source.files).unwrap(), valid);
    for (name, words) in [
        ("/etc/passwd", "is an absolute path"),
        ("../x.h", "leaves the source's folder"),
        ("a/../../x.h", "leaves the source's folder"),
        ("", "is not a name of a file"),
        ("a//b.h", "is not a name of a file"),
        ("./a.h", "is not a name of a file"),
        ("a\nb.h", "is not a name of a file"),
        ("a b.h", "is not a name of a file"),
        ("a\\b.h", "is not a name of a file"),
        ("probe.c", "is the name of the source itself"),
        (&*"n".repeat(256), "the limit is 255"),
    ] {
        refused(&files(json!({ name: "" })), "ingress.files", words);
    }
    refused(
        &files(json!({ "a": "", "a/b.h": "" })),
        "ingress.files",
        "is a file, and a folder",
    );
    refused(
        &files(json!({ "a.h": "x\n\0" })),
        "ingress.files.a.h",
        "NUL byte in line 2",
    );
    let many = |count: usize| {
        (0..count)
            .map(|i| (format!("f{i}"), "x"))
            .collect::<BTreeMap<_, _>>()
    };
    assert!(validate(&patched(&files(json!(many(256))))).is_ok());
    refused(
        &files(json!(many(257))),
        "ingress.files",
        "the limit is 256",
    );
    refused(
        &files(json!({ "a.h": "x".repeat(1 << 20) })),
        "ingress.files",
        "the limit is 1048576",
    );
    let object = json!({ "ingress": { "source": null, "object": "AAAA", "files": {} } });
    let mut config = patched(&json!({}));
    config["ingress"] = object["ingress"].clone();
    config["ingress"].as_object_mut().unwrap().remove("source");
    let rejection = validate(&config).unwrap_err();
    let is_refused = |(field, message): &(String, String)| {
        field == "ingress.files" && message.contains("is for the compiler")
    };
    assert!(rejection.iter().any(is_refused), "{rejection:?}");
}

#[test]
fn interfaces_are_taken_out_of_patterns() {
    let with = |interfaces: Value, excluded: Value| json!({ "interface": null, "interfaces": interfaces, "exclude_interfaces": excluded });
    let change = |patch: Value| {
        let mut config = patched(&json!({}));
        let config = config.as_object_mut().unwrap();
        config.remove("interface");
        config.extend(patch.as_object().unwrap().clone());
        config.remove("interface");
        json!(config)
    };
    let config = validate(&change(with(
        json!(["*", "eth0"]),
        json!(["lo", "docker*"]),
    )))
    .unwrap();
    assert!(
        config.places.excludes("lo")
            && config.places.excludes("docker0")
            && !config.places.excludes("eth0")
    );
    assert!(validate(&change(with(json!(["*"]), json!([])))).is_ok());
    for (interfaces, excluded, field, words) in [
        (
            json!(["eth0"]),
            json!(["lo"]),
            "exclude_interfaces",
            "there is no pattern",
        ),
        (
            json!(["*", "eth0"]),
            json!(["eth*"]),
            "exclude_interfaces",
            "excludes \"eth0\", which interfaces contains",
        ),
        (
            json!(["*"]),
            json!(["lo", "lo"]),
            "exclude_interfaces[1]",
            "is listed twice",
        ),
        (
            json!(["*"]),
            json!(["a/b"]),
            "exclude_interfaces[0]",
            "is not an interface name",
        ),
        (
            json!(["*"]),
            json!(vec!["x"; 1025]),
            "exclude_interfaces",
            "the limit is 1024",
        ),
    ] {
        let rejection = validate(&change(with(interfaces, excluded))).unwrap_err();
        let is_it = |(at, message): &(String, String)| at == field && message.contains(words);
        assert!(rejection.iter().any(is_it), "{words}: {rejection:?}");
    }
}
