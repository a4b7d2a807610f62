//! The rules of a metric's series: counters, labels of keys, the most entries.

use twinprobe_ebpf_common::{MergeRule, MergeRules, SeriesRules};

use super::*;

fn ruled(series: SeriesRules, table: MetricTable) -> MetricTable {
    let temporality = Temporality::Cumulative;
    let metric = (*table.metric)
        .clone()
        .with(|head| (head.series, head.temporality) = (series, temporality));
    MetricTable {
        metric: Arc::new(metric),
        ..table
    }
}

/// The rules for adding windows show which numbers of a sum only grow.
#[test]
fn sums_are_counters() {
    let value = packed([
        ("packets", unsigned(8)),
        ("bytes_total", unsigned(8)),
        ("balance", shaped(8, Shape::Int { signed: true })),
        ("longest", unsigned(2)),
        ("flags", tagged(Render::Hex, unsigned(1))),
        ("tcp", packed([("syn", unsigned(4)), ("last", unsigned(4))])),
    ]);
    let row = [3_u8; 35];
    let table = metric(
        "flows",
        MapKind::Hash,
        None,
        [unsigned(1), value],
        &[(&[1], &row)],
    );
    let fields = [("longest", MergeRule::Max), ("tcp.last", MergeRule::Last)];
    let fields = fields.map(|(field, rule)| (field.to_owned(), rule)).into();
    let merge = MergeRules {
        default: MergeRule::Sum,
        fields,
    };
    let with = |merge, table| {
        ruled(
            SeriesRules {
                merge: Some(merge),
                ..SeriesRules::default()
            },
            table,
        )
    };
    let metrics = vec![
        with(merge, table),
        with(MergeRule::Sum.into(), word("seen", 1)),
    ];
    let (families, skipped) = openmetrics(&document("p", metrics));
    assert_eq!(
        kinds(&families),
        [
            ("flows_packets", "counter", 1),
            ("flows_bytes", "counter", 1),
            ("flows_balance", "gauge", 1),
            ("flows_longest", "gauge", 1),
            ("flows_flags", "gauge", 1),
            ("flows_tcp_syn", "counter", 1),
            ("flows_tcp_last", "gauge", 1),
            ("seen", "counter", 1),
        ]
    );
    let names = [0, 1, 5, 7].map(|family| families[family].2[0][0].as_str().unwrap_or_default());
    assert_eq!(
        names,
        [
            "flows_packets_total",
            "flows_bytes_total",
            "flows_tcp_syn_total",
            "seen_total"
        ]
    );
    assert_eq!(skipped, 0);
}

#[test]
fn keys_get_the_label_that_they_are_to_have() {
    let interface = || tagged(Render::Ifindex, unsigned(4));
    let table = |key, bytes: &[u8]| {
        metric(
            "m",
            MapKind::Hash,
            None,
            [key, unsigned(1)],
            &[(bytes, &[9])],
        )
    };
    let labelled = |label: &str, table| {
        ruled(
            SeriesRules {
                key_label: Some(label.to_owned()),
                ..SeriesRules::default()
            },
            table,
        )
    };
    let address = || tagged(Render::Ipv4, unsigned(4));
    let own = packed([("interface", unsigned(1)), ("port", interface())]);
    let two = packed([("from", interface()), ("to", interface())]);
    for (table, expected) in [
        (
            labelled("sender", table(address(), &[10, 0, 0, 1])),
            json!({ "sender": "10.0.0.1" }),
        ),
        (
            table(address(), &[10, 0, 0, 1]),
            json!({ "key": "10.0.0.1" }),
        ),
        (
            table(interface(), &[7, 0, 0, 0]),
            json!({ "interface": "7" }),
        ),
        (
            labelled("port", table(interface(), &[7, 0, 0, 0])),
            json!({ "port": "7" }),
        ),
        (
            table(
                packed([("port", interface()), ("vlan", unsigned(1))]),
                &[7, 0, 0, 0, 5],
            ),
            json!({ "interface": "7", "vlan": "5" }),
        ),
        (
            table(own, &[5, 7, 0, 0, 0]),
            json!({ "interface": "5", "port": "7" }),
        ),
        (
            table(two, &[7, 0, 0, 0, 8, 0, 0, 0]),
            json!({ "from": "7", "to": "8" }),
        ),
    ] {
        let (families, _) = openmetrics(&document("p", vec![table]));
        let mut labels = families[0].2[0][1].clone();
        let labels = labels.as_object_mut().expect("labels");
        labels.retain(|name, _| name != "probe" && name != "direction");
        assert_eq!(json!(labels), expected);
    }
}

