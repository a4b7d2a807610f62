//! The removal of rows whose labels are equal, which can't be told apart: the first becomes samples, the others are
//! left out.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use twinprobe_ebpf_common::{MapFamily, RawTable, Temporality};

use super::series::Series;
use crate::decode::decoder::Decoder;
use crate::decode::plan::{Plan, Scalar};

/// The labels of the rows that one walk over a table has met.
#[derive(Debug, Default)]
pub struct Seen {
    /// Two hashes, keyed at random, stand for the labels of a row. A collision would lose a sample, and packets can
    /// choose their keys.
    hashers: [RandomState; 2],
    labels: HashSet<[u64; 2]>,
}

impl Seen {
    /// Returns the rows whose labels are new, and the number of the other rows. `rows` come from [`Series::prepare`].
    pub fn distinct<'a>(&mut self, series: &Series, rows: Cow<'a, RawTable>) -> (Cow<'a, RawTable>, usize) {
        let mut decoder = Decoder::new(&series.context);
        let mut labels = Vec::new();
        let len = series.len(&rows);
        let duplicates: Vec<usize> = (0..len)
            .filter(|&row| {
                labels.clear();
                series.key_labels(series.key(&rows, row), &mut decoder, &mut labels);
                !self.labels.insert(self.hashers.each_ref().map(|hasher| hasher.hash_one(&labels)))
            })
            .collect();
        if duplicates.is_empty() {
            return (rows, 0);
        }
        let mut distinct = RawTable::default();
        for row in (0..len).filter(|row| duplicates.binary_search(row).is_err()) {
            distinct.keys.extend_from_slice(series.key(&rows, row));
            distinct.values.extend_from_slice(series.value(&rows, row));
        }
        (Cow::Owned(distinct), duplicates.len())
    }
}

/// Tells whether no two rows can have the same labels: keys that differ have labels that differ, and no key comes
/// twice. Then the labels of a million rows need not be remembered.
pub fn is_certain(series: &Series) -> bool {
    let layout = &*series.metric.layout;
    // A walk over a live trie starts again when a program deletes the key it has reached, so that keys come twice.
    let steady = layout.kind.family() != MapFamily::Trie || series.metric.temporality != Temporality::Live;
    if !steady || !layout.kind.has_keys() {
        return false;
    }
    let mut shown = vec![0_u8; layout.key.size];
    for field in &series.samples.keys {
        if !is_exact(&field.plan) {
            return false;
        }
        let (first, width) =
            field.bits.map_or((0, 8 * field.size), |bits| (bits.shift as usize, bits.width as usize));
        for bit in 8 * field.offset + first..8 * field.offset + first + width {
            shown[bit / 8] |= 1 << (bit % 8);
        }
    }
    // Bits that no label shows (padding) may differ between keys whose labels are equal.
    shown.iter().all(|bits| *bits == u8::MAX)
}

/// Tells whether different values are always shown differently.
const fn is_exact<L>(plan: &Plan<L>) -> bool {
    match plan {
        Plan::Scalar { kind, .. } => {
            matches!(kind, Scalar::Unsigned | Scalar::Signed | Scalar::Swapped | Scalar::Hex)
        }
        Plan::Blob { .. } | Plan::Ipv4 | Plan::Ipv6 | Plan::Ip | Plan::Mac => true,
        // All NaNs look alike, texts that differ after a NUL do too, and two interfaces may have one name.
        Plan::Float { .. } | Plan::Text { .. } | Plan::Struct(_) | Plan::Array { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use twinprobe_ebpf_common::{Direction, Layout, MapKind, Member, Render, Shape, TableLayout};

    use super::*;
    use crate::metric::Metric;

    fn series(kind: MapKind, key: Layout, temporality: Temporality) -> Series {
        let layout = TableLayout { kind, key, value: Layout::unsigned(1), slots: 1, inner: None };
        let metric = Metric { temporality, ..Metric::example("m", layout) };
        Series::new("p", &BTreeMap::new(), Direction::Ingress, &Arc::new(metric), Arc::default())
    }

    /// One byte that is shown and one of padding.
    fn padded() -> Layout {
        let name = "a".to_owned();
        let shown = Member { name, bit_offset: 0, bitfield: None, layout: Layout::unsigned(1) };
        Layout { size: 2, shape: Shape::Struct(vec![shown]), render: None }
    }

    #[test]
    fn of_rows_that_look_alike_the_first_stays() {
        let series = series(MapKind::Hash, padded(), Temporality::Window);
        let rows = RawTable { keys: vec![1, 0, 2, 0, 1, 9], values: vec![10, 20, 30], ..RawTable::default() };
        let mut seen = Seen::default();
        let (distinct, duplicates) = seen.distinct(&series, Cow::Borrowed(&rows));
        assert_eq!(
            (&distinct.keys[..], &distinct.values[..], duplicates),
            (&[1, 0, 2, 0][..], &[10, 20][..], 1)
        );
        assert_eq!(
            seen.distinct(&series, Cow::Borrowed(&rows)).1,
            3,
            "they are remembered from piece to piece"
        );
    }

    #[test]
    fn keys_that_are_shown_to_the_last_bit_need_not_be_remembered() {
        let address = Layout { render: Some(Render::Ipv4), ..Layout::unsigned(4) };
        let interface = Layout { render: Some(Render::Ifindex), ..Layout::unsigned(4) };
        for (kind, key, temporality, expected) in [
            (MapKind::Hash, address.clone(), Temporality::Live, true),
            (MapKind::Hash, padded(), Temporality::Window, false),
            (MapKind::Hash, interface, Temporality::Window, false),
            (MapKind::LpmTrie, address.clone(), Temporality::Window, true),
            (MapKind::LpmTrie, address, Temporality::Live, false),
        ] {
            assert_eq!(is_certain(&series(kind, key.clone(), temporality)), expected, "{kind:?} {key:?}");
        }
    }
}
