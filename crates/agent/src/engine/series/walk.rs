//! The walk over the windows of a chart: the increase of each key in each window. Windows that
//! contain the changes of a sum are read as they are stored, so that a walk takes time only for the
//! changes.

use std::sync::Arc;

use twinprobe_ebpf_common::{MergeRule, TableLayout, Temporality};
use twinprobe_exporter::{Metric, Number, NumberColumn, Numbers};
use twinprobe_windows::{StoredWindow, Windows};

use crate::engine::series::compact::CompactNumbers;
use crate::engine::series::held::{Held, HeldChanges, KeyedNumbers, NumberReader, WantedNumbers};
use crate::engine::series::keys::{KeyBytes, KeyOrder, Keys, TooManyKeys};

/// The numbers of a metric that a chart shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The growth of a sum. The sum of signed numbers may fall. Any other sum that is smaller than
    /// before has begun again.
    Growth { falls: bool },
    /// The numbers of each window, which join by this rule.
    Windows(MergeRule),
    /// The number at the end of each window.
    State,
}

/// A receiver of the increases of keys.
pub trait ChartSink {
    /// Takes the number of a key; `None` if the key was removed.
    fn one(&mut self, id: u32, number: Option<Number>);

    /// Takes a number for each of many keys.
    fn many(&mut self, ids: &[u32], numbers: &[u64]);
}

/// Takes nothing.
struct Nothing;

impl ChartSink for Nothing {
    fn one(&mut self, _: u32, _: Option<Number>) {}

    fn many(&mut self, _: &[u32], _: &[u64]) {}
}

/// The walk over the windows of one metric.
pub struct Walk<'a> {
    windows: &'a Windows,
    wanted: &'a WantedNumbers,
    mode: Mode,
    pub keys: Keys,
    /// The orders of the keys in the last two windows that had all rows. A metric that windows
    /// reset alternates between two tables, each with its own order.
    orders: [KeyOrder; 2],
    reader: NumberReader<'a>,
    /// The keys in the table of the last window, in the order of the table, and the number of each
    /// key.
    rows: Vec<u32>,
    known: CompactNumbers,
    /// Memory that is used again: for the next rows and numbers, and for their increases.
    spare: (Vec<u32>, CompactNumbers),
    added: (Vec<u32>, Vec<u64>),
    /// The layout of the table of the last window.
    layout: Option<Arc<TableLayout>>,
    /// The last window; `None` if the predecessor of the next window is not known.
    last: Option<u64>,
}

impl<'a> Walk<'a> {
    pub fn new(windows: &'a Windows, wanted: &'a WantedNumbers, mode: Mode) -> Self {
        let (keys, orders, rows, known, spare, added, layout) = Default::default();
        let reader = NumberReader::new(wanted);
        Self {
            windows,
            wanted,
            mode,
            keys,
            orders,
            reader,
            rows,
            known,
            spare,
            added,
            layout,
            last: None,
        }
    }

    /// Goes back to the beginning, before the first window. Known keys keep their numbers.
    pub fn rewind(&mut self) {
        self.rows.clear();
        self.known.begin_anew(self.keys.len());
        self.last = None;
    }

    /// Reads the next window and gives `adder` the numbers that it adds. Returns false if the
    /// window is unusable; `None` if its increase is unknown because the previous window is
    /// unknown.
    pub fn window(
        &mut self,
        seq: u64,
        adder: &mut dyn ChartSink,
    ) -> Result<Option<bool>, TooManyKeys> {
        let Ok(stored) = self.windows.get(seq) else {
            self.rewind();
            return Ok(Some(false));
        };
        // Nothing precedes the first window of a probe.
        let knows = self.last.is_some() || seq == 1 || !matches!(self.mode, Mode::Growth { .. });
        let mut nothing = Nothing;
        let adder: &mut dyn ChartSink = if knows { adder } else { &mut nothing };
        let is_used = match self.reader.stored(&stored) {
            Held::Whole(rows) => self.whole(seq, &rows, adder).map(|()| true)?,
            Held::Changes(changes) => {
                self.next(seq, &changes, adder)? || self.again(&stored, adder)?
            }
            Held::Other => false,
            Held::Unread => self.again(&stored, adder)?,
        };
        if !is_used {
            self.rewind();
            return Ok(Some(false));
        }
        Ok(knows.then_some(true))
    }

