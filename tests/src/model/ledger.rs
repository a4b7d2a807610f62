//! The ledger of expected counts: the packets that a probe has seen, and for each of its counters
//! the number that it no longer contains. Most numbers are exact; packets that were sent during a
//! change are a range until they are read.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

/// The key of all packets of a burst.
pub type Key = u32;
/// The key that stands for all keys of a counter with only one number.
const ALL: Key = Key::MAX;
/// The longest time in nanoseconds between a window's end in its document and its last packet.
const LATE: i128 = 8_000_000_000;

/// A number of packets between `lo` and `hi`, both included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub lo: u64,
    pub hi: u64,
}

impl Range {
    pub const fn exactly(number: u64) -> Self {
        Self {
            lo: number,
            hi: number,
        }
    }

    pub const fn up_to(number: u64) -> Self {
        Self { lo: 0, hi: number }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            lo: self.lo + other.lo,
            hi: self.hi + other.hi,
        }
    }

    fn minus(self, number: u64) -> Self {
        Self {
            lo: self.lo.saturating_sub(number),
            hi: self.hi.saturating_sub(number),
        }
    }

    /// Returns the numbers that both ranges contain, `None` if there are none.
    fn common(self, other: Self) -> Option<Self> {
        let common = Self {
            lo: self.lo.max(other.lo),
            hi: self.hi.min(other.hi),
        };
        (common.lo <= common.hi).then_some(common)
    }

    fn both(self, other: Self) -> Self {
        Self {
            lo: self.lo.min(other.lo),
            hi: self.hi.max(other.hi),
        }
    }
}

/// A burst that a probe has seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    packets: Range,
    /// The time of the first packet in nanoseconds of the daemon's clock; `ended` is that of the
    /// last one.
    begun: i128,
    ended: i128,
}

/// The way in which a metric is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// A metric with neither `snapshot` nor `init`.
    Live,
    /// A metric with `snapshot` and `init`.
    Window,
    /// A metric with `snapshot`, without `init`.
    Sum,
    /// A metric with `init`, without `snapshot`.
    Init,
}

/// The keys for which a map has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The keys below this bound.
    Below(Key),
    /// This many keys. The order of the packets decides which keys have room.
    Any(u64),
}

impl Room {
    const fn has(self, key: Key) -> bool {
        match self {
            Self::Below(end) => key < end,
            Self::Any(_) => true,
        }
    }
}

/// The expected state of one number of a map's values.
#[derive(Clone, Debug)]
pub struct Counter {
    pub mode: Mode,
    /// True if one number counts the packets of all keys.
    pub single: bool,
    pub room: Room,
    /// The keys that are certainly in a map with [`Room::Any`].
    held: BTreeSet<Key>,
    /// The seen packets that the counter no longer contains: they are in earlier windows, or were
    /// reset.
    gone: BTreeMap<Key, Range>,
    /// The sum of the windows so far.
    sum: BTreeMap<Key, u64>,
    /// True if a replacement has put a part of the open window on disk.
    on_disk: bool,
    /// The mode before the present one, for messages.
    before: Option<Mode>,
}

/// The expected counts of one probe.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    seen: BTreeMap<Key, Seen>,
    counters: BTreeMap<Name, Counter>,
    /// The numbers of the packets that were popped from queues.
    popped: BTreeSet<u32>,
}

/// The map and the field of a counter.
pub type Name = (&'static str, &'static str);

impl Ledger {
    /// Notes packets of a burst that the probe has seen between `begun` and `ended`.
    pub fn see(&mut self, key: Key, packets: Range, begun: i128, ended: i128) {
        let seen = self.seen.entry(key).or_insert(Seen {
            packets: Range::default(),
            begun,
            ended,
        });
        seen.packets = seen.packets.plus(packets);
        seen.begun = seen.begun.min(begun);
        seen.ended = seen.ended.max(ended);
    }

    pub fn counter(&mut self, name: Name) -> Option<&mut Counter> {
        self.counters.get_mut(&name)
    }

    pub fn names(&self) -> Vec<Name> {
        self.counters.keys().copied().collect()
    }

    pub fn remove(&mut self, name: Name) {
        self.counters.remove(&name);
    }

    /// Adds a counter that begins now. It may have a part of the bursts that ended after `since`.
    pub fn begin(&mut self, name: Name, mode: Mode, single: bool, room: Room, since: i128) {
        let mut gone = BTreeMap::new();
        let mut all = Range::default();
        for (key, seen) in &self.seen {
            let lo = if seen.ended < since {
                seen.packets.lo
            } else {
                0
            };
            let range = Range {
                lo,
                hi: seen.packets.hi,
            };
            all = all.plus(range);
            gone.insert(*key, range);
        }
        if single {
            gone = BTreeMap::from([(ALL, all)]);
        }
        self.counters.insert(
            name,
            Counter {
                mode,
                single,
                room,
                held: BTreeSet::new(),
                gone,
                sum: BTreeMap::new(),
                on_disk: false,
                before: None,
            },
        );
    }

