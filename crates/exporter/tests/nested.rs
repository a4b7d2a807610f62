//! Maps of maps in every format.

mod support;

use std::sync::Arc;

use support::{Document, MetricTable, encoded};
use twinprobe_ebpf_common::{
    Aggregation, Context, Direction, Format, Layout, MapKind, MetricHead, RawTable, TableLayout,
    Temporality,
};
use twinprobe_exporter::Metric;

/// Slots 1 and 3 of an array of maps, with two entries and with none.
fn document(inner: TableLayout, agg: Option<Aggregation>, entries: RawTable) -> Document {
    let layout = TableLayout {
        kind: MapKind::ArrayOfMaps,
        key: Layout::unsigned(4),
        value: Layout::unsigned(4),
        slots: 1,
        inner: Some(Arc::new(inner)),
    };
    let table = RawTable {
        keys: [1_u32, 3].into_iter().flat_map(u32::to_le_bytes).collect(),
        values: vec![0; 8],
        inner: vec![entries, RawTable::default()],
    };
    let head = MetricHead {
        agg,
        temporality: Temporality::Live,
        ..MetricHead::new(Direction::Ingress, "flows", "outer", Arc::new(layout))
    };
    let metric = Metric::from(head);
    let ingress = vec![MetricTable {
        metric: Arc::new(metric),
        table,
    }];
    Document {
        probe: "p".into(),
        ingress,
        ..Document::default()
    }
}

fn rendered(document: &Document, format: Format) -> String {
    encoded(document, &Context::default(), format)
}

fn hash() -> Document {
    let inner = TableLayout {
        kind: MapKind::Hash,
        key: Layout::unsigned(1),
        value: Layout::unsigned(2),
        slots: 1,
        inner: None,
    };
    let entries = RawTable {
        keys: vec![7, 8],
        values: vec![1, 0, 2, 1],
        ..RawTable::default()
    };
    document(inner, None, entries)
}

#[test]
fn json_has_the_inner_table_as_the_value() {
    let text = rendered(&hash(), Format::Json);
    let entries = r#""entries":[{"key":1,"value":{"type":"hash","entries":[{"key":7,"value":1},{"key":8,"value":258}]}},{"key":3,"value":{"type":"hash","entries":[]}}]"#;
    assert!(
        text.contains(r#""type":"array_of_maps""#) && text.contains(entries),
        "{text}"
    );
}

#[test]
fn xml_has_entries_in_the_value() {
    let text = rendered(&hash(), Format::Xml);
    let entries = "<entry><key>1</key><value><entry><key>7</key><value>1</value></entry>\
                   <entry><key>8</key><value>258</value></entry></value></entry>\
                   <entry><key>3</key><value></value></entry></metric>";
    assert!(text.contains(entries), "{text}");
}

#[test]
fn openmetrics_has_both_keys_as_labels() {
    let text = rendered(&hash(), Format::OpenMetrics);
    for sample in [
        r#"flows{probe="p",direction="ingress",key="1",inner="7"} 1"#,
        r#"flows{probe="p",direction="ingress",key="1",inner="8"} 258"#,
    ] {
        assert!(text.lines().any(|line| line == sample), "{text}");
    }
    assert_eq!(text.matches("flows{").count(), 2, "{text}");
}

#[test]
fn values_of_cpus_are_aggregated() {
    let inner = TableLayout {
        kind: MapKind::PercpuArray,
        key: Layout::unsigned(4),
        value: Layout::unsigned(8),
        slots: 2,
        inner: None,
    };
    let mut entries = RawTable {
        keys: vec![0; 4],
        values: vec![0; 16],
        ..RawTable::default()
    };
    (entries.values[0], entries.values[8]) = (3, 4);
    let sum = document(inner.clone(), Some(Aggregation::Sum), entries.clone());
    assert!(rendered(&sum, Format::Json).contains(r#"[{"key":0,"value":7}]"#));
    assert!(rendered(&sum, Format::OpenMetrics).contains("key=\"1\",inner=\"0\"} 7\n"));
    let each = document(inner, None, entries);
    assert!(rendered(&each, Format::Json).contains(r#"[{"key":0,"value":[3,4]}]"#));
    assert!(rendered(&each, Format::OpenMetrics).contains("key=\"1\",inner=\"0\",cpu=\"1\"} 4\n"));
}

/// Queues have no keys and no samples.
#[test]
fn queues_in_maps() {
    let inner = TableLayout {
        kind: MapKind::Queue,
        key: Layout::opaque(0),
        value: Layout::unsigned(1),
        slots: 1,
        inner: None,
    };
    let queue = document(
        inner,
        None,
        RawTable {
            values: vec![5, 6],
            ..RawTable::default()
        },
    );
    assert!(
        rendered(&queue, Format::Json)
            .contains(r#"{"type":"queue","entries":[{"value":5},{"value":6}]}"#)
    );
    assert!(rendered(&queue, Format::OpenMetrics).contains("twinprobe_export_skipped_total 2\n"));
}
