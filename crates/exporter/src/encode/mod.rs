//! Documents to bytes, one file per format.

mod json;
mod xml;

use std::io;

use crate::{
    Context, Document, Metric, MetricTable,
    aggregate::Folder,
    decode::{Decoder, Plan, ValueSink},
};

/// A representation of a metrics document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    Json,
    Xml,
}

impl Format {
    pub const ALL: [Self; 2] = [Self::Json, Self::Xml];

    /// The name used in configurations and queries.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Xml => "xml",
        }
    }

    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Xml => "application/xml",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }
}

/// Writes `document` to `out` in chunks; fails only if `out` does.
pub fn encode(
    document: &Document,
    context: &Context,
    format: Format,
    out: &mut impl io::Write,
) -> io::Result<()> {
    match format {
        Format::Json => write(json::Json::default(), document, context, out),
        Format::Xml => write(xml::Xml::default(), document, context, out),
    }
}

/// Bytes gathered before they are handed on.
const CHUNK: usize = 64 * 1024;

/// A format: what surrounds the values.
trait DocumentSink: ValueSink {
    /// What was written so far; emptied after each chunk.
    fn buffer(&mut self) -> &mut Vec<u8>;

    fn begin_document(&mut self, document: &Document);
    fn end_document(&mut self);
    fn begin_direction(&mut self, name: &str);
    fn end_direction(&mut self, name: &str);
    fn empty_direction(&mut self, name: &str) {
        self.begin_direction(name);
        self.end_direction(name);
    }
    fn begin_metric(&mut self, index: usize, metric: &Metric);
    fn end_metric(&mut self);
    fn begin_entry(&mut self, index: usize);
    fn begin_key(&mut self);
    fn end_key(&mut self);
    fn begin_value(&mut self);
    fn end_value(&mut self);
    fn end_entry(&mut self);
}

fn write<S: DocumentSink>(
    mut sink: S,
    document: &Document,
    context: &Context,
    out: &mut impl io::Write,
) -> io::Result<()> {
    sink.buffer().reserve(2 * CHUNK);
    sink.begin_document(document);
    for (direction, metrics) in [("ingress", &document.ingress), ("egress", &document.egress)] {
        if metrics.is_empty() {
            sink.empty_direction(direction);
            continue;
        }
        sink.begin_direction(direction);
        for (index, metric) in metrics.iter().enumerate() {
            sink.begin_metric(index, &metric.metric);
            entries(&mut sink, metric, context, out)?;
            sink.end_metric();
        }
        sink.end_direction(direction);
    }
    sink.end_document();
    out.write_all(sink.buffer())
}

fn entries<S: DocumentSink>(
    sink: &mut S,
    MetricTable { metric, table }: &MetricTable,
    context: &Context,
    out: &mut impl io::Write,
) -> io::Result<()> {
    let layout = &*metric.layout;
    let key_plan = layout.kind.has_keys().then(|| Plan::new(&layout.key, S::label));
    let value_plan = Plan::new(&layout.value, S::label);
    let per_cpu = layout.kind.is_percpu();
    let mut folder = metric.agg.filter(|_| per_cpu).map(|agg| Folder::new(agg, layout));
    let mut decoder = Decoder::new(context);

    for (index, (key, value)) in table.entries(layout).enumerate() {
        sink.begin_entry(index);
        if let Some(plan) = &key_plan {
            sink.begin_key();
            decoder.value(plan, key, sink);
            sink.end_key();
        }
        sink.begin_value();
        match &mut folder {
            Some(folder) => decoder.value(&value_plan, folder.fold(value), sink),
            None if per_cpu => {
                sink.begin_array();
                for (cpu, slot) in value.chunks_exact(layout.slot_stride()).enumerate() {
                    sink.begin_item(cpu);
                    decoder.value(&value_plan, slot, sink);
                    sink.end_item();
                }
                sink.end_array();
            }
            None => decoder.value(&value_plan, value, sink),
        }
        sink.end_value();
        sink.end_entry();
        if sink.buffer().len() >= CHUNK {
            out.write_all(sink.buffer())?;
            sink.buffer().clear();
        }
    }
    Ok(())
}
