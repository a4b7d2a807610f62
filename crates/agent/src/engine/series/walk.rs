//! The walk over the windows of a chart: what each window adds to each key. Windows that hold what has changed in a sum are
//! read as they are stored, so that a walk takes time for what has changed only.

use std::sync::Arc;

use twinprobe_ebpf_common::{MergeRule, TableLayout, Temporality};
use twinprobe_exporter::{Metric, Number, Numbers};
use twinprobe_windows::{StoredWindow, Windows};

use crate::engine::series::ahead::{
    Held, HeldChanges, KeyedNumbers, NumberReader, WantedNumbers, WindowRead,
};
use crate::engine::series::keys::{KeyOrder, Keys, TooManyKeys};

/// What a chart shows of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// How much a sum has grown. A signed one may fall; any other that is smaller than before has begun anew.
    Growth { falls: bool },
    /// The numbers of each window, which join by this rule.
    Windows(MergeRule),
    /// The number as it is at the end of each window.
    State,
}

/// What a window adds to a key; `None` says that the key is gone.
pub type Added = (u32, Option<Number>);

/// The walk over the windows of one metric.
pub struct Walk<'a> {
    windows: &'a Windows,
    wanted: &'a WantedNumbers,
    mode: Mode,
    pub keys: Keys,
    /// The orders of the last two windows with all rows: a metric that windows reset has two tables in turns, each with an
    /// order of its own.
    orders: [KeyOrder; 2],
    /// The keys of the table of the last window, in its order, and the number of each key.
    rows: Vec<u32>,
    known: Vec<Option<Number>>,
    /// The layout of that table.
    layout: Option<Arc<TableLayout>>,
    /// The last window; `None` if it is not known what came before the next one.
    last: Option<u64>,
}

impl<'a> Walk<'a> {
    pub fn new(windows: &'a Windows, wanted: &'a WantedNumbers, mode: Mode) -> Self {
        let (keys, orders, rows, known, layout) = Default::default();
        Self { windows, wanted, mode, keys, orders, rows, known, layout, last: None }
    }

    /// Begins anew before the first window. The keys that were met keep their numbers.
    pub fn rewind(&mut self) {
        self.rows.clear();
        self.known.fill(None);
        self.last = None;
    }

    /// Goes on to a window, of which it is known what it holds, and calls `add` with what it adds. Returns false if the window
    /// can't be used, and `None` if nothing is known of what it adds, since what came before it is not known.
    pub fn window(
        &mut self,
        read: Option<WindowRead>,
        add: &mut impl FnMut(Added),
    ) -> Result<Option<bool>, TooManyKeys> {
        let Some((stored, held)) = read else {
            self.rewind();
            return Ok(Some(false));
        };
        let seq = stored.seq();
        // Nothing came before the first window of a probe.
        let knows = self.last.is_some() || seq == 1 || !matches!(self.mode, Mode::Growth { .. });
        let mut add = |added: Added| {
            if knows {
                add(added);
            }
        };
        let is_used = match held {
            Held::Whole(rows) => self.whole(seq, &rows, &mut add).map(|()| true)?,
            Held::Changes(changes) => self.next(seq, &changes, &mut add)? || self.again(&stored, &mut add)?,
            Held::Other => false,
            Held::Unread => self.again(&stored, &mut add)?,
        };
        if !is_used {
            self.rewind();
            return Ok(Some(false));
        }
        Ok(knows.then_some(true))
    }

