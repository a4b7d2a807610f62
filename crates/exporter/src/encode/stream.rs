//! Documents written piece by piece, as their maps are read.

use std::sync::Arc;

use twinprobe_ebpf_common::{RawTable, Row};

use super::{CHUNK, Encoded, Format, json::Json, openmetrics::Collector, tree::Tree, xml::Xml};
use crate::{Context, Direction, Head, Metric};

/// Writes one document. Each call appends to the caller's buffer, which can be handed on and emptied between
/// any two calls:
///
/// ```text
/// new, (begin_metric, rows..., end_metric)..., finish until it is done
/// ```
///
/// JSON and XML are written as rows come, and nothing is kept. An OpenMetrics document can't be: the samples
/// of a family must not be mixed with those of others, while one row of structs holds samples of many
/// families, and both directions can have parts of one. So the raw rows, which take a fraction of the room of
/// their samples, are kept until `finish` and walked once for each family.
pub struct DocumentEncoder(Inner);

enum Inner {
    Json(Tree<Json>),
    Xml(Tree<Xml>),
    OpenMetrics(Box<Collector>),
}

/// Whether a document is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a document that is not done is not valid"]
pub enum Progress {
    /// There is more to come; hand the buffer on and call again.
    More,
    Done(Encoded),
}

/// A format's own state behind the calls of [`DocumentEncoder`].
macro_rules! each {
    ($self:ident, $encoder:ident => $call:expr) => {
        match &mut $self.0 {
            Inner::Json($encoder) => $call,
            Inner::Xml($encoder) => $call,
            Inner::OpenMetrics($encoder) => $call,
        }
    };
}

impl DocumentEncoder {
    pub fn new(format: Format, head: &Head<'_>, context: Arc<Context>, out: &mut Vec<u8>) -> Self {
        Self(match format {
            Format::Json => Inner::Json(Tree::new(Json::default(), head, context, out)),
            Format::Xml => Inner::Xml(Tree::new(Xml::default(), head, context, out)),
            Format::OpenMetrics => Inner::OpenMetrics(Box::new(Collector::new(head, context))),
        })
    }

    /// What earlier documents left out, so that the counter at the end of an OpenMetrics document only grows.
    pub fn skipped_before(&mut self, skipped: u64) {
        if let Inner::OpenMetrics(collector) = &mut self.0 {
            collector.skipped_before(skipped);
        }
    }

    /// # Panics
    ///
    /// If a metric of the ingress follows one of the egress.
    pub fn begin_metric(&mut self, direction: Direction, metric: &Arc<Metric>, out: &mut Vec<u8>) {
        each!(self, encoder => encoder.begin_metric(direction, metric, out));
    }

    /// Any number of complete entries of the metric that was begun last; without one, nothing happens. What
    /// `out` grows by is in proportion to `rows`.
    pub fn rows(&mut self, rows: &RawTable, out: &mut Vec<u8>) {
        each!(self, encoder => encoder.rows(rows, out));
    }

    /// Can be left out.
    pub fn end_metric(&mut self, out: &mut Vec<u8>) {
        each!(self, encoder => encoder.end_metric(out));
    }

    /// Call it until it is done.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Progress {
        each!(self, encoder => encoder.finish(out))
    }

    /// Writes rows until there is a chunk to be handed on, or, with false, no row left.
    pub(super) fn some_rows<'a>(
        &mut self,
        rows: &mut impl Iterator<Item = Row<'a>>,
        out: &mut Vec<u8>,
    ) -> bool {
        match &mut self.0 {
            Inner::Json(tree) => tree.some_rows(rows, out, CHUNK),
            Inner::Xml(tree) => tree.some_rows(rows, out, CHUNK),
            Inner::OpenMetrics(_) => false,
        }
    }
}
