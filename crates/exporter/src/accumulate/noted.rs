//! Notes of the changes in a sum from one window to the next.

use twinprobe_ebpf_common::{RawTable, TableChanges, TableLayout};

/// The changes in a sum since a window. Entries keep their order, and new entries come after all
/// others.
#[derive(Clone, Debug)]
pub struct Noted {
    /// The number of the window since which changes are noted.
    pub since: u64,
    /// The number of entries of the sum in that window.
    before: usize,
    /// For each remaining entry of the sum in that window, whether the entry has changed.
    changed: Vec<bool>,
    /// The places of these entries in that window; `None` while no entry is removed.
    places: Option<Vec<usize>>,
}

impl Noted {
    pub fn new(since: u64, len: usize) -> Self {
        Self {
            since,
            before: len,
            changed: vec![false; len],
            places: None,
        }
    }

    /// Notes that an entry has changed. New entries are stored whole.
    pub fn change(&mut self, entry: usize) {
        self.changed
            .get_mut(entry)
            .into_iter()
            .for_each(|changed| *changed = true);
    }

    /// Notes that entries are removed.
    pub fn remove(&mut self, goes: &[bool]) {
        let places = self
            .places
            .take()
            .unwrap_or_else(|| (0..self.before).collect());
        let stays = |(_, goes): &(usize, &bool)| !**goes;
        self.places = Some(
            places
                .into_iter()
                .zip(goes)
                .filter(stays)
                .map(|(place, _)| place)
                .collect(),
        );
        let mut goes = goes.iter();
        self.changed
            .retain(|_| goes.next().is_none_or(|goes| !goes));
    }

    /// Returns the changes from the sum in the noted window to `total`.
    pub fn changes(&self, total: &RawTable, layout: &TableLayout) -> TableChanges {
        let is_left = |place: &usize| {
            self.places
                .as_ref()
                .is_none_or(|left| left.binary_search(place).is_ok())
        };
        let gone = (0..self.before).filter(|place| !is_left(place)).collect();
        let changed = self
            .changed
            .iter()
            .enumerate()
            .filter(|(_, changed)| **changed);
        let changed: Vec<usize> = changed.map(|(entry, _)| entry).collect();
        let stride = layout.value_stride();
        let old = changed
            .iter()
            .flat_map(|entry| &total.values[entry * stride..][..stride])
            .copied();
        let new = total.slice(self.changed.len(), total.len(layout), layout);
        let values = old.chain(new.values).collect();
        TableChanges {
            gone,
            changed,
            rows: RawTable {
                keys: new.keys,
                values,
                inner: Vec::new(),
            },
        }
    }
}
