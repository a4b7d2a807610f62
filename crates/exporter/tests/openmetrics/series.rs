//! The rules of a metric's series: counters, labels of keys, the most entries.

use twinprobe_ebpf_common::{MergeRule, MergeRules, SeriesRules};

use super::*;

fn ruled(series: SeriesRules, table: MetricTable) -> MetricTable {
    let temporality = Temporality::Cumulative;
    let metric = twinprobe_exporter::Metric { series, temporality, ..(*table.metric).clone() };
    MetricTable { metric: Arc::new(metric), ..table }
}

/// The rules by which windows add up say which numbers of a sum only grow.
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
    let table = metric("flows", MapKind::Hash, None, [unsigned(1), value], &[(&[1], &row)]);
    let fields = [("longest", MergeRule::Max), ("tcp.last", MergeRule::Last)];
    let fields = fields.map(|(field, rule)| (field.to_owned(), rule)).into();
    let merge = MergeRules { default: MergeRule::Sum, fields };
    let with = |merge, table| ruled(SeriesRules { merge: Some(merge), ..SeriesRules::default() }, table);
    let metrics = vec![with(merge, table), with(MergeRule::Sum.into(), word("seen", 1))];
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
    assert_eq!(names, ["flows_packets_total", "flows_bytes_total", "flows_tcp_syn_total", "seen_total"]);
    assert_eq!(skipped, 0);
}

#[test]
fn keys_get_the_label_that_they_are_to_have() {
    let interface = || tagged(Render::Ifindex, unsigned(4));
    let table = |key, bytes: &[u8]| metric("m", MapKind::Hash, None, [key, unsigned(1)], &[(bytes, &[9])]);
    let labelled = |label: &str, table| {
        ruled(SeriesRules { key_label: Some(label.to_owned()), ..SeriesRules::default() }, table)
    };
    let address = || tagged(Render::Ipv4, unsigned(4));
    let own = packed([("interface", unsigned(1)), ("port", interface())]);
    let two = packed([("from", interface()), ("to", interface())]);
    for (table, expected) in [
        (labelled("sender", table(address(), &[10, 0, 0, 1])), json!({ "sender": "10.0.0.1" })),
        (table(address(), &[10, 0, 0, 1]), json!({ "key": "10.0.0.1" })),
        (table(interface(), &[7, 0, 0, 0]), json!({ "interface": "7" })),
        (labelled("port", table(interface(), &[7, 0, 0, 0])), json!({ "port": "7" })),
        (
            table(packed([("port", interface()), ("vlan", unsigned(1))]), &[7, 0, 0, 0, 5]),
            json!({ "interface": "7", "vlan": "5" }),
        ),
        (table(own, &[5, 7, 0, 0, 0]), json!({ "interface": "5", "port": "7" })),
        (table(two, &[7, 0, 0, 0, 8, 0, 0, 0]), json!({ "from": "7", "to": "8" })),
    ] {
        let (families, _) = openmetrics(&document("p", vec![table]));
        let mut labels = families[0].2[0][1].clone();
        let labels = labels.as_object_mut().expect("labels");
        labels.retain(|name, _| name != "probe" && name != "direction");
        assert_eq!(json!(labels), expected);
    }
}

#[test]
fn no_more_entries_are_shown_than_a_metric_may_have() {
    let rows: Vec<[u8; 1]> = (0..250).map(|row| [row]).collect();
    let rows: Vec<(&[u8], &[u8])> = rows.iter().map(|key| (&key[..], &key[..])).collect();
    let table = metric("m", MapKind::Hash, None, [unsigned(1), unsigned(1)], &rows);
    for (limit, shown) in [(1, 1), (100, 100), (149, 149), (250, 250), (1000, 250)] {
        let merge = Some(MergeRule::Max.into());
        let rules = SeriesRules { merge, key_label: None, max_series: Some(limit) };
        let document = document("p", vec![ruled(rules, table.clone())]);
        let (families, skipped) = openmetrics(&document);
        assert_eq!((kinds(&families), skipped), (vec![("m", "gauge", shown)], 250 - shown as u64));
        let (text, skipped) = all(&[document], "");
        assert_eq!(skipped, [250 - shown as u64]);
        assert!(text.contains(&format!("\nm{{probe=\"p\",direction=\"ingress\",key=\"{}\"}}", shown - 1)));
        assert_eq!(text.matches("\nm{").count(), shown);
    }
}
