//! The facts about a probe's windows that the rows of the windows do not contain.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use twinprobe_ebpf_common::window::{LostRange, is_default};

/// The largest number of gaps that are stored one by one. Older gaps are merged, and only the
/// number of their lost windows is exact.
const GAPS: usize = 256;
/// The version of the files that are written.
const VERSION: u32 = 1;

/// The records of a probe in the store beside its windows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeriesState {
    /// The number of the first window that was ever committed; 0 if there was none.
    pub first: u64,
    /// The number of the last window that was ever committed.
    pub last: u64,
    /// The number up to which all windows are acknowledged or lost.
    pub acknowledged: u64,
    /// The cursor of each collector.
    pub collectors: BTreeMap<String, u64>,
    /// The windows that were removed before all named collectors had acknowledged them, and the
    /// damaged windows.
    pub lost: Lost,
    /// The windows that the limits removed while no collector was named. No client misses them.
    #[serde(skip_serializing_if = "is_default")]
    pub outlived: Lost,
    /// The number of windows in `lost` that belong to `outlived`; earlier versions did not record
    /// which windows these are.
    #[serde(skip_serializing)]
    pub unclaimed: u64,
    /// The number of lost windows that the windows up to `reported_through` have reported.
    pub reported: u64,
    pub reported_through: u64,
    /// The number of windows that were lost because their files were damaged.
    pub damaged: u64,
}

impl SeriesState {
    /// The last window that a collector has acknowledged.
    pub fn cursor(&self, collector: &str) -> u64 {
        self.collectors
            .get(collector)
            .map_or(0, |&seq| seq)
            .max(self.acknowledged)
    }

    /// Encodes the state as two lines of JSON; the second line is the digest of the first.
    pub fn encode(&self) -> Vec<u8> {
        // Numbers and texts can always be encoded.
        let mut bytes = serde_json::to_vec(&StateContent {
            version: VERSION,
            state: self,
        })
        .unwrap_or_default();
        let digest = digest_line(&bytes);
        bytes.extend_from_slice(digest.as_bytes());
        bytes
    }

    /// Returns the state that was encoded, or the reason why it can't be used.
    pub fn decode(bytes: &[u8]) -> Result<Self, Undecodable> {
        let end = bytes
            .iter()
            .position(|&byte| byte == b'\n')
            .ok_or(Undecodable::Damaged)?;
        let (state, digest) = bytes.split_at(end);
        if digest != digest_line(state).as_bytes() {
            return Err(Undecodable::Damaged);
        }
        let version: Version = serde_json::from_slice(state).map_err(|_| Undecodable::Damaged)?;
        if version.version > VERSION {
            return Err(Undecodable::Newer(version.version));
        }
        let mut state: Self = serde_json::from_slice(state).map_err(|_| Undecodable::Damaged)?;
        state.tell_apart();
        Ok(state)
    }

    /// Moves the windows that were lost while no collector was named to `outlived`. These are the
    /// first lost windows, because most collectors get their names later.
    fn tell_apart(&mut self) {
        if self.unclaimed > 0 {
            self.outlived = self.lost.take_first(std::mem::take(&mut self.unclaimed));
            self.reported = self.reported.min(self.lost.total());
        }
    }
}

/// The reason why a state can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecodable {
    Damaged,
    /// The state has this version, which is later than [`VERSION`].
    Newer(u32),
}

#[derive(Serialize)]
struct StateContent<'a> {
    version: u32,
    #[serde(flatten)]
    state: &'a SeriesState,
}

/// The field of every version of the file except the first.
#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    version: u32,
}

fn digest_line(bytes: &[u8]) -> String {
    let digest: String = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("\n{{\"sha256\":\"{digest}\"}}\n")
}

/// Windows that were removed without an acknowledgement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost(Vec<Gap>);

/// The `count` lost windows among `from..=to`. All of `from..=to` are lost, unless the gap was made
/// by a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Gap {
    from: u64,
    to: u64,
    count: u64,
}

impl Lost {
    /// Adds a lost window. If there are too many gaps, old ones are merged. This never makes a
    /// window at or after `oldest` look lost.
    pub fn add(&mut self, seq: u64, oldest: u64) {
        if self.contains(seq) {
            return;
        }
        let at = self.0.partition_point(|gap| gap.to < seq);
        self.0.insert(
            at,
            Gap {
                from: seq,
                to: seq,
                count: 1,
            },
        );
        self.join(at);
        if let Some(before) = at.checked_sub(1) {
            self.join(before);
        }
        while self.0.len() > GAPS && self.0[1].to < oldest {
            let gap = self.0.remove(0);
            self.0[0] = Gap {
                from: gap.from,
                count: gap.count + self.0[0].count,
                ..self.0[0]
            };
        }
    }

    /// Removes the last lost window from the list, because it was stored after all.
    pub fn take_back(&mut self, seq: u64) {
        if let Some(gap) = self.0.pop_if(|gap| gap.to == seq)
            && gap.from < gap.to
        {
            self.0.push(Gap {
                to: gap.to - 1,
                count: gap.count - 1,
                ..gap
            });
        }
    }

    /// Removes the first `count` windows and returns them.
    fn take_first(&mut self, mut count: u64) -> Self {
        let mut first = Vec::new();
        while count > 0
            && let Some(gap) = self.0.first_mut()
        {
            if gap.count <= count {
                count -= gap.count;
                first.push(self.0.remove(0));
                continue;
            }
            first.push(Gap {
                to: gap.from + count - 1,
                count,
                ..*gap
            });
            (gap.from, gap.count) = (gap.from + count, gap.count - count);
            count = 0;
        }
        Self(first)
    }

