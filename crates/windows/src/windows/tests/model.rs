//! A model of windows that is as simple as possible: sets of numbers, and no files.

use std::collections::{BTreeMap, BTreeSet};

use crate::body::head::ClosedBy;
use crate::retention::{AckError, ListBounds, Missing, RetentionLimits};
use crate::windows::{WindowStatistics, Windows};

pub const COLLECTORS: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub first: u64,
    pub last: u64,
    pub retained: BTreeMap<u64, Kept>,
    /// The newest window, once it is acknowledged.
    pub acked: Option<u64>,
    pub lost: BTreeSet<u64>,
    /// The windows that were removed while no collector was named.
    pub outlived: BTreeSet<u64>,
    pub damaged: u64,
    pub reported: u64,
    pub acknowledged: u64,
    pub cursors: BTreeMap<String, u64>,
    pub limits: RetentionLimits,
}

#[derive(Clone, Debug)]
pub struct Kept {
    /// The number of rows.
    pub size: usize,
    pub bytes: u64,
    pub closed_by: ClosedBy,
    pub taken: bool,
}

/// The answers to all queries, and the state that later decisions depend on.
#[derive(Debug, PartialEq)]
pub struct View {
    /// The listing after each window.
    listings: Vec<(Vec<(u64, u64)>, u64)>,
    /// The answer to a request for each window.
    got: Vec<Result<u64, Missing>>,
    contained: Vec<bool>,
    last: u64,
    newest: Option<u64>,
    untaken: Vec<u64>,
    unreported: u64,
    statistics: WindowStatistics,
    acknowledged: Vec<Result<u64, AckError>>,
    acknowledged_for_all: u64,
    taken: Vec<u64>,
}

impl Model {
    pub fn commit(&mut self, seq: u64, kept: Kept) {
        if self.first == 0 {
            self.first = seq;
        }
        self.reported = self.lost.len() as u64;
        self.last = seq;
        self.acked = None;
        self.retained.insert(seq, kept);
        self.retire();
    }

    pub fn take(&mut self, seq: u64) {
        if let Some(kept) = self.retained.get_mut(&seq) {
            kept.taken = true;
        }
    }

    pub fn acknowledge(&mut self, seq: u64, collector: Option<&str>) -> Result<(), AckError> {
        match collector {
            Some(name) if !self.limits.collectors.iter().any(|known| known == name) => {
                return Err(AckError::UnknownCollector(name.to_owned()));
            }
            _ if seq > self.last => return Err(AckError::Beyond { newest: self.last }),
            Some(name) => {
                let cursor = self.cursors.entry(name.to_owned()).or_default();
                *cursor = seq.max(*cursor);
            }
            None => self.acknowledged = seq.max(self.acknowledged),
        }
        self.release();
        Ok(())
    }

    pub fn set_limits(&mut self, limits: RetentionLimits) {
        self.limits = limits;
        self.cursors
            .retain(|name, _| self.limits.collectors.contains(name));
        self.release();
        self.retire();
    }

    pub fn drop_oldest(&mut self) -> bool {
        let oldest = *self.retained.keys().next().unwrap_or(&0);
        if self.retained.len() < 2 {
            return false;
        }
        let kept = self.retained.remove(&oldest).unwrap();
        if !(kept.taken && self.limits.taken_counts) {
            let gone = if self.limits.collectors.is_empty() {
                &mut self.outlived
            } else {
                &mut self.lost
            };
            gone.insert(oldest);
        }
        true
    }

    pub fn damage(&mut self, seq: u64) {
        if self.retained.remove(&seq).is_some() {
            self.lost.insert(seq);
            self.damaged += 1;
        }
        self.acked = self.acked.filter(|&acked| acked != seq);
    }

    /// Returns the numbers of the windows that exist.
    pub fn files(&self) -> Vec<u64> {
        self.retained.keys().copied().chain(self.acked).collect()
    }

