//! The sum of a metric over its windows.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use twinprobe_ebpf_common::{MapFamily, TableChanges, TableLayout};
use twinprobe_exporter::Accumulator;

use twinprobe_config::MetricConfig;

/// The sum of all windows so far.
#[derive(Debug)]
pub struct Sum {
    pub rows: Accumulator,
    /// The last window in the sum.
    pub through: u64,
    /// The largest number of entries that the sum may have, if entries come and go with the
    /// traffic.
    pub max_entries: Option<usize>,
    /// The number of entries dropped so far because the sum was full.
    pub dropped: u64,
    /// The number of entries that the map had in the last window.
    pub used: u64,
    /// The time after which an entry is dropped if no window has it.
    expires: Option<Duration>,
    /// The ends of the windows within that time, oldest first. If windows end close together, only
    /// some of them are listed.
    ends: VecDeque<(u64, Instant)>,
}

/// The changes of sums in a window, each with the place of its metric.
pub type ChangedSums = Vec<(usize, TableChanges)>;

/// The number of bytes that changes must save to be worth storing: the store has pages of this
/// size.
const SAVED: usize = 4096;

/// Returns the changes in all sums since window number `since`; `None` if the changes are not
/// known, or if whole sums need little more room.
pub fn changes<'a>(
    sums: impl Iterator<Item = (usize, &'a Sum)>,
    since: u64,
) -> Option<ChangedSums> {
    let (mut whole, mut changed, mut all) = (0, 0, Vec::new());
    for (place, sum) in sums {
        let changes = sum.rows.changes(since)?;
        whole += sum.size();
        changed += changes.size();
        all.push((place, changes));
    }
    // If nearly everything has changed, whole sums are as small, and faster to read.
    let saves = changed + SAVED <= whole && changed + changed / 5 <= whole;
    saves.then_some(all)
}

impl Sum {
    /// Returns the size in bytes of all rows and their ages.
    fn size(&self) -> usize {
        let table = self.rows.table();
        table.keys.len() + table.values.len() + size_of_val(self.rows.ages())
    }

    pub fn drop_surplus(&mut self) {
        let dropped = self
            .max_entries
            .map_or(0, |entries| self.rows.bound(entries));
        self.dropped += dropped as u64;
    }

    /// Drops the entries that no window has had for too long. Called once window `seq` has ended.
    /// Windows before the first one that this daemon closes count as if they had ended just now.
    pub fn drop_expired(&mut self, seq: u64, now: Instant) {
        let Some(expires) = self.expires else { return };
        if self.ends.is_empty() {
            self.ends.push_back((seq.saturating_sub(1), now));
        }
        self.ends.push_back((seq, now));
        // Ends of windows that are closer together than this are merged: otherwise short windows
        // would fill the memory. An entry may stay longer by the same time.
        if let Some(at) = self.ends.len().checked_sub(3)
            && now.duration_since(self.ends[at].1) < expires / 64
        {
            self.ends.remove(at + 1);
        }
        let mut gone = None;
        while let Some((seq, _)) = self
            .ends
            .pop_front_if(|(_, end)| now.duration_since(*end) > expires)
        {
            gone = Some(seq);
        }
        if let Some(seq) = gone {
            self.rows.drop_older(seq + 1);
        }
    }
}

/// Makes an empty sum if the metric has a sum. The error names the field that does not fit.
pub fn sum(
    metric: &MetricConfig,
    entries: usize,
    layout: &Arc<TableLayout>,
) -> Result<Option<Sum>, (&'static str, String)> {
    // Rows popped from a queue are events, which do not add up: each event is shown once.
    let Some(rules) = metric
        .request
        .rules()
        .filter(|_| layout.kind.family() != MapFamily::Fifo)
    else {
        return Ok(None);
    };
    let rows = Accumulator::new(Arc::clone(layout), rules)
        .map_err(|error| ("merge", error.to_string()))?;
    let map_entries = rows.has_ages().then_some(entries);
    if !rows.has_ages() && metric.sum.expires.is_some() {
        let (name, kind) = (&metric.request.map, layout.kind.name());
        let message = format!(
            "the entries of {name} are never removed, because its type is {kind}; leave sum_expires out"
        );
        return Err(("sum_expires", message));
    }
    let max_entries = match (map_entries, metric.sum.entries) {
        (None, Some(_)) => {
            let (name, kind) = (&metric.request.map, layout.kind.name());
            let message = format!(
                "the sum of {name} has as many entries as the map, because its type is {kind}; leave sum_entries out"
            );
            return Err(("sum_entries", message));
        }
        (Some(least), Some(entries)) if entries < least => {
            let name = &metric.request.map;
            let message = format!(
                "one window of map {name} can have {least} entries; at least this number is needed"
            );
            return Err(("sum_entries", message));
        }
        (map_entries, entries) => {
            entries.or(map_entries.map(|entries| entries.saturating_mul(SUM_ENTRIES)))
        }
    };
    let (expires, ends) = (metric.sum.expires, VecDeque::new());
    Ok(Some(Sum {
        rows,
        through: 0,
        max_entries,
        dropped: 0,
        used: 0,
        expires,
        ends,
    }))
}

/// The default limit of a sum's entries, as a multiple of the entries of the metric's map.
pub const SUM_ENTRIES: usize = 8;

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::{Layout, MapKind, MergeRules, RawTable};

    use super::*;

    fn sum(expires: Duration) -> Sum {
        let (key, value) = (Layout::unsigned(1), Layout::unsigned(1));
        let layout = TableLayout {
            kind: MapKind::Hash,
            key,
            value,
            slots: 1,
            inner: None,
        };
        let rows = Accumulator::new(Arc::new(layout), &MergeRules::default()).unwrap();
        let (expires, ends) = (Some(expires), VecDeque::new());
        Sum {
            rows,
            through: 0,
            max_entries: None,
            dropped: 0,
            used: 0,
            expires,
            ends,
        }
    }

    fn close(sum: &mut Sum, seq: u64, keys: &[u8], now: Instant) -> Vec<u8> {
        sum.rows.add(
            &RawTable {
                keys: keys.into(),
                values: keys.into(),
                ..RawTable::default()
            },
            seq,
            0,
        );
        sum.drop_expired(seq, now);
        sum.rows.table().keys.clone()
    }

    #[test]
    fn an_entry_goes_once_no_window_has_had_it_for_the_time() {
        let (mut sum, start) = (sum(Duration::from_secs(10)), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(close(&mut sum, 5, &[1, 2], at(0)), [1, 2]);
        assert_eq!(close(&mut sum, 6, &[2, 3], at(6)), [1, 2, 3]);
        assert_eq!(
            close(&mut sum, 7, &[], at(10)),
            [1, 2, 3],
            "not longer than the time"
        );
        assert_eq!(close(&mut sum, 8, &[], at(11)), [2, 3]);
        assert_eq!(close(&mut sum, 9, &[1], at(17)), [1]);
        assert_eq!(
            sum.rows.table().values,
            1_u64.to_le_bytes(),
            "it begins anew"
        );
    }

    #[test]
    fn many_short_windows_take_little_room() {
        let (mut sum, start) = (sum(Duration::from_secs(64)), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        close(&mut sum, 1, &[1], at(0));
        for seq in 2..100_000 {
            close(&mut sum, seq, &[2], at(seq));
        }
        assert_eq!(sum.rows.table().keys, [2]);
        assert!(sum.ends.len() < 200, "{}", sum.ends.len());
    }
}