    /// Changes the mode and the room of a counter, which keeps its counts.
    pub fn turn(&mut self, name: Name, mode: Mode, room: Room) {
        let Some(counter) = self.counters.get_mut(&name) else {
            return;
        };
        if (counter.mode, mode) == (Mode::Sum, Mode::Window) {
            // The counts of the open window stay; those of the windows in the sum have left the
            // counter.
            for (key, sum) in &counter.sum {
                let gone = counter.gone.entry(*key).or_default();
                *gone = gone.plus(Range::exactly(*sum));
            }
        }
        if mode != Mode::Sum || counter.mode != Mode::Sum {
            counter.sum.clear();
        }
        if room != counter.room {
            for (key, seen) in &self.seen {
                if !(room.has(*key) && counter.room.has(*key)) {
                    let gone = counter.gone.entry(*key).or_default();
                    gone.hi = gone.hi.max(seen.packets.hi);
                }
            }
            counter.held.clear();
        }
        counter.before = Some(counter.mode);
        (counter.mode, counter.room) = (mode, room);
    }

    /// Notes that the maps have lost their content: all of it, or (`some`) any part. Closed windows
    /// stay in sums.
    pub fn lose(&mut self, name: Name, some: bool, since: i128) {
        let keys: Vec<Key> = self.keys(name);
        for key in keys {
            let seen = self.total(name, key, i128::MAX, since);
            let Some(counter) = self.counters.get_mut(&name) else {
                return;
            };
            let sum = counter.sum.get(&key).copied().unwrap_or_default();
            let some = some || counter.on_disk;
            let gone = counter.gone.entry(key).or_default();
            let all = seen.minus(if counter.mode == Mode::Sum { sum } else { 0 });
            *gone = if some {
                gone.both(Range {
                    lo: gone.lo,
                    hi: all.hi.max(gone.hi),
                })
            } else {
                all
            };
        }
    }

    /// Notes that a replacement has put the maps' content on disk, to be part of the next window.
    pub fn save(&mut self, name: Name) {
        self.counters
            .get_mut(&name)
            .into_iter()
            .for_each(|counter| counter.on_disk = true);
    }

    /// Notes that a counter may have lost packets that were sent after `since`.
    pub fn doubt(&mut self, name: Name, since: i128) {
        self.doubt_between(name, since, i128::MAX);
    }

    fn doubt_between(&mut self, name: Name, since: i128, until: i128) {
        let late = self
            .seen
            .iter()
            .filter(|(_, seen)| seen.ended >= since && seen.begun < until);
        let late: Vec<(Key, u64)> = late.map(|(key, seen)| (*key, seen.packets.hi)).collect();
        let Some(counter) = self.counters.get_mut(&name) else {
            return;
        };
        for (key, packets) in late {
            let gone = counter
                .gone
                .entry(if counter.single { ALL } else { key })
                .or_default();
            gone.hi += packets;
        }
    }

    /// Notes two steps, reading and reset, of a map after `since`: the map may have lost packets in
    /// between.
    pub fn race(&mut self, name: Name, since: i128) {
        self.doubt_between(name, since, since.saturating_add(LATE));
    }

    fn keys(&self, name: Name) -> Vec<Key> {
        match self.counters.get(&name) {
            Some(counter) if counter.single => vec![ALL],
            _ => self.seen.keys().copied().collect(),
        }
    }

    /// Tells whether there may be more keys than there is room for.
    fn is_full(&self, counter: &Counter) -> bool {
        let Room::Any(most) = counter.room else {
            return false;
        };
        let gone = |key: &Key| counter.gone.get(key).map_or(0, |gone| gone.lo);
        self.seen
            .iter()
            .filter(|(key, seen)| gone(key) < seen.packets.hi)
            .count() as u64
            > most
    }

    /// Returns the least number of keys that must be in a map.
    fn least(&self, counter: &Counter, sure: i128) -> u64 {
        let Room::Any(most) = counter.room else {
            return 0;
        };
        let gone = |key: &Key| counter.gone.get(key).map_or(0, |gone| gone.hi);
        let certain = self
            .seen
            .iter()
            .filter(|(key, seen)| seen.ended < sure && gone(key) < seen.packets.lo);
        most.min(certain.count() as u64)
    }