    pub fn got(&self, seq: u64) -> Result<u64, Missing> {
        match seq {
            _ if self.retained.contains_key(&seq) => Ok(seq),
            _ if seq < self.first || seq > self.last || seq == 0 => Err(Missing::Never),
            _ if self.lost.contains(&seq) => Err(Missing::Lost),
            _ if self.outlived.contains(&seq) => Err(Missing::Outlived),
            _ => Err(Missing::Acknowledged),
        }
    }

    pub fn view(&self) -> View {
        let sum = |kept: &Kept| kept.bytes;
        let retained = |after: u64| {
            let rest = self
                .retained
                .range(after + 1..)
                .map(|(&seq, kept)| (seq, kept.bytes));
            (rest.collect(), self.lost.range(after + 1..).count() as u64)
        };
        let untaken = |(&seq, kept): (&u64, &Kept)| {
            (kept.closed_by == ClosedBy::Read && !kept.taken).then_some(seq)
        };
        View {
            listings: (0..self.last + 2).map(retained).collect(),
            got: (0..self.last + 2).map(|seq| self.got(seq)).collect(),
            contained: (0..self.last + 2)
                .map(|seq| self.got(seq) != Err(Missing::Never))
                .collect(),
            last: self.last,
            newest: self.files().into_iter().max(),
            untaken: self.retained.iter().filter_map(untaken).collect(),
            unreported: self.lost.len() as u64 - self.reported,
            statistics: WindowStatistics {
                retained: self.retained.len(),
                bytes: self.retained.values().map(sum).sum(),
                oldest: self.retained.keys().next().copied(),
                newest: self.retained.keys().max().copied(),
                lost: self.lost.len() as u64,
                damaged: self.damaged,
                unreadable: 0,
            },
            acknowledged: COLLECTORS.map(|name| self.cursor(name)).to_vec(),
            acknowledged_for_all: self.acknowledged,
            taken: self
                .retained
                .iter()
                .filter(|(_, kept)| kept.taken)
                .map(|(&seq, _)| seq)
                .collect(),
        }
    }

    fn cursor(&self, name: &str) -> Result<u64, AckError> {
        if self.limits.collectors.iter().any(|known| known == name) {
            Ok(self
                .cursors
                .get(name)
                .map_or(self.acknowledged, |&seq| seq.max(self.acknowledged)))
        } else {
            Err(AckError::UnknownCollector(name.to_owned()))
        }
    }

    fn release(&mut self) {
        let cursors = self
            .limits
            .collectors
            .iter()
            .filter_map(|name| self.cursor(name).ok());
        self.acknowledged = cursors.min().unwrap_or(0).max(self.acknowledged);
        let newest = self.retained.keys().max().copied();
        self.retained.retain(|&seq, _| seq > self.acknowledged);
        if self.retained.is_empty() {
            self.acked = newest.or(self.acked);
        }
    }

    fn retire(&mut self) {
        let bytes = |model: &Self| model.retained.values().map(|kept| kept.bytes).sum::<u64>();
        while (self.retained.len() > self.limits.retain || bytes(self) > self.limits.bytes)
            && self.drop_oldest()
        {}
    }
}

/// Returns the same answers as [`Model::view`], for real windows.
pub fn view(windows: &Windows) -> View {
    let last = windows.last_seq();
    let listing = |after| {
        let listing = windows.list(after, ListBounds::default());
        (
            listing
                .windows
                .iter()
                .map(|entry| (entry.seq, entry.bytes))
                .collect(),
            listing.lost_windows,
        )
    };
    let (taken, acknowledged_for_all) = {
        let index = windows.index.lock();
        (index.taken(), index.state.acknowledged)
    };
    View {
        listings: (0..last + 2).map(listing).collect(),
        got: (0..last + 2)
            .map(|seq| windows.get(seq).map(|window| window.seq()))
            .collect(),
        contained: (0..last + 2).map(|seq| windows.contains(seq)).collect(),
        last,
        newest: windows.newest().map(|window| window.seq()),
        untaken: windows
            .untaken()
            .iter()
            .map(|window| window.seq())
            .collect(),
        unreported: windows.unreported_lost(last + 1),
        statistics: windows.statistics(),
        acknowledged: COLLECTORS.map(|name| windows.acknowledged(name)).to_vec(),
        acknowledged_for_all,
        taken,
    }
}