    /// Tells whether a window is lost.
    pub fn contains(&self, seq: u64) -> bool {
        let at = self.0.partition_point(|gap| gap.to < seq);
        self.0.get(at).is_some_and(|gap| gap.from <= seq)
    }

    /// The number of lost windows after `seq`.
    pub fn after(&self, seq: u64) -> u64 {
        let at = self.0.partition_point(|gap| gap.to <= seq);
        let count = |gap: &Gap| {
            if gap.from > seq {
                gap.count
            } else {
                gap.count.min(gap.to - seq)
            }
        };
        self.0[at..].iter().map(count).sum()
    }

    /// The lost windows after `seq`.
    pub fn ranges_after(&self, seq: u64) -> Vec<LostRange> {
        let at = self.0.partition_point(|gap| gap.to <= seq);
        let range = |gap: &Gap| match gap.from > seq {
            true => LostRange {
                first: gap.from,
                last: gap.to,
                windows: gap.count,
            },
            false => LostRange {
                first: seq + 1,
                last: gap.to,
                windows: gap.count.min(gap.to - seq),
            },
        };
        self.0[at..].iter().map(range).collect()
    }

    /// The number of all lost windows.
    pub fn total(&self) -> u64 {
        self.after(0)
    }

    /// Returns the number of the last lost window; 0 if there is none.
    pub fn newest(&self) -> u64 {
        self.0.last().map_or(0, |gap| gap.to)
    }

    /// Merges the gap at `at` with the next one if no window is between them.
    fn join(&mut self, at: usize) {
        if let [gap, next, ..] = self.0[at..]
            && gap.to.checked_add(1) == Some(next.from)
        {
            self.0[at] = Gap {
                from: gap.from,
                to: next.to,
                count: gap.count + next.count,
            };
            self.0.remove(at + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// An earlier version recorded how many of the lost windows had no named collector.
    #[test]
    fn what_nobody_misses_is_told_apart() {
        let mut lost = Lost::default();
        [1, 2, 5, 6, 7]
            .into_iter()
            .for_each(|seq| lost.add(seq, u64::MAX));
        let state = SeriesState {
            lost,
            unclaimed: 3,
            reported: 4,
            ..SeriesState::default()
        };
        let mut bytes = serde_json::to_value(&state).unwrap();
        bytes["unclaimed"] = 3.into();
        let mut bytes = serde_json::to_vec(&bytes).unwrap();
        bytes.extend_from_slice(digest_line(&bytes.clone()).as_bytes());
        let SeriesState {
            lost,
            outlived,
            unclaimed,
            reported,
            ..
        } = SeriesState::decode(&bytes).unwrap();
        assert_eq!(
            (lost.total(), outlived.total(), unclaimed, reported),
            (2, 3, 0, 2)
        );
        assert!([1, 2, 5].iter().all(|seq| outlived.contains(*seq)) && !outlived.contains(6));
        assert!([6, 7].iter().all(|seq| lost.contains(*seq)) && !lost.contains(5));
    }

    proptest! {
        #[test]
        fn what_was_lost_is_counted_after_any_window(lost in vec(1_u64..40, 0..60)) {
            let mut gaps = Lost::default();
            lost.iter().for_each(|&seq| gaps.add(seq, u64::MAX));
            let set: BTreeSet<u64> = lost.into_iter().collect();
            for seq in 0..45 {
                prop_assert_eq!(gaps.contains(seq), set.contains(&seq));
                prop_assert_eq!(gaps.after(seq), set.range(seq + 1..).count() as u64);
                let ranges = gaps.ranges_after(seq).into_iter().flat_map(|range| range.first..=range.last);
                prop_assert_eq!(ranges.collect::<BTreeSet<u64>>(), set.range(seq + 1..).copied().collect());
            }
            let apart = gaps.0.windows(2).all(|pair| pair[0].to + 1 < pair[1].from);
            prop_assert!(apart, "{gaps:?}");
        }
    }

    #[test]
    fn old_gaps_become_one_that_counts_right_and_holds_nothing_retained() {
        let mut gaps = Lost::default();
        let windows = GAPS as u64 + 50;
        for seq in (2..=2 * windows).step_by(2) {
            gaps.add(seq, seq);
        }
        assert_eq!((gaps.0.len(), gaps.total()), (GAPS, windows));
        assert_eq!(gaps.after(2 * windows - 10), 5);
        assert!(!gaps.contains(2 * windows - 1));

        let mut gaps = Lost::default();
        for seq in (2..=2 * windows).step_by(2) {
            gaps.add(seq, 1);
        }
        assert!(
            (1..=2 * windows).all(|seq| gaps.contains(seq) == (seq % 2 == 0)),
            "1 and others are retained"
        );
    }

    #[test]
    fn a_state_with_any_byte_wrong_or_missing_is_no_state() {
        let mut state = SeriesState {
            first: 3,
            last: 12,
            acknowledged: 9,
            damaged: 1,
            ..SeriesState::default()
        };
        state.lost.add(5, 3);
        state.collectors.insert("a\n\"b\"".to_owned(), 7);
        let whole = state.encode();
        assert_eq!(SeriesState::decode(&whole), Ok(state));
        for index in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[index] ^= 1 << bit;
                assert_eq!(
                    SeriesState::decode(&damaged),
                    Err(Undecodable::Damaged),
                    "byte {index}"
                );
            }
            assert_eq!(
                SeriesState::decode(&whole[..index]),
                Err(Undecodable::Damaged),
                "{index} bytes"
            );
        }
        assert_eq!(
            SeriesState::decode(&[&whole[..], b"\n"].concat()),
            Err(Undecodable::Damaged)
        );
    }
}