    /// Returns the range of packets of a key that were seen until `end`. Packets from before `sure`
    /// are certain.
    fn total(&self, name: Name, key: Key, end: i128, sure: i128) -> Range {
        let Some(counter) = self.counters.get(&name) else {
            return Range::default();
        };
        let full = self.is_full(counter);
        let of = |key: Key, seen: &Seen| Range {
            lo: if seen.ended < sure
                && counter.room.has(key)
                && (!full || counter.held.contains(&key))
            {
                seen.packets.lo
            } else {
                0
            },
            hi: if seen.begun < end.saturating_add(LATE) {
                seen.packets.hi
            } else {
                0
            },
        };
        if counter.single {
            return self
                .seen
                .values()
                .fold(Range::default(), |sum, seen| sum.plus(of(0, seen)));
        }
        self.seen
            .get(&key)
            .map_or_else(Range::default, |seen| of(key, seen))
    }

    /// Checks that all packets which were sent before `before` have left a counter.
    pub fn is_empty(&self, name: Name, before: i128) -> Result<()> {
        for key in self.keys(name) {
            let seen = self.total(name, key, i128::MAX, before);
            let Some(counter) = self.counters.get(&name) else {
                return Ok(());
            };
            let gone = counter.gone.get(&key).copied().unwrap_or_default();
            let given = gone.hi + counter.sum.get(&key).copied().unwrap_or_default();
            ensure!(
                given >= seen.lo,
                "{name:?}, key {key}: {} packets, {given} were given",
                seen.lo
            );
        }
        Ok(())
    }

    /// Compares a reading by key with the packets that must be in it, those that were counted until
    /// `end`.
    pub fn read(&mut self, name: Name, rows: &BTreeMap<Key, u64>, end: i128) -> Result<()> {
        let Some(counter) = self.counters.get(&name) else {
            return Ok(());
        };
        let (mode, single, room) = (counter.mode, counter.single, counter.room);
        for key in rows.keys() {
            ensure!(
                single || self.seen.contains_key(key),
                "{name:?} has key {key}, which was not sent"
            );
        }
        let least = if single { 0 } else { self.least(counter, end) };
        let full = self.is_full(counter);
        if let (Room::Any(most), Mode::Sum) = (room, mode) {
            // Small sums alone have `sum_entries`. Without it the limit is a multiple of the map's
            // entries.
            let limit = if most < 64 { most } else { 8 * most };
            ensure!(
                rows.len() as u64 <= limit,
                "{name:?}: the sum has {} entries",
                rows.len()
            );
        }
        for key in self.keys(name) {
            let value = if single {
                rows.values().sum()
            } else {
                rows.get(&key).copied().unwrap_or_default()
            };
            let bound = self.total(name, key, end, end);
            let Some(counter) = self.counters.get_mut(&name) else {
                return Ok(());
            };
            let gone = counter.gone.get(&key).copied().unwrap_or_default();
            let Some(total) = gone.plus(Range::exactly(value)).common(bound) else {
                let Range { lo, hi } = bound;
                let before = counter.before;
                let state = self.seen.get(&key).map(|seen| (seen.begun, seen.ended));
                anyhow::bail!(
                    "{name:?} ({mode:?}, before {before:?}), key {key}: {value} packets read, {gone:?} gone before, of {lo} to {hi} \
                     seen until {end} (sent {state:?})"
                );
            };
            if mode == Mode::Sum {
                let before = counter.sum.insert(key, value).unwrap_or_default();
                ensure!(
                    full || value >= before,
                    "{name:?}, key {key}: the sum fell from {before} to {value}"
                );
            }
            let takes = matches!(mode, Mode::Window | Mode::Init);
            counter
                .gone
                .insert(key, if takes { total } else { total.minus(value) });
            if let Some(seen) = self.seen.get_mut(&key)
                && !single
                && room.has(key)
                && !full
                && seen.ended < end
                && let Some(known) = seen.packets.common(total)
            {
                seen.packets = known;
            }
        }
        ensure!(
            rows.len() as u64 >= least,
            "{name:?} ({mode:?}) has {} keys, not {least}",
            rows.len()
        );
        if let Some(counter) = self.counters.get_mut(&name) {
            counter.on_disk = false;
            counter.held = if mode == Mode::Live {
                rows.keys().copied().collect()
            } else {
                BTreeSet::new()
            };
        }
        Ok(())
    }

    /// Checks that a queue gives the number of each packet once.
    pub fn pop(&mut self, numbers: &[u32]) -> Result<()> {
        for number in numbers {
            ensure!(
                self.popped.insert(*number),
                "the queue has given packet {number:#x} twice"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
