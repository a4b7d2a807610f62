//! The reference parser reads the right values from OpenMetrics documents.

mod reference;
#[path = "openmetrics/series.rs"]
mod series;
mod support;

use std::sync::Arc;

use reference::parse;
use serde_json::json;
use support::{
    Document, MetricTable, array, char_array, encoded, member, metric, packed, shaped, tagged,
    unsigned,
};
use twinprobe_ebpf_common::{Context, Format, Head, MapKind, RawTable, Render, Shape, Temporality};
use twinprobe_exporter::{PageEncoder, document_encoder};

fn document(probe: &str, ingress: Vec<MetricTable>) -> Document {
    Document {
        probe: probe.into(),
        ingress,
        ..Document::default()
    }
}

fn counting(temporality: Temporality, table: MetricTable) -> MetricTable {
    let metric = (*table.metric)
        .clone()
        .with(|head| head.temporality = temporality);
    MetricTable {
        metric: Arc::new(metric),
        ..table
    }
}

fn word(name: &str, value: u8) -> MetricTable {
    metric(
        name,
        MapKind::Array,
        None,
        [unsigned(4), unsigned(1)],
        &[(&[0; 4], &[value])],
    )
}

/// Returns the families without their help texts, and the count in the family of omitted values,
/// which is left out.
fn families(text: &str) -> (Vec<(String, String, serde_json::Value)>, u64) {
    let parsed = parse(&[text]);
    let mut families: Vec<_> = parsed[0]
        .as_array()
        .expect("a list")
        .iter()
        .map(|family| {
            let text = |at: usize| family[at].as_str().expect("a text").to_owned();
            (text(0), text(1), family[3].clone())
        })
        .collect();
    let (name, kind, samples) = families.pop().expect("a family");
    assert_eq!((&*name, &*kind), ("twinprobe_export_skipped", "counter"));
    let samples = samples.as_array().expect("samples").iter();
    let skipped = samples.map(|sample| {
        sample[2]
            .as_str()
            .expect("a number")
            .parse::<u64>()
            .expect("a number")
    });
    (families, skipped.sum())
}

fn openmetrics(document: &Document) -> (Vec<(String, String, serde_json::Value)>, u64) {
    families(&encoded(document, &Context::default(), Format::OpenMetrics))
}

/// One page, and the number of omitted numbers of each document.
fn page(documents: &[Document], own: &str, mut out: impl FnMut(&mut Vec<u8>)) -> Vec<u64> {
    let (mut page, mut tables, mut buffer) = (PageEncoder::new(), Vec::new(), Vec::new());
    for document in documents {
        page.add_probe(&document.head(), 1);
        for table in document.tables() {
            assert_eq!(page.add_metric(&table.metric, Arc::default()), tables.len());
            tables.push(table);
        }
    }
    page.begin(own, &mut buffer);
    while let Some(table) = page.next_table(&mut buffer) {
        let MetricTable { metric, table } = &tables[table];
        for first in (0..table.len(&metric.layout)).step_by(100) {
            page.rows(
                &table.slice(first, first + 100, &metric.layout),
                &mut buffer,
            );
            out(&mut buffer);
        }
    }
    let skipped = page.finish(&mut buffer);
    out(&mut buffer);
    skipped
}

fn all(documents: &[Document], own: &str) -> (String, Vec<u64>) {
    let mut text = Vec::new();
    let skipped = page(documents, own, |out| text.append(out));
    (String::from_utf8(text).expect("UTF-8"), skipped)
}

fn kinds(families: &[(String, String, serde_json::Value)]) -> Vec<(&str, &str, usize)> {
    let count = |samples: &serde_json::Value| samples.as_array().map_or(0, Vec::len);
    families
        .iter()
        .map(|(name, kind, samples)| (&**name, &**kind, count(samples)))
        .collect()
}

#[test]
fn what_a_number_counts_from_makes_its_type() {
    let all = [
        Temporality::Window,
        Temporality::Cumulative,
        Temporality::Live,
    ];
    let metrics = ["a_total", "b"].iter().flat_map(|name| {
        all.map(|kind| {
            counting(
                kind,
                word(&format!("{}{name}", format!("{kind:?}").to_lowercase()), 1),
            )
        })
    });
    let (families, skipped) = openmetrics(&document("p", metrics.collect()));
    assert_eq!(
        kinds(&families),
        [
            ("windowa_total", "gauge", 1),
            ("cumulativea", "counter", 1),
            ("livea", "counter", 1),
            ("windowb", "gauge", 1),
            ("cumulativeb", "unknown", 1),
            ("liveb", "gauge", 1),
        ]
    );
    assert_eq!(skipped, 0);
}

