//! The conversion of maps of maps to one table, whose keys are the outer key followed by the inner
//! one.

use std::borrow::Cow;
use std::sync::Arc;

use twinprobe_ebpf_common::{Layout, Member, RawTable, Shape, TableLayout};

use crate::metric::Metric;

/// The name of the inner key, as a member of the key of the flat table.
const INNER: &str = "inner";

/// Returns the metric of a map of maps as a metric of one table, and any other metric unchanged.
pub fn flat(metric: &Arc<Metric>) -> Arc<Metric> {
    let Some(inner) = &metric.layout.inner else {
        return Arc::clone(metric);
    };
    metric.cache().get(|| {
        let layout = Arc::new(layout(&metric.layout, inner));
        Metric::clone(metric).with(|head| head.layout = layout)
    })
}

/// Converts the rows of `metric` to rows of the metric that [`flat`] returns.
pub fn flatten<'a>(metric: &Metric, table: Cow<'a, RawTable>) -> Cow<'a, RawTable> {
    let Some(inner) = &metric.layout.inner else {
        return table;
    };
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
    TableLayout {
        key: Layout {
            size,
            shape: Shape::Struct(members),
            render: None,
        },
        ..inner.clone()
    }
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::MapKind;

    use super::*;

    #[test]
    fn keys_of_both_maps_stand_side_by_side() {
        let table = |kind, inner| TableLayout {
            kind,
            key: Layout::unsigned(1),
            value: Layout::unsigned(1),
            slots: 1,
            inner,
        };
        let inner = table(MapKind::Hash, None);
        let metric = Arc::new(Metric::example(
            "m",
            table(MapKind::HashOfMaps, Some(Arc::new(inner))),
        ));
        let rows = |keys: &[u8], values: &[u8]| RawTable {
            keys: keys.to_vec(),
            values: values.to_vec(),
            ..RawTable::default()
        };
        let maps = RawTable {
            inner: vec![rows(&[3, 4], &[30, 40]), rows(&[3], &[31])],
            ..rows(&[1, 2], &[0, 0])
        };
        let flattened = flatten(&metric, Cow::Owned(maps));
        assert_eq!(*flattened, rows(&[1, 3, 1, 4, 2, 3], &[30, 40, 31]));
        let flat = flat(&metric);
        assert_eq!((flat.layout.key.size, flattened.len(&flat.layout)), (2, 3));
        assert!(Arc::ptr_eq(&flat, &super::flat(&metric)), "worked out once");
        assert!(Arc::ptr_eq(&flat, &super::flat(&flat)), "as it is");
    }
}
