//! Rows whose labels are equal can't be told apart: the first is a sample, the others are left out.

use std::{
    borrow::Cow,
    collections::HashSet,
    hash::{BuildHasher as _, RandomState},
};

use twinprobe_ebpf_common::{MapFamily, RawTable, Temporality};

use super::series::Series;
use crate::decode::decoder::Decoder;
use crate::decode::plan::{Plan, Scalar};

/// The labels that one walk over a table has met.
#[derive(Debug, Default)]
pub struct Seen {
    /// Two hashes, keyed at random: a collision would lose a sample, and packets can choose their keys.
    hashers: [RandomState; 2],
    labels: HashSet<[u64; 2]>,
}

impl Seen {
    /// The rows whose labels are new, and the number of the others. Rows are prepared.
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

/// Whether keys that differ have labels that differ, and no key comes twice: then nothing has to be remembered of
/// a table of a million rows.
pub fn is_certain(series: &Series) -> bool {
    let layout = &*series.metric.layout;
    // A walk over a trie can start again when a program deletes under it.
    let steady = layout.kind.family() != MapFamily::Trie || series.metric.reading != Temporality::Live;
    if !steady || !layout.kind.has_keys() {
        return false;
    }
    let mut shown = vec![0_u8; layout.key.size];
    for label in &series.samples.keys {
        let field = &label.field;
        if !is_exact(&field.plan) {
            return false;
        }
        let (first, width) =
            field.bits.map_or((0, 8 * field.size), |bits| (bits.shift as usize, bits.width as usize));
        for bit in 8 * field.offset + first..8 * field.offset + first + width {
            shown[bit / 8] |= 1 << (bit % 8);
        }
    }
    // Padding is not shown.
    shown.iter().all(|bits| *bits == u8::MAX)
}

/// Whether values that differ are shown differently.
const fn is_exact(plan: &Plan<()>) -> bool {
    match plan {
        Plan::Scalar { kind, .. } => {
            matches!(kind, Scalar::Unsigned | Scalar::Signed | Scalar::Swapped | Scalar::Hex)
        }
        Plan::Blob { .. } | Plan::Ipv4 | Plan::Ipv6 | Plan::Mac => true,
        // NaNs, what follows a NUL, and names.
        Plan::Float { .. } | Plan::Text { .. } | Plan::Struct(_) | Plan::Array { .. } => false,
    }
}