#[test]
fn keys_are_labels_under_names_of_their_own() {
    let key = packed([
        ("probe", tagged(Render::Ipv4, unsigned(4))),
        (
            "in",
            packed([("cpu", unsigned(1)), ("$", array(unsigned(1), 2))]),
        ),
        ("in_cpu", unsigned(1)),
        ("__x", shaped(1, Shape::Bool)),
    ]);
    let table = metric(
        "m",
        MapKind::PercpuHash,
        None,
        [key, unsigned(8)],
        &[(&[10, 0, 0, 1, 1, 2, 3, 4, 1], &[9; 16])],
    );
    let (families, _) = openmetrics(&document("a\\\"\nb", vec![table]));
    assert_eq!(
        families[0].2[1][1],
        json!({"probe": "a\\\"\nb", "direction": "ingress", "key_probe": "10.0.0.1", "in_cpu": "1",
               "in___0": "2", "in___1": "3", "key_in_cpu": "4", "key___x": "true", "cpu": "1"})
    );
}

#[test]
fn keys_that_differ_in_padding_are_told_apart() {
    // A key with a byte of padding.
    let key = shaped(2, Shape::Struct(vec![member("a", 0, unsigned(1))]));
    let value = packed([
        ("x", unsigned(1)),
        ("ip", tagged(Render::Ipv4, unsigned(4))),
    ]);
    let rows: [(&[u8], &[u8]); 3] = [(&[1, 0], &[1; 5]), (&[2, 0], &[2; 5]), (&[1, 7], &[3; 5])];
    let table = metric("m", MapKind::Hash, None, [key, value], &rows);
    let (families, skipped) = openmetrics(&document("p", vec![table]));
    assert_eq!(kinds(&families), [("m_x", "gauge", 3)]);
    assert_eq!(families[0].2[2][1]["padding"], "0x07");
    assert_eq!(skipped, 3, "an address in each row");
}

#[test]
fn queues_are_left_out_and_counted() {
    let layouts = [
        twinprobe_ebpf_common::Layout::opaque(0),
        array(unsigned(1), 3),
    ];
    let table = metric(
        "q",
        MapKind::Queue,
        None,
        layouts,
        &[(&[], &[1; 3]), (&[], &[2; 3])],
    );
    let (families, skipped) = openmetrics(&document("p", vec![table]));
    assert_eq!((families.len(), skipped), (0, 6));
}

#[test]
fn histograms_have_buckets_by_magnitude() {
    let count = tagged(Render::Histogram, unsigned(8));
    let slots: Vec<[u8; 4]> = (0..4_u32).map(u32::to_le_bytes).collect();
    let rows = |values: [[u8; 16]; 4]| -> Vec<(Vec<u8>, Vec<u8>)> {
        slots
            .iter()
            .zip(values)
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect()
    };
    let slot = |a: u8, b: u8| {
        let mut bytes = [0; 16];
        (bytes[0], bytes[8]) = (a, b);
        bytes
    };
    let rows = rows([slot(1, 0), slot(0, 0), slot(5, 7), slot(2, 0)]);
    let rows: Vec<(&[u8], &[u8])> = rows.iter().map(|(key, value)| (&**key, &**value)).collect();
    let table = |name| {
        metric(
            name,
            MapKind::PercpuArray,
            None,
            [unsigned(4), count.clone()],
            &rows,
        )
    };
    let metrics = vec![
        table("latency"),
        counting(Temporality::Cumulative, table("latency_ever")),
    ];
    let (families, skipped) = openmetrics(&document("p", metrics));
    assert_eq!(
        kinds(&families),
        [
            ("latency", "gaugehistogram", 10),
            ("latency_ever", "histogram", 10)
        ]
    );
    assert_eq!(skipped, 0);
    let buckets: Vec<_> = families[0].2.as_array().expect("samples")[..5]
        .iter()
        .map(|sample| {
            (
                sample[1]["le"].as_str().expect("a bound"),
                sample[2].as_str().expect("a count"),
            )
        })
        .collect();
    assert_eq!(
        buckets,
        [
            ("1.0", "1"),
            ("3.0", "1"),
            ("7.0", "6"),
            ("15.0", "8"),
            ("+Inf", "8")
        ]
    );
}