    /// Reads a window that needs other windows: the windows between the last read window and this
    /// window, or else the windows on which this window builds. A damaged window is set aside.
    /// Returns false if the window can't be used.
    fn again(
        &mut self,
        stored: &Arc<StoredWindow>,
        adder: &mut dyn ChartSink,
    ) -> Result<bool, TooManyKeys> {
        let steps = match (self.last, self.mode) {
            (Some(last), _) => self.windows.since(last, stored).unwrap_or_default(),
            // The increase within the window is unknown, so only its final sum counts.
            (None, Mode::Growth { .. }) => self.windows.chain(stored),
            (None, _) => Vec::new(),
        };
        let mut reader = NumberReader::new(self.wanted);
        for step in steps {
            match reader.stored(&step) {
                Held::Changes(changes) if self.next(step.seq(), &changes, adder)? => {}
                Held::Whole(rows) if self.last.is_none() => self.whole(step.seq(), &rows, adder)?,
                _ => break,
            }
        }
        if self.last == Some(stored.seq()) {
            return Ok(true);
        }
        match stored.open().map(|opened| reader.held(&opened)) {
            Ok(Held::Whole(rows)) => self.whole(stored.seq(), &rows, adder).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Applies changes to the table of the last window. Returns false if the changes do not belong
    /// to this table.
    fn next(
        &mut self,
        seq: u64,
        changes: &HeldChanges,
        adder: &mut dyn ChartSink,
    ) -> Result<bool, TooManyKeys> {
        let HeldChanges {
            since,
            gone,
            changed,
            rows,
        } = changes;
        if self.last != Some(*since) || self.layout.as_ref() != Some(&rows.layout) {
            return Ok(false);
        }
        self.remove(gone, adder);
        let of_changed = changed.len().min(rows.len());
        let mut ids = std::mem::take(&mut self.spare.0);
        ids.clear();
        ids.extend(
            changed[..of_changed]
                .iter()
                .map_while(|&place| self.rows.get(place)),
        );
        let mut fits = ids.len() == changed.len();
        for place in 0..rows.len() - of_changed {
            let Some(key) = rows.key(place).filter(|_| fits) else {
                fits = false;
                break;
            };
            let id = self.keys.id(key)?;
            self.rows.push(id);
            ids.push(id);
        }
        self.known.grow(self.keys.len());
        self.change(&ids, &rows.numbers, adder);
        self.spare.0 = ids;
        if fits {
            self.last = Some(seq);
        }
        Ok(fits)
    }

    /// Removes the rows at these places.
    fn remove(&mut self, gone: &[usize], adder: &mut dyn ChartSink) {
        if gone.is_empty() {
            return;
        }
        let mut gone = gone.iter().peekable();
        let (mut place, known, is_state) = (0, &mut self.known, self.mode == Mode::State);
        self.rows.retain(|&id| {
            let goes = gone.next_if_eq(&&place).is_some();
            place += 1;
            if goes {
                known.set(id, None);
                if is_state {
                    adder.one(id, None);
                }
            }
            !goes
        });
    }

    /// Takes the changed numbers of known keys.
    fn change(&mut self, ids: &[u32], numbers: &NumberColumn, adder: &mut dyn ChartSink) {
        let (of_ids, growths) = &mut self.added;
        of_ids.clear();
        growths.clear();
        let words = words(numbers);
        for (row, &id) in ids.iter().enumerate() {
            if let (Mode::Growth { .. }, Some(now)) = (self.mode, words.get(row).copied()) {
                let before = self.known.word(id);
                let is_known = before.is_some() || self.known.get(id).is_some();
                if let Some(grown) = growth(before, is_known, now)
                    && self.known.set_word(id, now)
                {
                    if grown > 0 {
                        of_ids.push(id);
                        growths.push(grown);
                    }
                    continue;
                }
            }
            let Some(number) = numbers.get(row) else {
                break;
            };
            let before = self.known.set(id, Some(number));
            emit(self.mode, id, before, number, adder);
        }
        adder.many(of_ids, growths);
    }

    /// Takes all rows of a window.
    fn whole(
        &mut self,
        seq: u64,
        rows: &KeyedNumbers,
        adder: &mut dyn ChartSink,
    ) -> Result<(), TooManyKeys> {
        let (mut ids, mut now) = std::mem::take(&mut self.spare);
        let own = KeyBytes {
            bytes: &rows.keys,
            size: rows.key,
            count: rows.with_keys(),
        };
        let order = &mut self.orders[(seq % 2) as usize];
        self.keys.ids(own, order, &mut ids)?;
        order.set(&ids, own, &self.keys);
        if let Mode::Windows(_) = self.mode {
            match &rows.numbers {
                NumberColumn::Words(words) => adder.many(&ids, &words[..ids.len()]),
                numbers => ids.iter().enumerate().for_each(|(row, &id)| {
                    numbers
                        .get(row)
                        .into_iter()
                        .for_each(|number| adder.one(id, Some(number)));
                }),
            }
        } else {
            self.known.grow(self.keys.len());
            now.begin_anew(self.keys.len());
            self.replace(&ids, &rows.numbers, &mut now, adder);
            if self.mode == Mode::State {
                let gone = self.rows.iter().filter(|id| now.get(**id).is_none());
                gone.for_each(|id| adder.one(*id, None));
            }
            std::mem::swap(&mut self.known, &mut now);
        }
        std::mem::swap(&mut self.rows, &mut ids);
        self.spare = (ids, now);
        (self.layout, self.last) = (Some(Arc::clone(&rows.layout)), Some(seq));
        Ok(())
    }

    /// Compares all numbers of a window with the known numbers, and stores them in `now`.
    fn replace(
        &mut self,
        ids: &[u32],
        numbers: &NumberColumn,
        now: &mut CompactNumbers,
        adder: &mut dyn ChartSink,
    ) {
        let (of_ids, growths) = &mut self.added;
        of_ids.clear();
        growths.clear();
        let words = words(numbers);
        for (row, &id) in ids.iter().enumerate() {
            if let (Mode::Growth { .. }, Some(word)) = (self.mode, words.get(row).copied()) {
                let before = self.known.word(id);
                let is_known = before.is_some() || self.known.get(id).is_some();
                if let Some(grown) = growth(before, is_known, word)
                    && now.set_word(id, word)
                {
                    if grown > 0 {
                        of_ids.push(id);
                        growths.push(grown);
                    }
                    continue;
                }
            }
            let Some(number) = numbers.get(row) else {
                break;
            };
            emit(self.mode, id, self.known.get(id), number, adder);
            now.set(id, Some(number));
        }
        adder.many(of_ids, growths);
    }
}

fn words(numbers: &NumberColumn) -> &[u64] {
    match numbers {
        NumberColumn::Words(words) => words,
        NumberColumn::Numbers(_) => &[],
    }
}

/// Returns how much a small number has grown; `None` if the number has fallen, or if the key had no
/// small number before.
const fn growth(before: Option<u64>, is_known: bool, now: u64) -> Option<u64> {
    match before {
        Some(before) => now.checked_sub(before),
        None if is_known => None,
        None => Some(now),
    }
}

fn emit(mode: Mode, id: u32, before: Option<Number>, number: Number, adder: &mut dyn ChartSink) {
    match mode {
        Mode::Windows(_) => adder.one(id, Some(number)),
        Mode::State => {
            if before != Some(number) {
                adder.one(id, Some(number));
            }
        }
        Mode::Growth { falls } => {
            let growth = number.minus(before.unwrap_or(Number::ZERO));
            let growth = if growth.as_f64() < 0.0 && !falls {
                number
            } else {
                growth
            };
            if growth.as_f64() != 0.0 {
                adder.one(id, Some(growth));
            }
        }
    }
}

/// Returns the kind of numbers in a chart of this metric.
pub fn mode(metric: &Metric, numbers: &Numbers) -> Mode {
    match (metric.temporality, numbers.rule()) {
        (Temporality::Window, rule) => Mode::Windows(rule),
        (Temporality::Cumulative, MergeRule::Sum) => Mode::Growth {
            falls: numbers.is_signed(),
        },
        (Temporality::Cumulative | Temporality::Live, _) => Mode::State,
    }
}