#[test]
fn of_more_entries_than_a_metric_may_have_the_largest_are_shown_and_the_others_add_up() {
    // The largest come last.
    let rows: Vec<[u8; 1]> = (0..250).map(|row| [row]).collect();
    let rows: Vec<(&[u8], &[u8])> = rows.iter().map(|key| (&key[..], &key[..])).collect();
    let table = metric("m", MapKind::Hash, None, [unsigned(1), unsigned(1)], &rows);
    for (rule, limit) in [MergeRule::Sum, MergeRule::Max, MergeRule::Last]
        .into_iter()
        .flat_map(|rule| {
            [
                (rule, 1),
                (rule, 100),
                (rule, 249),
                (rule, 250),
                (rule, 1000),
            ]
        })
    {
        let rules = SeriesRules {
            merge: Some(rule.into()),
            max_series: Some(limit),
            ..SeriesRules::default()
        };
        let document = document("p", vec![ruled(rules, table.clone())]);
        let shown = limit.min(250);
        let others = 250 - shown;
        let has_other = others > 0 && rule != MergeRule::Last;
        let (families, skipped) = openmetrics(&document);
        let kind = if rule == MergeRule::Sum {
            "counter"
        } else {
            "gauge"
        };
        assert_eq!(
            kinds(&families)[0],
            ("m", kind, shown as usize + usize::from(has_other))
        );
        let (text, _) = all(&[document], "");
        let name = if rule == MergeRule::Sum {
            "m_total"
        } else {
            "m"
        };
        let sample = |key: &str| {
            let start = format!("\n{name}{{probe=\"p\",direction=\"ingress\",key=\"{key}\"}} ");
            text.split_once(&*start)
                .and_then(|(_, rest)| rest.lines().next()?.parse::<u64>().ok())
        };
        for key in 250 - shown..250 {
            assert_eq!(sample(&key.to_string()), Some(key), "{text}");
        }
        let other = if rule == MergeRule::Sum {
            (0..others).sum()
        } else {
            others.saturating_sub(1)
        };
        assert_eq!(sample("other"), has_other.then_some(other), "{text}");
        assert_eq!(skipped, others, "what has no sample of its own");
        let gauge =
            "twinprobe_export_other_entries{probe=\"p\",direction=\"ingress\",metric=\"m\"}";
        assert!(text.contains(&format!("\n{gauge} {others}\n")), "{text}");
    }
}

#[test]
fn entries_are_the_largest_by_the_field_that_is_asked_for() {
    let pair = packed([
        ("packets", unsigned(1)),
        ("bytes", unsigned(1)),
        ("max", unsigned(1)),
    ]);
    let rows: [(&[u8], &[u8]); 4] = [
        (b"a", &[9, 1, 3]),
        (b"b", &[1, 9, 7]),
        (b"c", &[5, 5, 1]),
        (b"d", &[2, 2, 2]),
    ];
    let table = metric("m", MapKind::Hash, None, [char_array(1), pair], &rows);
    for (by, expected) in [
        (None, [("a", 9, 1, 3), ("other", 8, 16, 7)]),
        (Some("bytes"), [("b", 1, 9, 7), ("other", 16, 8, 3)]),
        (Some("max"), [("b", 1, 9, 7), ("other", 16, 8, 3)]),
    ] {
        let series_by = by.map(str::to_owned);
        let rules = SeriesRules {
            max_series: Some(1),
            series_by,
            ..SeriesRules::default()
        };
        let (text, _) = all(&[document("p", vec![ruled(rules, table.clone())])], "");
        for (key, packets, bytes, max) in expected {
            for (field, number) in [("packets", packets), ("bytes", bytes), ("max", max)] {
                let line = format!(
                    "m_{field}{{probe=\"p\",direction=\"ingress\",key=\"{key}\"}} {number}"
                );
                assert!(
                    text.lines().any(|found| found == line),
                    "{line} is missing in\n{text}"
                );
            }
        }
    }
}