    /// Reads a window in another way than as it is stored: by the windows between the last one and this one, else with the
    /// windows that it builds on. A damaged one is set aside. Returns false if the window can't be used.
    fn again(
        &mut self,
        stored: &Arc<StoredWindow>,
        add: &mut impl FnMut(Added),
    ) -> Result<bool, TooManyKeys> {
        let mut reader = NumberReader::new(self.wanted);
        let steps = self.last.and_then(|last| self.windows.since(last, stored)).unwrap_or_default();
        for step in steps {
            let Held::Changes(changes) = reader.stored(&step) else { break };
            if !self.next(step.seq(), &changes, add)? {
                break;
            }
        }
        if self.last == Some(stored.seq()) {
            return Ok(true);
        }
        match stored.open().map(|opened| reader.held(&opened)) {
            Ok(Held::Whole(rows)) => self.whole(stored.seq(), &rows, add).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Makes changes in the table of the last window. Returns false if they are not those of this table.
    fn next(
        &mut self,
        seq: u64,
        changes: &HeldChanges,
        add: &mut impl FnMut(Added),
    ) -> Result<bool, TooManyKeys> {
        let HeldChanges { since, gone, changed, rows } = changes;
        if self.last != Some(*since) || self.layout.as_ref() != Some(&rows.layout) {
            return Ok(false);
        }
        if !gone.is_empty() {
            let mut gone = gone.iter().peekable();
            let (mut place, known, state) = (0, &mut self.known, self.mode == Mode::State);
            self.rows.retain(|&id| {
                let goes = gone.next_if_eq(&&place).is_some();
                place += 1;
                if goes {
                    known[id as usize] = None;
                    if state {
                        add((id, None));
                    }
                }
                !goes
            });
        }
        let mut fits = changed.len() <= rows.len();
        for (row, &place) in changed.iter().enumerate().take(rows.len()) {
            match (self.rows.get(place), rows.numbers.get(row)) {
                (Some(&id), Some(number)) => self.note(id, number, add),
                _ => fits = false,
            }
        }
        for row in changed.len()..rows.len() {
            let (Some(key), Some(number)) = (rows.key(row - changed.len()), rows.numbers.get(row)) else {
                return Ok(false);
            };
            let id = self.keys.id(key)?;
            self.rows.push(id);
            self.note(id, number, add);
        }
        if fits {
            self.last = Some(seq);
        }
        Ok(fits)
    }

    /// Takes all rows of a window.
    fn whole(
        &mut self,
        seq: u64,
        rows: &KeyedNumbers,
        add: &mut impl FnMut(Added),
    ) -> Result<(), TooManyKeys> {
        let mut ids = Vec::with_capacity(rows.len());
        let keys = (0..rows.len()).map_while(|place| rows.key(place));
        let order = &mut self.orders[(seq % 2) as usize];
        self.keys.ids(keys, order, &mut ids)?;
        order.set(&ids, &self.keys);
        let numbers = ids.iter().enumerate().filter_map(|(row, id)| Some((*id, rows.numbers.get(row)?)));
        if let Mode::Windows(_) = self.mode {
            numbers.for_each(|(id, number)| add((id, Some(number))));
        } else {
            let mut now = vec![None; self.keys.len()];
            self.known.resize(self.keys.len(), None);
            for (id, number) in numbers {
                self.emit(id, self.known[id as usize], number, add);
                now[id as usize] = Some(number);
            }
            if self.mode == Mode::State {
                self.rows.iter().filter(|id| now[**id as usize].is_none()).for_each(|id| add((*id, None)));
            }
            self.known = now;
        }
        (self.rows, self.layout, self.last) = (ids, Some(Arc::clone(&rows.layout)), Some(seq));
        Ok(())
    }

    fn note(&mut self, id: u32, number: Number, add: &mut impl FnMut(Added)) {
        self.known.resize(self.keys.len(), None);
        let before = self.known[id as usize].replace(number);
        self.emit(id, before, number, add);
    }

    fn emit(&self, id: u32, before: Option<Number>, number: Number, add: &mut impl FnMut(Added)) {
        match self.mode {
            Mode::Windows(_) => add((id, Some(number))),
            Mode::State => {
                if before != Some(number) {
                    add((id, Some(number)));
                }
            }
            Mode::Growth { falls } => {
                let growth = number.minus(before.unwrap_or(Number::ZERO));
                let growth = if growth.as_f64() < 0.0 && !falls { number } else { growth };
                if growth.as_f64() != 0.0 {
                    add((id, Some(growth)));
                }
            }
        }
    }
}

/// Returns what a chart of this metric shows.
pub fn mode(metric: &Metric, numbers: &Numbers) -> Mode {
    match (metric.temporality, numbers.rule()) {
        (Temporality::Window, rule) => Mode::Windows(rule),
        (Temporality::Cumulative, MergeRule::Sum) => Mode::Growth { falls: numbers.is_signed() },
        (Temporality::Cumulative | Temporality::Live, _) => Mode::State,
    }
}
