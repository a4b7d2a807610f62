//! Tests that no layout and no bytes cause a panic, and that all documents parse.

mod layouts;
mod reference;
mod support;

use std::collections::HashSet;
use std::sync::Arc;

use layouts::layout;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use support::{Document, MetricTable, encoded};
use twinprobe_ebpf_common::{
    Aggregation, Context, Direction, Format, MapFamily, MapKind, MergeRule, MetricHead, RawTable,
    SeriesRules, TableLayout, Temporality,
};
use twinprobe_exporter::{Accumulator, Metric};

fn metric() -> impl Strategy<Value = MetricTable> {
    let kind = select(MapKind::ALL.to_vec());
    let agg = option::of(select(Aggregation::ALL.to_vec()));
    let content = || vec(any::<u8>(), 0..600);
    (
        kind,
        layout(),
        layout(),
        1_usize..4,
        agg,
        (content(), content()),
        (".{0,6}", ".{0,6}", ".{0,6}"),
    )
        .prop_map(
            |(kind, key, value, slots, agg, (keys, values), (name, map, help))| {
                let layout = Arc::new(TableLayout {
                    kind,
                    key,
                    value,
                    slots,
                    inner: None,
                });
                let temporality = [
                    Temporality::Window,
                    Temporality::Cumulative,
                    Temporality::Live,
                ][name.len() % 3];
                let series = SeriesRules {
                    merge: Some(MergeRule::Sum.into()),
                    max_series: Some(3),
                    ..SeriesRules::default()
                };
                let head = MetricHead {
                    help,
                    agg,
                    temporality,
                    series,
                    ..MetricHead::new(Direction::Ingress, &name, &map, layout)
                };
                let metric = Metric::from(head);
                MetricTable {
                    metric: Arc::new(metric),
                    table: RawTable {
                        keys,
                        values,
                        ..RawTable::default()
                    },
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn documents_parse(
        ingress in vec(metric(), 0..3),
        egress in vec(metric(), 0..2),
        probe in ".{0,6}",
        boot_time_ns in any::<i128>(),
    ) {
        let document = Document { probe, interfaces: vec!["\u{1}".into()], ingress, egress, ..Document::default() };
        let context = Context { boot_time_ns, interfaces: [(0, "\0&".to_owned())].into(), ..Context::default() };
        let json = encoded(&document, &context, Format::Json);
        if let Err(error) = serde_json::from_str::<serde_json::Value>(&json) {
            panic!("{error}: {json}");
        }
        well_formed(&encoded(&document, &context, Format::Xml));
    }

    #[test]
    fn adding_up_never_fails(
        MetricTable { metric, table } in metric(),
        rule in select(MergeRule::NAMES.map(|(_, rule)| rule).to_vec()),
    ) {
        let mut total = Accumulator::new(metric.layout.clone(), &rule.into()).expect("no fields are named");
        total.add(&table, 1, 7);
        total.add(&table, 2, 7);
        let (entries, sums) = (table.len(&metric.layout), total.table().len(total.layout()));
        if metric.layout.kind.family() == MapFamily::Fifo {
            prop_assert_eq!(sums, 2 * entries);
        } else {
            prop_assert!(sums <= entries);
        }
        total.narrowed(7);
    }
}

/// A metric in the state that the encoder may expect: each key comes once. The tests of readings
/// and of journals check that, while maps change and processes are killed. Only a walk over a live
/// trie may meet a key again.
fn map() -> impl Strategy<Value = MetricTable> {
    metric().prop_map(|MetricTable { metric, table }| {
        if metric.layout.kind.family() == MapFamily::Trie && metric.temporality == Temporality::Live
        {
            return MetricTable { metric, table };
        }
        let (mut known, mut rows) = (HashSet::new(), RawTable::default());
        for (key, value) in table.entries(&metric.layout) {
            if !metric.layout.kind.has_keys() || known.insert(key) {
                rows.keys.extend_from_slice(key);
                rows.values.extend_from_slice(value);
            }
        }
        MetricTable {
            table: rows,
            metric,
        }
    })
}

#[test]
fn openmetrics_documents_parse() {
    let document =
        (vec(map(), 0..4), vec(map(), 0..3), ".{0,6}").prop_map(|(ingress, egress, probe)| {
            Document {
                probe,
                ingress,
                egress,
                ..Document::default()
            }
        });
    let mut runner = TestRunner::deterministic();
    let documents: Vec<String> = (0..400)
        .map(|_| {
            document
                .new_tree(&mut runner)
                .expect("a document")
                .current()
        })
        .map(|document| encoded(&document, &Context::default(), Format::OpenMetrics))
        .collect();
    let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
    let parsed = reference::parse(&documents);
    let samples = |document: &serde_json::Value| -> usize {
        let families = document.as_array().expect("families").iter();
        families
            .map(|family| family[3].as_array().expect("samples").len())
            .sum()
    };
    for (text, parsed) in documents.iter().zip(parsed.as_array().expect("a list")) {
        // The parser forgets samples that it has seen already.
        let lines = text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(samples(parsed), lines, "{text}");
    }
}

/// Parses with end tags, attributes and references checked, and looks for characters XML can't
/// hold.
fn well_formed(xml: &str) {
    use quick_xml::Reader;
    use quick_xml::events::Event;
    let mut reader = Reader::from_str(xml);
    let mut depth = 0_usize;
    loop {
        match reader.read_event() {
            Ok(Event::Eof) => break,
            Ok(Event::Start(element)) => {
                depth += 1;
                element
                    .attributes()
                    .for_each(|attribute| drop(attribute.expect("well-formed attributes")));
            }
            Ok(Event::End(_)) => depth -= 1,
            Ok(_) => {}
            Err(error) => panic!("{error}: {xml}"),
        }
    }
    assert_eq!(depth, 0, "{xml}");
    let legal = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    assert!(xml.chars().all(legal), "{xml}");
}
