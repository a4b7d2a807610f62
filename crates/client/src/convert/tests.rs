//! Configurations of the shapes that dynmon and DeChainy publish, with sources of our own.

use serde_json::{Value, json};

use super::convert::convert;
use super::converted::{ConvertError, Converted, Wishes};
use super::declared::declared;

fn converted(document: &Value) -> Result<Converted, ConvertError> {
    convert(&document.to_string(), &Wishes::default())
}

fn dynmon() -> Value {
    let metadata =
        |labels: Value| json!({ "help": "Packets", "type": "counter", "labels": labels });
    let both = json!([{ "name": "L4", "value": "UDP" }]);
    let more = json!([{ "name": "L4", "value": "UDP" }, { "name": "KIND", "value": "a" }]);
    json!({
        "ingress-path": { "name": "NTP packets (all)", "code": "\r\n int a;", "metric-configs": [
            { "name": "packets_total", "map-name": "N", "extraction-options": { "swap-on-read": true,
              "empty-on-read": false }, "open-metrics-metadata": metadata(both) },
            { "name": "odd_total", "map-name": "M", "extraction-options": { "swap-on-read": true,
              "empty-on-read": true }, "open-metrics-metadata": metadata(more) }
        ] },
        "egress-path": {}
    })
}

#[test]
fn a_data_plane_of_dynmon() {
    let wishes = Wishes {
        interface: Some("eth1".to_owned()),
        name: None,
    };
    let Converted { probes, notes } = convert(&dynmon().to_string(), &wishes).unwrap();
    let expected = json!({
        "name": "ntp-packets-all", "interface": "eth1", "labels": { "L4": "UDP" },
        "ingress": { "hook": "tc", "dialect": "bcc", "source": "\r\n int a;", "metrics": [
            { "name": "packets_total", "map": "N", "snapshot": true, "help": "Packets" },
            { "name": "odd_total", "map": "M", "snapshot": true, "init": true, "help": "Packets" }
        ] }
    });
    assert_eq!(probes, [expected]);
    let about = |words: &str| notes.iter().filter(|note| note.contains(words)).count();
    assert_eq!(
        (
            about("type counter is left out"),
            about("odd_total: the labels KIND")
        ),
        (2, 1),
        "{notes:?}"
    );
    assert!(
        converted(&dynmon())
            .unwrap_err()
            .to_string()
            .contains("--interface")
    );
}

#[test]
fn a_cube_of_dynmon() {
    let mut plane = dynmon();
    plane["egress-path"] = json!({ "code": "int b;" });
    let cube = json!({ "name": "monitor_0", "type": "TYPE_XDP_DRV", "parent": "eth2", "dataplane-config": plane });
    let probe = &converted(&cube).unwrap().probes[0];
    assert_eq!(
        (&probe["name"], &probe["interface"]),
        (&json!("monitor_0"), &json!("eth2"))
    );
    assert_eq!(
        (&probe["ingress"]["hook"], &probe["ingress"]["mode"]),
        (&json!("xdp"), &json!("native"))
    );
    assert_eq!(
        probe["egress"],
        json!({ "hook": "tc", "dialect": "bcc", "source": "int b;", "metrics": [] })
    );
}

