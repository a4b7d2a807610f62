//! Documents written piece by piece, as their maps are read.

use std::ops::Range;
use std::sync::Arc;

use twinprobe_ebpf_common::{Context, Direction, Format, Head, RawTable};

use super::encoder::{Encoder, Progress};
use super::json::Json;
use super::openmetrics::collector::Collector;
use super::tree::Tree;
use super::xml::Xml;
use crate::metric::Metric;

/// Writes one document. Each call appends to the caller's buffer, which can be handed on and emptied between
/// any two calls:
///
/// ```text
/// new, (begin_metric, rows..., end_metric)..., finish until it is done
/// ```
///
/// JSON and XML are written as rows come, and nothing is kept. OpenMetrics does not allow this: the samples of a family
/// must not be mixed with those of others, while one row of structs holds samples of many families, and both directions
/// can have samples of the same family. So the raw rows, which need a fraction of the memory of their samples, are kept
/// until `finish` and walked once for each family.
pub struct DocumentEncoder(Box<dyn Encoder>);

impl DocumentEncoder {
    /// Begins a document. `context` has the facts about the machine that renderings need.
    pub fn new(format: Format, head: &Head<'_>, context: Arc<Context>, out: &mut Vec<u8>) -> Self {
        Self(match format {
            Format::Json => Box::new(Tree::<Json>::new(head, context, out)),
            Format::Xml => Box::new(Tree::<Xml>::new(head, context, out)),
            Format::OpenMetrics => Box::new(Collector::new(head, context)),
        })
    }

    /// Sets the number of numbers and texts that earlier documents left out, so that the counter at the end of an
    /// OpenMetrics document never decreases. To be called before the first metric.
    pub fn skipped_before(&mut self, skipped: u64) {
        self.0.skipped_before(skipped);
    }

    /// Begins a metric, and ends the one before.
    ///
    /// # Panics
    ///
    /// If a metric of the ingress follows one of the egress.
    pub fn begin_metric(&mut self, direction: Direction, metric: &Arc<Metric>, out: &mut Vec<u8>) {
        self.0.begin_metric(direction, metric, out);
    }

    /// Writes the complete entries of `table`, a part of the map of the metric that was begun last; without such a
    /// metric, nothing happens. `out` grows in proportion to the entries.
    pub fn rows(&mut self, table: &RawTable, out: &mut Vec<u8>) {
        self.some_rows(table, 0..usize::MAX, out);
    }

    /// Writes as [`Self::rows`] does, but only the entries in the range `rows`, or as many of them as exist.
    pub fn some_rows(&mut self, table: &RawTable, rows: Range<usize>, out: &mut Vec<u8>) {
        self.0.rows(table, rows, out);
    }

    /// Ends the metric that was begun last. The next call of [`Self::begin_metric`] or [`Self::finish`] ends it too.
    pub fn end_metric(&mut self, out: &mut Vec<u8>) {
        self.0.end_metric(out);
    }

    /// Ends the document. Call it until it is done; each call appends about a chunk of 64 KiB.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Progress {
        self.0.finish(out)
    }
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::{Layout, MapKind, TableLayout};

    use super::*;

    #[test]
    fn rows_in_pieces_are_the_rows_at_once() {
        let (key, value) = (Layout::unsigned(1), Layout::unsigned(1));
        let layout = TableLayout { kind: MapKind::Hash, key, value, slots: 1, inner: None };
        let metric = Arc::new(Metric::example("m", layout));
        let table = RawTable { keys: vec![1, 2, 3], values: vec![4, 5, 6], ..RawTable::default() };
        for format in Format::ALL {
            let written = |pieces: &[Range<usize>]| {
                let mut out = Vec::new();
                let mut encoder = DocumentEncoder::new(format, &Head::default(), Arc::default(), &mut out);
                encoder.rows(&table, &mut out);
                encoder.begin_metric(Direction::Egress, &metric, &mut out);
                for piece in pieces {
                    encoder.some_rows(&table, piece.clone(), &mut out);
                }
                assert_eq!(encoder.finish(&mut out), Progress::Done(Default::default()));
                String::from_utf8(out).expect("UTF-8")
            };
            let whole = written(&[0..2, 0..0, 2..usize::MAX]);
            assert_eq!(written(&[0..7, 3..9]), whole);
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
        let metric = Arc::new(Metric::example("m", layout));
        let mut out = Vec::new();
        let mut encoder = DocumentEncoder::new(Format::Json, &Head::default(), Arc::default(), &mut out);
        encoder.begin_metric(Direction::Egress, &metric, &mut out);
        encoder.begin_metric(Direction::Ingress, &metric, &mut out);
    }
}
