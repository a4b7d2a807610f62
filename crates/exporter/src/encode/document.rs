//! The choice of the encoder of a document.

use std::sync::Arc;

use twinprobe_ebpf_common::{Context, Format, Head};

use super::encoder::DocumentEncoder;
use super::json::Json;
use super::openmetrics::collector::Collector;
use super::plain::PlainDocument;
use super::tree::Tree;
use super::xml::Xml;

/// Begins a document. `context` has the facts about the machine that renderings need.
pub fn document_encoder(
    format: Format,
    head: &Head<'_>,
    context: Arc<Context>,
    out: &mut Vec<u8>,
) -> Box<dyn DocumentEncoder> {
    match format {
        Format::Json => Box::new(Tree::<Json>::new(head, context, out)),
        Format::Xml => Box::new(Tree::<Xml>::new(head, context, out)),
        Format::OpenMetrics => Box::new(Collector::new(head, context)),
        Format::Prometheus => Box::new(PlainDocument::new(Collector::new(head, context))),
    }
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::{Direction, Layout, MapKind, MetricHead, RawTable, TableLayout};

    use super::*;
    use crate::metric::Metric;

    #[test]
    fn rows_in_pieces_are_the_rows_at_once() {
        let (key, value) = (Layout::unsigned(1), Layout::unsigned(1));
        let layout = TableLayout {
            kind: MapKind::Hash,
            key,
            value,
            slots: 1,
            inner: None,
        };
        let metric = Arc::new(Metric::example("m", layout));
        let table = RawTable {
            keys: vec![1, 2, 3],
            values: vec![4, 5, 6],
            ..RawTable::default()
        };
        for format in Format::ALL {
            let written = |pieces: &[(usize, usize)]| {
                let mut out = Vec::new();
                let mut encoder =
                    document_encoder(format, &Head::default(), Arc::default(), &mut out);
                encoder.rows(&table, &mut out);
                encoder.add_metric(&metric);
                assert_eq!(encoder.next_table(&mut out), Some(0));
                for &(from, to) in pieces {
                    encoder.rows(&table.slice(from, to, &metric.layout), &mut out);
                }
                assert_eq!(
                    (encoder.next_table(&mut out), encoder.finish(&mut out)),
                    (None, 0)
                );
                String::from_utf8(out).expect("UTF-8")
            };
            let whole = written(&[(0, 2), (0, 0), (2, 9)]);
            assert_eq!(written(&[(0, 7), (3, 9)]), whole);
            assert_eq!(whole.matches(['4', '5', '6']).count(), 3, "{whole}");
        }
    }

    #[test]
    #[should_panic(expected = "metrics of the ingress come first")]
    fn directions_have_an_order() {
        let layout = TableLayout {
            kind: MapKind::Global,
            key: Layout::opaque(0),
            value: Layout::unsigned(1),
            slots: 1,
            inner: None,
        };
        let mut out = Vec::new();
        let mut encoder =
            document_encoder(Format::Json, &Head::default(), Arc::default(), &mut out);
        for direction in [Direction::Egress, Direction::Ingress] {
            let head = MetricHead::new(direction, "m", "", Arc::new(layout.clone()));
            encoder.add_metric(&Arc::new(head.into()));
        }
    }
}