const SOURCE: &str = "
#if INGRESS
BPF_TABLE_SHARED(\"hash\", struct k, u64, SEEN, N * 2)__attributes__((SWAP, EXPORT, EMPTY));
BPF_QUEUESTACK_SHARED(\"queue\", SAMPLES, struct f, 16, 0)__attributes__((EXPORT));
#else
BPF_TABLE(\"extern\", struct k, u64, SEEN, N * 2)__attributes__((SWAP, EXPORT, EMPTY));
BPF_QUEUESTACK(\"extern\", SAMPLES, struct f, 16, 0);
#endif
BPF_TABLE(\"array\", int, int, SCRATCH, 1)__attributes__((EMPTY));
BPF_ARRAY(OWN, u64, 1);
BPF_PERF_SHARED(\"perf_output\", EVENTS);
";

#[test]
fn a_startup_file_of_dechainy() {
    let document = json!({
        "plugins": ["adaptmon"], "server": { "port": 8080 },
        "probes": [
            { "plugin": "adaptmon", "name": "Statistics", "mode": "XDP", "interface": "eth0", "time_window": 2.5,
              "ingress": SOURCE, "egress": SOURCE, "cp_function": "def f(): pass" },
            { "plugin": "mitigator", "name": "probe", "interface": "eth0" }
        ],
        "clusters": [{ "name": "c", "probes": [
            { "name": "in cluster", "mode": 6, "flags": 2, "interface": "eth3", "log_level": "DEBUG",
              "ingress": { "required": true, "cflags": ["-DN=4", "-DTEST", "-w"], "code": "int a;" } }
        ] }]
    });
    let Converted { probes, notes } = converted(&document).unwrap();
    let metrics = json!([
        { "name": "SEEN", "map": "SEEN", "snapshot": true, "init": true },
        { "name": "SAMPLES", "map": "SAMPLES" },
        { "name": "SCRATCH", "map": "SCRATCH", "init": true, "export": false },
        { "name": "EVENTS", "map": "EVENTS" }
    ]);
    let statistics = json!({
        "name": "statistics", "interface": "eth0", "shared_maps": ["SEEN", "SAMPLES"],
        "ingress": { "hook": "xdp", "dialect": "bcc", "source": SOURCE, "metrics": metrics },
        "egress": { "hook": "tc", "dialect": "bcc", "source": SOURCE, "metrics": [metrics[2], metrics[3]] },
        "window": { "interval": "2500ms" }
    });
    let in_cluster = json!({
        "name": "in-cluster", "interface": "eth3",
        "ingress": { "hook": "xdp", "dialect": "bcc", "source": "int a;", "mode": "generic",
            "defines": { "LOG_LEVEL": "10", "N": "4", "TEST": "1" }, "metrics": [] }
    });
    assert_eq!(probes, [statistics, in_cluster]);
    for words in [
        "probe: the configuration has no source",
        "statistics: cp_function",
        "c: the probes of a cluster become",
        "the flag -w",
    ] {
        assert!(
            notes.iter().any(|note| note.contains(words)),
            "{words}: {notes:?}"
        );
    }
}

#[test]
fn modes_of_dechainy_are_hooks() {
    let hook = |mode: Value, flags: u64| {
        let probe = json!({ "interface": "e", "mode": mode, "flags": flags, "ingress": "int a;" });
        let ingress = converted(&probe).unwrap().probes[0]["ingress"].clone();
        (ingress["hook"].clone(), ingress.get("mode").cloned())
    };
    for (mode, flags, ours) in [
        (json!("TC"), 0, ("tc", None)),
        (json!(3), 0, ("tc", None)),
        (json!("xdp"), 0, ("xdp", None)),
        (json!(6), 0, ("xdp", None)),
        (json!(6), 2, ("xdp", Some("generic"))),
        (json!("XDP_SKB"), 0, ("xdp", Some("generic"))),
        (json!(6), 4, ("xdp", Some("native"))),
        (json!("XDP_DRV"), 0, ("xdp", Some("native"))),
        (json!(6), 8, ("xdp", Some("native"))),
    ] {
        assert_eq!(
            hook(mode, flags),
            (json!(ours.0), ours.1.map(|mode| json!(mode))),
            "flags {flags}"
        );
    }
}

/// Without `__attributes__` the file does not say which tables are read. The command line gives the
/// fields that the file lacks, or other values.
#[test]
fn tables_without_attributes_are_read_as_they_are() {
    let source = "BPF_HASH(FLOWS, u32);\nBPF_ARRAY(SIZES, u64, 4);";
    let probe =
        json!({ "name": "theirs", "interface": "eth0", "ingress": source, "files": { "a.h": "" } });
    let wishes = Wishes {
        name: Some("ours".to_owned()),
        interface: Some("eth7".to_owned()),
    };
    let Converted { probes, notes } = convert(&probe.to_string(), &wishes).unwrap();
    let metrics = ["FLOWS", "SIZES"].map(|table| json!({ "name": table, "map": table }));
    assert_eq!(probes[0]["ingress"]["metrics"], json!(metrics));
    assert_eq!(
        (&probes[0]["name"], &probes[0]["interface"]),
        (&json!("ours"), &json!("eth7"))
    );
    for words in [
        "ours: no table has __attributes__",
        "ours: files is left out",
    ] {
        assert!(
            notes.iter().any(|note| note.contains(words)),
            "{words}: {notes:?}"
        );
    }
}

/// Alternatives of the preprocessor declare a table twice, each with a part of its features.
#[test]
fn features_of_all_declarations_count() {
    let source = "BPF_HASH(A, u32)__attributes__((SWAP));\nBPF_HASH(A, u32)__attributes__((EMPTY));\n\
                  BPF_HASH(A, u32)__attributes__((EXPORT));";
    let [table] = &declared(source)[..] else {
        panic!("one table")
    };
    assert_eq!((table.swap, table.empty, table.export), (true, true, true));
}

#[test]
fn labels_of_a_probe_are_those_of_all_its_metrics() {
    let metric = |map: &str, labels: Value| json!({ "map-name": map, "open-metrics-metadata": { "type": "gauge", "labels": labels } });
    let labels =
        |value: &str| json!([{ "name": "L4", "value": value }, { "name": "site", "value": "a" }]);
    let path = json!({ "code": "int a;", "metric-configs": [metric("A", labels("UDP")), metric("B", labels("TCP"))] });
    let wishes = Wishes {
        interface: Some("eth1".to_owned()),
        name: None,
    };
    let found = convert(&json!({ "ingress-path": path }).to_string(), &wishes).unwrap();
    assert_eq!(found.probes[0]["labels"], json!({ "site": "a" }));
    assert_eq!(
        found
            .notes
            .iter()
            .filter(|note| note.contains("the labels L4 are left out"))
            .count(),
        2
    );
    assert_eq!(
        found.notes.len(),
        2,
        "a gauge is what a metric is anyway: {:?}",
        found.notes
    );
}

#[test]
fn what_is_for_nobody_is_refused() {
    for (document, words) in [
        (
            json!({ "interface": "eth0", "window": {} }),
            "neither a data-plane configuration of dynmon",
        ),
        (json!([1]), "neither"),
        (
            json!({ "ingress-path": {}, "egress-path": {} }),
            "no probe with a source",
        ),
        (
            json!({ "ingress-path": { "code": 1 } }),
            "ingress-path.code: is not a string",
        ),
        (
            json!({ "probes": [{ "interface": "e", "ingress": "int a;", "mode": "IP" }] }),
            "probes[0].mode: IP is unknown",
        ),
        (
            json!({ "probes": [{ "ingress": "int a;" }] }),
            "probes[0].interface: is missing",
        ),
        (json!({ "probes": 1 }), "probes: is not a list"),
        (
            json!({ "interface": "e", "mode": true, "ingress": "int a;" }),
            "mode: is neither a name nor a number",
        ),
        (
            json!({ "interface": "e", "ingress": 1 }),
            "ingress: is neither a source nor an object",
        ),
        (
            json!({ "ingress-path": { "code": "int a;", "metric-configs": {} } }),
            "ingress-path.metric-configs: is not a list",
        ),
        (
            json!({ "ingress-path": { "code": "int a;", "metric-configs": [{ "name": "n" }] } }),
            "ingress-path.metric-configs[0]: has no map-name",
        ),
    ] {
        let message = converted(&document).unwrap_err().to_string();
        assert!(message.contains(words), "{document}: {message}");
    }
    assert!(matches!(
        convert("{", &Wishes::default()),
        Err(ConvertError::Json(_))
    ));
}

#[test]
fn declarations_that_are_cut_off_are_none() {
    for source in [
        "BPF_TABLE(",
        "BPF_",
        "BPF_TABLE(\"a\", b)",
        "BPF_HASH((a)",
        "BPF_HASH(a",
    ] {
        assert!(declared(source).is_empty(), "{source}");
    }
    assert_eq!(
        declared("BPF_RINGBUF_OUTPUT(a, 8)")
            .first()
            .map(|table| table.has_events),
        Some(true)
    );
    assert_eq!(
        declared("BPF_PERCPU_ARRAY(a)")
            .first()
            .map(|table| table.has_events),
        Some(false)
    );
}

/// Metrics that differ only in their labels get different names.
#[test]
fn metrics_of_one_name_are_named_by_their_labels() {
    let metric = |name: &str, map: &str, labels: &[(&str, &str)]| {
        let labels: Vec<Value> = labels
            .iter()
            .map(|(name, value)| json!({ "name": name, "value": value }))
            .collect();
        json!({ "name": name, "map-name": map, "open-metrics-metadata": { "type": "gauge", "labels": labels } })
    };
    let names = |metrics: &[Value]| {
        let path = json!({ "code": "int a;", "metric-configs": metrics });
        let wishes = Wishes {
            interface: Some("eth1".to_owned()),
            name: None,
        };
        let found = convert(
            &json!({ "ingress-path": path, "egress-path": path }).to_string(),
            &wishes,
        )
        .unwrap();
        let names = |direction: &str| {
            let metrics = found.probes[0][direction]["metrics"].as_array().unwrap();
            metrics
                .iter()
                .map(|metric| metric["name"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names("ingress"),
            names("egress"),
            "each direction has names of its own"
        );
        (names("ingress"), found.notes)
    };
    let (tcp, udp) = (
        &[("proto", "tcp"), ("site", "a")][..],
        &[("proto", "u d/p"), ("site", "a")][..],
    );
    let (found, notes) = names(&[
        metric("seen", "A", tcp),
        metric("other", "B", &[]),
        metric("seen", "B", udp),
    ]);
    assert_eq!(found, ["seen_tcp", "other", "seen_u_d_p"]);
    let note = "seen: 2 metrics have this name, but each metric needs its own name: they are seen_tcp, seen_u_d_p";
    assert!(notes.iter().any(|known| known == note), "{notes:?}");
    let (found, _) = names(&[
        metric("seen_total", "A", tcp),
        metric("seen_total", "B", udp),
        metric("seen_total", "C", &[]),
    ]);
    assert_eq!(
        found,
        ["seen_A_total", "seen_B_total", "seen_C_total"],
        "one without labels would keep its name"
    );
    let (found, _) = names(&[metric("seen", "A", &[]), metric("seen", "B", &[])]);
    assert_eq!(found, ["seen_A", "seen_B"]);
    let (found, _) = names(&[
        metric("seen", "A", tcp),
        metric("seen_tcp", "B", udp),
        metric("seen", "C", udp),
    ]);
    assert_eq!(
        found,
        ["seen_A", "seen_tcp", "seen_C"],
        "a name that is taken is not given again"
    );
    let (found, _) = names(&[metric("seen", "A", &[]), metric("seen", "A", &[])]);
    assert_eq!(found, ["seen_0", "seen_1"]);
}

#[test]
fn probes_of_one_name_are_numbered() {
    let probe = json!({ "name": "p", "interface": "e", "ingress": "int a;" });
    let found = converted(&json!({ "probes": [probe, probe, probe] })).unwrap();
    let names: Vec<_> = found
        .probes
        .iter()
        .map(|probe| probe["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["p", "p-2", "p-3"]);
    assert!(
        found
            .notes
            .contains(&"p: another probe has this name; this one is p-3".to_owned())
    );
}