/// A number beside a histogram, with its name and `_sum`, is the sum of the counted values in base
/// units. It gets no family.
#[test]
fn histograms_have_sums_where_programs_keep_them() {
    let slots = || tagged(Render::Histogram, unsigned(8));
    let (first, second) = (0_u32.to_le_bytes(), 1_u32.to_le_bytes());
    let (one, two, many) = (
        1_u64.to_le_bytes(),
        2_u64.to_le_bytes(),
        2_500_000_000_u64.to_le_bytes(),
    );
    let rows: [(&[u8], &[u8]); 2] = [(&first, &one), (&second, &two)];
    let sum: [(&[u8], &[u8]); 1] = [(&first, &many)];
    let latency = |name, layout, rows: &[(&[u8], &[u8])]| {
        metric(name, MapKind::Array, None, [unsigned(4), layout], rows)
    };
    let metrics = |of: fn(MetricTable) -> MetricTable| {
        let sum = latency("latency_nanoseconds_sum", unsigned(8), &sum);
        let histogram = latency("latency_nanoseconds", slots(), &rows);
        document("p", vec![of(sum), of(histogram)])
    };
    let (families, skipped) =
        openmetrics(&metrics(|table| counting(Temporality::Cumulative, table)));
    assert_eq!(
        (kinds(&families), skipped),
        (vec![("latency_seconds", "histogram", 5)], 0)
    );
    let numbers = |families: &[(String, String, serde_json::Value)]| -> Vec<(String, String)> {
        let samples = families[0].2.as_array().expect("samples").iter().skip(2);
        samples
            .map(|sample| {
                (
                    sample[0].as_str().unwrap().into(),
                    sample[2].as_str().unwrap().into(),
                )
            })
            .collect()
    };
    let named = |endings: [&str; 3]| endings.map(|ending| format!("latency_seconds{ending}"));
    let expected = |endings| {
        named(endings)
            .into_iter()
            .zip(["3".to_owned(), "3".into(), "2.5".into()])
            .collect::<Vec<_>>()
    };
    assert_eq!(numbers(&families), expected(["_bucket", "_count", "_sum"]));
    let (families, _) = openmetrics(&metrics(|table| table));
    assert_eq!(
        numbers(&families),
        expected(["_bucket", "_gcount", "_gsum"])
    );
    // Without the histogram, the sum is an ordinary number.
    let alone = latency("latency_nanoseconds_sum", unsigned(8), &sum);
    let (families, _) = openmetrics(&document("p", vec![alone]));
    assert_eq!(kinds(&families), [("latency_seconds_sum", "gauge", 1)]);
}

#[test]
fn probes_share_families() {
    let first = document(
        "a",
        vec![
            word("packets", 1),
            counting(Temporality::Cumulative, word("x_total", 1)),
        ],
    );
    let mut second = document(
        "b",
        vec![
            word("packets", 2),
            counting(Temporality::Cumulative, word("x_total", 2)),
        ],
    );
    second.egress = vec![word("packets", 3)];
    let (text, skipped) = all(
        &[first, second],
        "# TYPE twinprobe_up gauge\ntwinprobe_up 1",
    );
    assert!(
        text.contains("\ntwinprobe_export_skipped_total{probe=\"b\"} 1\n# EOF\n"),
        "{text}"
    );
    let (families, total) = families(&text);
    assert_eq!(
        kinds(&families),
        [
            ("twinprobe_up", "gauge", 1),
            ("packets", "gauge", 3),
            ("x", "counter", 2)
        ]
    );
    assert_eq!(
        (skipped, total),
        (vec![0, 0], 2),
        "only what was left out before"
    );
}

#[test]
fn names_that_clash_lose_their_type_or_are_left_out() {
    let cumulative = |name| counting(Temporality::Cumulative, word(name, 1));
    let first = document(
        "a",
        vec![
            cumulative("x_total"),
            word("x", 1),
            cumulative("y_total"),
            cumulative("twinprobe_up"),
            word("z_y", 1),
        ],
    );
    let fields = metric(
        "z",
        MapKind::Array,
        None,
        [
            unsigned(4),
            packed([("y", unsigned(1)), ("$", unsigned(1)), ("_", unsigned(1))]),
        ],
        &[(&[0; 4], &[1, 2, 3])],
    );
    let second = document(
        "b",
        vec![
            word("y_total", 1),
            word("twinprobe_export_skipped_total", 1),
        ],
    );
    let mut first = first;
    first.ingress.push(fields);
    let (text, skipped) = all(
        &[first, second],
        "# TYPE twinprobe_up gauge\ntwinprobe_up 1\n",
    );
    let (families, _) = families(&text);
    assert_eq!(
        kinds(&families),
        [
            ("twinprobe_up", "gauge", 1),
            ("x_total", "unknown", 1),
            ("x", "gauge", 1),
            ("y_total", "unknown", 2),
            ("z_y", "gauge", 1),
            ("z__", "gauge", 1),
        ]
    );
    assert_eq!(
        skipped,
        [3, 1],
        "twinprobe_up, z_y and the second z__; twinprobe_export_skipped_total"
    );
}

