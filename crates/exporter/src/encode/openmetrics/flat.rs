//! Maps of maps as one table, whose keys are those of the outer and of the inner map, one after the other.

use std::{borrow::Cow, sync::Arc};

use twinprobe_ebpf_common::{Layout, Member, RawTable, Shape, TableLayout};

use crate::metric::Metric;

/// What the inner map's key is called beside the outer one's.
const INNER: &str = "inner";

/// A metric of any other map as it is.
pub fn flat(metric: &Arc<Metric>) -> Arc<Metric> {
    let Some(inner) = &metric.layout.inner else { return Arc::clone(metric) };
    metric.plans.get(|| {
        let layout = Arc::new(layout(&metric.layout, inner));
        Metric { layout, ..Metric::clone(metric) }
    })
}

/// The rows of [`flat`].
pub fn flatten<'a>(metric: &Metric, table: Cow<'a, RawTable>) -> Cow<'a, RawTable> {
    let Some(inner) = &metric.layout.inner else { return table };
    let mut rows = RawTable::default();
    for outer in table.rows(&metric.layout) {
        for row in outer.inner.into_iter().flat_map(|table| table.rows(inner)) {
            if inner.kind.has_keys() {
                rows.keys.extend_from_slice(outer.key);
                rows.keys.extend_from_slice(row.key);
            }
            rows.values.extend_from_slice(row.value);
        }
    }
    Cow::Owned(rows)
}

fn layout(outer: &TableLayout, inner: &TableLayout) -> TableLayout {
    if !inner.kind.has_keys() {
        return inner.clone();
    }
    let member = |name: &str, offset: usize, layout: &Layout| Member {
        name: name.to_owned(),
        bit_offset: 8 * offset,
        bitfield: None,
        layout: layout.clone(),
    };
    let mut members = match &outer.key.shape {
        Shape::Struct(members) if outer.key.render.is_none() => members.clone(),
        _ => vec![member("key", 0, &outer.key)],
    };
    members.push(member(INNER, outer.key.size, &inner.key));
    let size = outer.key.size + inner.key.size;
    TableLayout { key: Layout { size, shape: Shape::Struct(members), render: None }, ..inner.clone() }
}