/// A key with the name `other` is not taken for the sum of all others.
#[test]
fn a_key_that_is_called_other_is_not_taken_for_all_others() {
    let rows: [(&[u8], &[u8]); 3] = [(b"other", &[9]), (b"a\0\0\0\0", &[3]), (b"b\0\0\0\0", &[2])];
    let table = metric(
        "m",
        MapKind::Hash,
        None,
        [char_array(5), unsigned(1)],
        &rows,
    );
    let rules = SeriesRules {
        max_series: Some(1),
        ..SeriesRules::default()
    };
    let (text, _) = all(&[document("p", vec![ruled(rules, table)])], "");
    for (key, number) in [("other", 9), ("other_", 5)] {
        let line = format!("m{{probe=\"p\",direction=\"ingress\",key=\"{key}\"}} {number}");
        assert!(
            text.lines().any(|found| found == line),
            "{line} is missing in\n{text}"
        );
    }
}

/// Sums over an interface include the sum of all keys of this interface that are not shown.
#[test]
fn the_others_of_each_interface_add_up() {
    let pair = packed([("a", unsigned(1)), ("b", unsigned(1))]);
    for (key, label) in [(unsigned(2), "address"), (pair, "key")] {
        let rows: [(&[u8], &[u8]); 2] = [(&[1, 0], &[9]), (&[2, 0], &[3])];
        let mut table = metric("m", MapKind::Hash, None, [key, unsigned(1)], &rows);
        let plain = Arc::clone(&table.metric.layout);
        let of = |interface| table.table.with_interface(&plain, interface);
        let (mut all, other) = (of("s0"), of("s1"));
        all.keys.extend_from_slice(&other.keys);
        all.values.extend_from_slice(&[2, 1]);
        table.table = all;
        let named = Arc::new(plain.with_interface("address"));
        table.metric = Arc::new((*table.metric).clone().with(|head| head.layout = named));
        let rules = SeriesRules {
            max_series: Some(1),
            ..SeriesRules::default()
        };
        let (text, _) = self::all(&[document("p", vec![ruled(rules, table)])], "");
        for interface in ["s0", "s1"] {
            let labels = format!("interface=\"{interface}\",{label}=\"other\"");
            let line = format!("m{{probe=\"p\",direction=\"ingress\",{labels}}} 3");
            assert!(
                text.lines().any(|found| found == line),
                "{line} is missing in\n{text}"
            );
        }
    }
}

/// The values of CPUs and the items of arrays add up separately, and maps of maps by their inner
/// entries.
#[test]
fn the_others_of_each_cpu_and_item_add_up() {
    let slots = |numbers: [u8; 4]| {
        let slot = |pair: [u8; 2]| [&pair[..], &[0; 6]].concat();
        [
            slot([numbers[0], numbers[1]]),
            slot([numbers[2], numbers[3]]),
        ]
        .concat()
    };
    let values = [
        slots([1, 2, 3, 4]),
        slots([9, 9, 9, 9]),
        slots([5, 6, 7, 8]),
    ];
    let rows = [
        (&[1_u8][..], &values[0][..]),
        (&[2], &values[1]),
        (&[3], &values[2]),
    ];
    let mut table = metric(
        "m",
        MapKind::PercpuHash,
        None,
        [unsigned(1), array(unsigned(1), 2)],
        &rows,
    );
    table.metric = Arc::new({
        let layout = (*table.metric.layout).clone();
        let layout = Arc::new(twinprobe_ebpf_common::TableLayout { slots: 2, ..layout });
        (*table.metric).clone().with(|head| head.layout = layout)
    });
    let rules = SeriesRules {
        max_series: Some(1),
        ..SeriesRules::default()
    };
    let (text, _) = all(&[document("p", vec![ruled(rules, table)])], "");
    for (cpu, index, number) in [(0, 0, 6), (0, 1, 8), (1, 0, 10), (1, 1, 12)] {
        let labels = format!("key=\"other\",cpu=\"{cpu}\",index=\"{index}\"");
        let line = format!("m{{probe=\"p\",direction=\"ingress\",{labels}}} {number}");
        assert!(
            text.lines().any(|found| found == line),
            "{line} is missing in\n{text}"
        );
    }
}