#[test]
fn a_table_that_breaks_off_is_not_asked_for_again() {
    let value = || packed([("x", unsigned(1)), ("y", unsigned(1))]);
    let table = |name, probe| {
        let rows: [(&[u8], &[u8]); 2] = [(&[1], &[probe, 2]), (&[2], &[probe, 3])];
        metric(name, MapKind::Hash, None, [unsigned(1), value()], &rows)
    };
    let tables = [table("m", 1), table("m", 2)];
    let (mut page, mut out, mut asked) = (PageEncoder::new(), Vec::new(), Vec::new());
    for (probe, table) in ["a", "b"].into_iter().zip(&tables) {
        page.add_probe(
            &Head {
                probe,
                ..Head::default()
            },
            7,
        );
        page.add_metric(&table.metric, Arc::default());
    }
    page.begin("", &mut out);
    while let Some(table) = page.next_table(&mut out) {
        asked.push(table);
        let MetricTable {
            metric,
            table: rows,
        } = &tables[table];
        page.rows(&rows.slice(0, 1, &metric.layout), &mut out);
        if table == 0 {
            page.abandon();
        } else {
            page.rows(&rows.slice(1, 2, &metric.layout), &mut out);
        }
    }
    assert_eq!(page.finish(&mut out).len(), 2);
    assert_eq!(asked, [0, 1, 1]);
    let (families, skipped) = families(&String::from_utf8(out).expect("UTF-8"));
    assert_eq!(kinds(&families), [("m_x", "gauge", 3), ("m_y", "gauge", 2)]);
    assert_eq!(skipped, 14);
}

/// The text of an answer is not a sample. Each answer continues where the previous one ended.
#[test]
fn the_count_of_what_is_left_out_never_falls_back() {
    let text = metric(
        "m",
        MapKind::Array,
        None,
        [unsigned(4), char_array(4)],
        &[(&[0; 4], b"text")],
    );
    let document = document("p", vec![text]);
    let mut before = 0;
    for answer in 1..=3 {
        let mut out = Vec::new();
        let mut encoder = document_encoder(
            Format::OpenMetrics,
            &document.head(),
            Arc::default(),
            &mut out,
        );
        encoder.skipped_before(before);
        let tables = document.tables();
        tables
            .iter()
            .for_each(|table| encoder.add_metric(&table.metric));
        while let Some(next) = encoder.next_table(&mut out) {
            encoder.rows(&tables[next].table, &mut out);
        }
        before += encoder.finish(&mut out);
        let text = String::from_utf8(out).expect("UTF-8");
        assert_eq!(families(&text).1, answer, "{text}");
    }
}

#[test]
fn documents_come_in_pieces() {
    let rows: Vec<([u8; 4], [u8; 16])> = (0..20_000_u32)
        .map(|row| (row.to_le_bytes(), [row as u8; 16]))
        .collect();
    let rows: Vec<(&[u8], &[u8])> = rows
        .iter()
        .map(|(key, value)| (&key[..], &value[..]))
        .collect();
    let value = packed([("a", unsigned(8)), ("b", unsigned(8))]);
    let table = metric("m", MapKind::Hash, None, [unsigned(4), value], &rows);
    let mut document = document("p", vec![table.clone()]);
    document.egress = vec![table];
    for format in Format::ALL {
        let whole = encoded(&document, &Context::default(), format);
        let (mut streamed, mut out, mut longest) = (Vec::new(), Vec::new(), 0);
        let mut drain = |out: &mut Vec<u8>| {
            longest = longest.max(out.len());
            streamed.append(out);
        };
        let mut encoder = document_encoder(format, &document.head(), Arc::default(), &mut out);
        let tables = document.tables();
        tables
            .iter()
            .for_each(|table| encoder.add_metric(&table.metric));
        while let Some(next) = encoder.next_table(&mut out) {
            let RawTable { keys, values, .. } = &tables[next].table;
            for (keys, values) in keys.chunks(400).zip(values.chunks(1600)) {
                let (keys, values) = (keys.to_vec(), values.to_vec());
                encoder.rows(
                    &RawTable {
                        keys,
                        values,
                        ..RawTable::default()
                    },
                    &mut out,
                );
                drain(&mut out);
            }
        }
        encoder.finish(&mut out);
        drain(&mut out);
        assert!(
            String::from_utf8(streamed).expect("UTF-8") == whole,
            "{} differs",
            format.name()
        );
        assert!(longest < 128 * 1024, "{longest} bytes at once");
    }

    let (mut text, mut longest) = (Vec::new(), 0);
    page(&[document.clone()], "", |out| {
        longest = longest.max(out.len());
        text.append(out);
    });
    let whole = encoded(&document, &Context::default(), Format::OpenMetrics);
    let without_end = |text: &str| {
        text.split("# TYPE twinprobe_export")
            .next()
            .map(str::to_owned)
    };
    assert!(
        without_end(&whole) == without_end(&String::from_utf8(text).expect("UTF-8")),
        "pages differ"
    );
    assert!(longest < 32 * 1024, "{longest} bytes at once");
}
