//! The removal of repeated rows. Different keys have different labels. Only a walk over a live trie
//! may meet a key twice: it starts again when a program deletes the key that the walk has reached.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use twinprobe_ebpf_common::{MapFamily, RawTable, Temporality};

use crate::encode::openmetrics::series::MetricSeries;

/// The keys that one walk over a table has met so far.
#[derive(Debug, Default)]
pub struct WalkedKeys {
    /// The hash functions. Two hashes with random keys represent a key. A collision would lose a
    /// sample, and packets can choose their keys.
    hashers: [RandomState; 2],
    keys: HashSet<[u64; 2]>,
}

impl WalkedKeys {
    /// Returns the set for a walk over a table; `None` if no key can come twice.
    pub fn for_walk(series: &MetricSeries) -> Option<Self> {
        let kind = series.metric.layout.kind;
        let is_live = series.metric.temporality == Temporality::Live;
        (!kind.has_keys() || kind.family() == MapFamily::Trie && is_live).then(Self::default)
    }

    /// Returns the rows whose keys are new, and the number of the other rows. `rows` come from
    /// [`MetricSeries::prepare`].
    pub fn distinct<'a>(
        &mut self,
        series: &MetricSeries,
        rows: Cow<'a, RawTable>,
    ) -> (Cow<'a, RawTable>, usize) {
        let hash = |key: &[u8]| self.hashers.each_ref().map(|hasher| hasher.hash_one(key));
        let hashes: Vec<_> = (0..series.len(&rows))
            .map(|row| hash(series.key(&rows, row)))
            .collect();
        let new: Vec<bool> = hashes
            .into_iter()
            .map(|hashes| self.keys.insert(hashes))
            .collect();
        if new.iter().all(|new| *new) {
            return (rows, 0);
        }
        let mut rest = RawTable::default();
        for row in (0..new.len()).filter(|row| new[*row]) {
            rest.keys.extend_from_slice(series.key(&rows, row));
            rest.values.extend_from_slice(series.value(&rows, row));
        }
        (Cow::Owned(rest), new.iter().filter(|new| !**new).count())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use twinprobe_ebpf_common::{Layout, MapKind, TableLayout};

    use super::*;
    use crate::metric::Metric;

    fn series(kind: MapKind, temporality: Temporality) -> MetricSeries {
        let (key, value) = (Layout::unsigned(2), Layout::unsigned(1));
        let layout = TableLayout {
            kind,
            key,
            value,
            slots: 1,
            inner: None,
        };
        let metric = Metric::example("m", layout).with(|head| head.temporality = temporality);
        MetricSeries::new(
            "p",
            &BTreeMap::new(),
            &[],
            &Arc::new(metric),
            Arc::default(),
        )
    }

    #[test]
    fn of_keys_that_come_again_the_first_stays() {
        let series = series(MapKind::LpmTrie, Temporality::Live);
        let rows = RawTable {
            keys: vec![1, 0, 2, 0, 1, 0],
            values: vec![10, 20, 30],
            ..RawTable::default()
        };
        let mut seen = WalkedKeys::for_walk(&series).expect("a live trie");
        let (distinct, duplicates) = seen.distinct(&series, Cow::Borrowed(&rows));
        assert_eq!(
            (&distinct.keys[..], &distinct.values[..], duplicates),
            (&[1, 0, 2, 0][..], &[10, 20][..], 1)
        );
        let again = seen.distinct(&series, Cow::Borrowed(&rows)).1;
        assert_eq!(again, 3, "they are remembered from piece to piece");
    }

    #[test]
    fn only_the_keys_of_live_tries_need_to_be_remembered() {
        for (kind, temporality, expected) in [
            (MapKind::Hash, Temporality::Live, false),
            (MapKind::LpmTrie, Temporality::Window, false),
            (MapKind::LpmTrie, Temporality::Live, true),
        ] {
            assert_eq!(
                WalkedKeys::for_walk(&series(kind, temporality)).is_some(),
                expected,
                "{kind:?}"
            );
        }
    }
}
