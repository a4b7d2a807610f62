//! The removal of rows whose labels are equal, which can't be told apart: the first becomes samples, the others are
//! left out.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use twinprobe_ebpf_common::{MapFamily, RawTable, Temporality};

use super::flat::flatten;
use crate::decode::decoder::Decoder;
use crate::encode::openmetrics::series::Series;
use twinprobe_ebpf_common::field::plan::{Plan, Scalar};

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
        without(series, rows, |key| {
            labels.clear();
            series.key_labels(key, &mut decoder, &mut labels);
            !self.labels.insert(self.hashers.each_ref().map(|hasher| hasher.hash_one(&labels)))
        })
    }
}

/// The number of entries up to which the labels of a map are remembered, which takes 2 MiB.
const FEW: u32 = 1 << 16;

/// The rows of a table that may have the same labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// None: keys that differ have labels that differ, and no key comes twice.
    None,
    /// Rows whose keys differ only in these bits, which no label shows: padding. A walk has to find out whether any row
    /// has such a bit, because the labels of a million rows need much memory.
    Unknown(Vec<u8>),
    /// None: no row had one of these bits. A live row that has one is new, and left out.
    Hidden(Vec<u8>),
    /// Any rows.
    Any,
}

impl Repeats {
    pub fn of(series: &Series) -> Self {
        let layout = &*series.metric.layout;
        // A walk over a live trie starts again when a program deletes the key it has reached, so that keys come twice.
        let steady =
            layout.kind.family() != MapFamily::Trie || series.metric.temporality != Temporality::Live;
        if !steady || !layout.kind.has_keys() || !series.samples.keys.iter().all(|key| is_exact(&key.plan)) {
            return Self::Any;
        }
        let mut shown = vec![0_u8; layout.key.size];
        for field in &series.samples.keys {
            let (first, width) =
                field.bits.map_or((0, 8 * field.size), |bits| (bits.shift as usize, bits.width as usize));
            for bit in 8 * field.offset + first..8 * field.offset + first + width {
                shown[bit / 8] |= 1 << (bit % 8);
            }
        }
        if shown.iter().all(|bits| *bits == u8::MAX) {
            return Self::None;
        }
        let small = series.metric.completeness.max_entries.is_some_and(|entries| entries <= FEW);
        if small { Self::Any } else { Self::Unknown(shown.iter().map(|bits| !bits).collect()) }
    }

    /// Ends the walk that looks for hidden bits: `hides` tells whether it has found any.
    pub fn settle(&mut self, hides: bool) {
        if let Self::Unknown(hidden) = self {
            *self = if hides { Self::Any } else { Self::Hidden(std::mem::take(hidden)) };
        }
    }

    /// Tells whether a row of the map has bits that no label shows.
    pub fn hides(&self, series: &Series, rows: &RawTable) -> bool {
        let Self::Unknown(hidden) = self else { return false };
        let rows = flatten(&series.original, Cow::Borrowed(rows));
        rows.keys.chunks_exact(hidden.len()).any(|key| has(key, hidden))
    }

    /// Returns the rows whose labels are new, and the number of the other rows. `rows` come from [`Series::prepare`].
    pub fn distinct<'a>(&self, series: &Series, rows: Cow<'a, RawTable>) -> (Cow<'a, RawTable>, usize) {
        match self {
            Self::Hidden(hidden) => without(series, rows, |key| has(key, hidden)),
            _ => (rows, 0),
        }
    }
}

/// Tells whether a key has one of these bits.
fn has(key: &[u8], bits: &[u8]) -> bool {
    key.iter().zip(bits).fold(0, |all, (key, bits)| all | key & bits) != 0
}

/// Returns the rows without those whose key is to be left out, and the number of these.
fn without<'a>(
    series: &Series,
    rows: Cow<'a, RawTable>,
    mut is_out: impl FnMut(&[u8]) -> bool,
) -> (Cow<'a, RawTable>, usize) {
    let len = series.len(&rows);
    let out: Vec<usize> = (0..len).filter(|&row| is_out(series.key(&rows, row))).collect();
    if out.is_empty() {
        return (rows, 0);
    }
    let mut rest = RawTable::default();
    for row in (0..len).filter(|row| out.binary_search(row).is_err()) {
        rest.keys.extend_from_slice(series.key(&rows, row));
        rest.values.extend_from_slice(series.value(&rows, row));
    }
    (Cow::Owned(rest), out.len())
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
            (MapKind::Hash, address.clone(), Temporality::Live, Repeats::None),
            (MapKind::Hash, padded(), Temporality::Window, Repeats::Unknown(vec![0, 0xff])),
            (MapKind::Hash, interface, Temporality::Window, Repeats::Any),
            (MapKind::LpmTrie, address.clone(), Temporality::Window, Repeats::None),
            (MapKind::LpmTrie, address, Temporality::Live, Repeats::Any),
        ] {
            assert_eq!(Repeats::of(&series(kind, key.clone(), temporality)), expected, "{kind:?} {key:?}");
        }
    }

    #[test]
    fn padding_is_looked_for_and_what_comes_later_is_left_out() {
        let series = series(MapKind::Hash, padded(), Temporality::Live);
        let rows = |keys: &[u8]| RawTable {
            keys: keys.to_vec(),
            values: vec![7; keys.len() / 2],
            ..RawTable::default()
        };
        let mut repeats = Repeats::of(&series);
        assert!(
            !repeats.hides(&series, &rows(&[1, 0, 2, 0])) && repeats.hides(&series, &rows(&[1, 0, 2, 8]))
        );
        repeats.settle(false);
        let (distinct, duplicates) = repeats.distinct(&series, Cow::Owned(rows(&[1, 0, 1, 9, 2, 0])));
        assert_eq!((&distinct.keys[..], distinct.values.len(), duplicates), (&[1, 0, 2, 0][..], 2, 1));
        let mut found = Repeats::of(&series);
        found.settle(true);
        assert_eq!(found, Repeats::Any);
    }
}
