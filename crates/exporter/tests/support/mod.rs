//! Layouts and tables in few words.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::sync::Arc;

use twinprobe_ebpf_common::{
    Aggregation, Context, EnumVariant, Format, Layout, MapKind, Member, RawTable, Render, Shape, TableLayout,
    Temporality,
};
use twinprobe_exporter::{Cache, Document, Metric, MetricTable, encode};

pub fn unsigned(size: usize) -> Layout {
    Layout::unsigned(size)
}

pub fn signed(size: usize) -> Layout {
    shaped(size, Shape::Int { signed: true })
}

pub fn shaped(size: usize, shape: Shape) -> Layout {
    Layout { size, shape, render: None }
}

pub fn char_array(len: usize) -> Layout {
    array(shaped(1, Shape::Char), len)
}

pub fn array(element: Layout, len: usize) -> Layout {
    let size = element.size * len;
    shaped(size, Shape::Array { element: Box::new(element), len })
}

pub fn tagged(render: Render, layout: Layout) -> Layout {
    Layout { render: Some(render), ..layout }
}

pub fn enumeration(size: usize, signed: bool, variants: &[(&str, i64)]) -> Layout {
    let variants = variants
        .iter()
        .map(|(name, value)| EnumVariant { name: (*name).into(), value: value.cast_unsigned() })
        .collect();
    shaped(size, Shape::Enum { signed, variants })
}

pub fn member(name: &str, offset: usize, layout: Layout) -> Member {
    Member { name: name.into(), bit_offset: 8 * offset, bitfield: None, layout }
}

pub fn bits(name: &str, bit_offset: usize, width: u8, layout: Layout) -> Member {
    Member { name: name.into(), bit_offset, bitfield: Some(width), layout }
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
    let layout = TableLayout { kind, key, value, slots, inner: None };
    let mut table = RawTable::default();
    for (key, value) in entries {
        assert_eq!((key.len(), value.len()), (layout.key.size, layout.value_stride()), "an entry of {name}");
        table.keys.extend_from_slice(key);
        table.values.extend_from_slice(value);
    }
    let metric = Metric {
        name: name.into(),
        map: format!("{name}_map"),
        help: format!("What {name} shows"),
        agg,
        layout: Arc::new(layout),
        temporality: Temporality::default(),
        dropped: 0,
        cache: Cache::default(),
    };
    MetricTable { metric: Arc::new(metric), table }
}

pub fn encoded(document: &Document, context: &Context, format: Format) -> String {
    let mut out = Vec::new();
    encode(document, context, format, &mut out).expect("a Vec takes everything");
    String::from_utf8(out).expect("documents are UTF-8")
}
