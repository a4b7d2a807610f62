//! Short ways to make layouts and tables, and whole documents whose tables are in memory.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::sync::Arc;

use twinprobe_ebpf_common::{
    Aggregation, Context, Direction, DocumentOrigin, EnumVariant, Format, Head, Layout, MapKind,
    Member, MetricHead, RawTable, Render, Shape, TableLayout, Window,
};
use twinprobe_exporter::{Metric, document_encoder};

pub fn unsigned(size: usize) -> Layout {
    Layout::unsigned(size)
}

pub fn signed(size: usize) -> Layout {
    shaped(size, Shape::Int { signed: true })
}

pub fn shaped(size: usize, shape: Shape) -> Layout {
    Layout {
        size,
        shape,
        render: None,
    }
}

pub fn char_array(len: usize) -> Layout {
    array(shaped(1, Shape::Char), len)
}

pub fn array(element: Layout, len: usize) -> Layout {
    let size = element.size * len;
    shaped(
        size,
        Shape::Array {
            element: Box::new(element),
            len,
        },
    )
}

pub fn tagged(render: Render, layout: Layout) -> Layout {
    Layout {
        render: Some(render),
        ..layout
    }
}

pub fn enumeration(size: usize, signed: bool, variants: &[(&str, i64)]) -> Layout {
    let variants = variants
        .iter()
        .map(|(name, value)| EnumVariant {
            name: (*name).into(),
            value: value.cast_unsigned(),
        })
        .collect();
    shaped(size, Shape::Enum { signed, variants })
}

pub fn member(name: &str, offset: usize, layout: Layout) -> Member {
    Member {
        name: name.into(),
        bit_offset: 8 * offset,
        bitfield: None,
        layout,
    }
}

pub fn bits(name: &str, bit_offset: usize, width: u8, layout: Layout) -> Member {
    Member {
        name: name.into(),
        bit_offset,
        bitfield: Some(width),
        layout,
    }
}

/// Members one after the other, without padding.
pub fn packed(members: impl IntoIterator<Item = (&'static str, Layout)>) -> Layout {
    let mut size = 0;
    let members = members
        .into_iter()
        .map(|(name, layout)| {
            let member = member(name, size, layout);
            size += member.layout.size;
            member
        })
        .collect();
    shaped(size, Shape::Struct(members))
}

/// A metric and its entries; each value holds all slots, in their stride.
pub fn metric(
    name: &str,
    kind: MapKind,
    agg: Option<Aggregation>,
    [key, value]: [Layout; 2],
    entries: &[(&[u8], &[u8])],
) -> MetricTable {
    let slots = if kind.is_percpu() { 2 } else { 1 };
    let layout = TableLayout {
        kind,
        key,
        value,
        slots,
        inner: None,
    };
    let mut table = RawTable::default();
    for (key, value) in entries {
        assert_eq!(
            (key.len(), value.len()),
            (layout.key.size, layout.value_stride()),
            "an entry of {name}"
        );
        table.keys.extend_from_slice(key);
        table.values.extend_from_slice(value);
    }
    let head = MetricHead {
        help: format!("What {name} shows"),
        agg,
        ..MetricHead::new(
            Direction::Ingress,
            name,
            &format!("{name}_map"),
            Arc::new(layout),
        )
    };
    let metric = Metric::from(head);
    MetricTable {
        metric: Arc::new(metric),
        table,
    }
}

/// The number of entries that are written between two checks of the buffer's size.
const ROWS: usize = 256;
/// The number of bytes that are gathered before they are handed on.
const CHUNK: usize = 64 * 1024;

/// One answer about one probe. Values stay raw bytes until they are encoded.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// The name of the probe.
    pub probe: String,
    /// The origin of the numbers; `None` for windows of earlier versions.
    pub origin: Option<DocumentOrigin>,
    /// The names of the interfaces that the probe is attached to.
    pub interfaces: Vec<String>,
    /// The reasons why the numbers differ from those on the wire.
    pub approximate: Option<String>,
    /// The window that the snapshot metrics belong to, if one was closed.
    pub window: Option<Window>,
    pub ingress: Vec<MetricTable>,
    pub egress: Vec<MetricTable>,
}

/// A metric and one reading of its map.
#[derive(Clone, Debug)]
pub struct MetricTable {
    pub metric: Arc<Metric>,
    pub table: RawTable,
}

impl Document {
    /// Returns the head of the document, which comes before its first metric.
    pub fn head(&self) -> Head<'_> {
        let Self {
            probe,
            origin,
            interfaces,
            approximate,
            window,
            ..
        } = self;
        let (origin, approximate, window) =
            (origin.as_ref(), approximate.as_deref(), window.as_ref());
        Head {
            probe,
            origin,
            interfaces,
            approximate,
            window,
            replayed: None,
        }
    }

    /// Returns the metrics of both directions, in the order of the document.
    pub fn tables(&self) -> Vec<MetricTable> {
        let of = |direction, table: &MetricTable| {
            let metric = Metric::clone(&table.metric).with(|head| head.direction = direction);
            MetricTable {
                metric: Arc::new(metric),
                table: table.table.clone(),
            }
        };
        let ingress = self
            .ingress
            .iter()
            .map(|table| of(Direction::Ingress, table));
        ingress
            .chain(self.egress.iter().map(|table| of(Direction::Egress, table)))
            .collect()
    }
}

/// Writes a document in pieces, each as soon as it is about 64 KiB long.
pub fn encoded(document: &Document, context: &Context, format: Format) -> String {
    let (mut text, mut buffer) = (Vec::new(), Vec::new());
    let mut encoder = document_encoder(
        format,
        &document.head(),
        Arc::new(context.clone()),
        &mut buffer,
    );
    let tables = document.tables();
    tables
        .iter()
        .for_each(|table| encoder.add_metric(&table.metric));
    while let Some(next) = encoder.next_table(&mut buffer) {
        let MetricTable { metric, table } = &tables[next];
        for first in (0..table.len(&metric.layout)).step_by(ROWS) {
            encoder.rows(
                &table.slice(first, first + ROWS, &metric.layout),
                &mut buffer,
            );
            if buffer.len() >= CHUNK {
                text.append(&mut buffer);
            }
        }
    }
    encoder.finish(&mut buffer);
    text.append(&mut buffer);
    String::from_utf8(text).expect("documents are UTF-8")
}
