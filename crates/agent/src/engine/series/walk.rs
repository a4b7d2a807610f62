//! The walk over the windows of a chart: what each window adds to each key. Windows that hold what has changed in a sum are
//! read as they are stored, so that a walk takes time for what has changed only.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use twinprobe_ebpf_common::window::WindowEntry;
use twinprobe_ebpf_common::{Context, Direction, Layout, MergeRule, RawTable, TableChanges, Temporality};
use twinprobe_exporter::{Metric, Number, Numbers};
use twinprobe_windows::{StoredWindow, WindowReader, Windows};

/// The most keys that a walk may meet.
const MOST_KEYS: usize = 1 << 18;

/// What a chart shows of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// How much a sum has grown.
    Growth,
    /// The numbers of each window, which join by this rule.
    Windows(MergeRule),
    /// The number as it is at the end of each window.
    State,
}

/// What a window adds to a key; `None` says that the key is gone.
pub type Added = (u32, Option<Number>);

/// The walk over the windows of one metric.
pub struct Walk<'a> {
    pub windows: &'a Windows,
    pub direction: Direction,
    pub metric: &'a str,
    pub field: Option<&'a str>,
    /// The layout of the keys; windows with other keys are left out.
    pub key: Layout,
    pub mode: Mode,
    numbers: Option<(Arc<Metric>, Numbers)>,
    ids: HashMap<Box<[u8]>, u32>,
    keys: Vec<Box<[u8]>>,
    /// The keys of the table of the last window, in its order, and the number of each key.
    rows: Vec<u32>,
    known: Vec<Option<Number>>,
    /// The last window; `None` if it is not known what came before the next one.
    last: Option<u64>,
}

/// The reason why a chart is not possible.
#[derive(Debug, PartialEq, Eq)]
pub struct TooManyKeys;

impl<'a> Walk<'a> {
    pub fn new(
        windows: &'a Windows,
        metric: &'a Metric,
        field: Option<&'a str>,
        mode: Mode,
        key: Layout,
    ) -> Self {
        let (direction, metric) = (metric.direction, &*metric.name);
        let (numbers, ids, keys, rows, known) = Default::default();
        Self { windows, direction, metric, field, key, mode, numbers, ids, keys, rows, known, last: None }
    }

    /// Begins anew before the first window. The keys that were met keep their numbers.
    pub fn rewind(&mut self) {
        self.rows.clear();
        self.known.fill(None);
        self.last = None;
    }

    /// The number of keys that were met.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns a key in JSON.
    pub fn key(&self, id: u32, context: &Context) -> String {
        self.numbers
            .as_ref()
            .map_or_else(String::new, |(_, numbers)| numbers.key(&self.keys[id as usize], context))
    }

    /// Goes on to a window, and calls `add` with what it adds. Returns false if the window can't be used, and `None` if
    /// nothing is known of what it adds, since what came before it is not known.
    pub fn window(
        &mut self,
        entry: &WindowEntry,
        add: &mut dyn FnMut(Added),
    ) -> Result<Option<bool>, TooManyKeys> {
        let Ok(stored) = self.windows.get(entry.seq) else {
            self.rewind();
            return Ok(Some(false));
        };
        // Of the first window of all it is known that nothing came before it.
        let knows = self.last.is_some() || entry.seq == 1 || self.mode != Mode::Growth;
        let mut ignored = |_: Added| {};
        let add: &mut dyn FnMut(Added) = if knows { add } else { &mut ignored };
        if self.follow(&stored, add)? {
            return Ok(Some(true));
        }
        let Ok(reader) = stored.open() else {
            self.rewind();
            return Ok(Some(false));
        };
        let read = self.whole(&reader, add);
        match read {
            Ok(true) => {
                self.last = Some(entry.seq);
                Ok(knows.then_some(true))
            }
            Ok(false) | Err(None) => {
                self.rewind();
                Ok(Some(false))
            }
            Err(Some(error)) => Err(error),
        }
    }

    /// Goes on by what has changed since the last window. Returns false if that is not known.
    fn follow(
        &mut self,
        stored: &Arc<StoredWindow>,
        add: &mut dyn FnMut(Added),
    ) -> Result<bool, TooManyKeys> {
        let steps = self.last.and_then(|last| self.windows.since(last, stored));
        for step in steps.iter().flatten() {
            let changes = self.read_changes(step).ok().flatten();
            let Some(changes) = changes else { return Ok(false) };
            if !self.change(&changes, add)? {
                return Ok(false);
            }
            self.last = Some(step.seq());
        }
        Ok(steps.is_some())
    }

    /// Reads what has changed in the sum; `None` if the window does not hold what has changed since the last one.
    fn read_changes(&self, step: &StoredWindow) -> io::Result<Option<TableChanges>> {
        let reader = step.open_as_stored()?;
        let since = reader.head.changes.as_ref().map(|changes| changes.since);
        let Some(place) = self.place(&reader).filter(|_| since == self.last) else { return Ok(None) };
        let fits = |(metric, _): &(Arc<Metric>, Numbers)| metric.layout == reader.head.metrics[place].layout;
        if self.numbers.as_ref().is_some_and(fits) { reader.changes(place) } else { Ok(None) }
    }

    fn place(&self, reader: &WindowReader) -> Option<usize> {
        let mut metrics = reader.head.metrics.iter();
        metrics.position(|metric| metric.direction == self.direction && metric.name == self.metric)
    }

    /// Makes changes in the table of the last window. Returns false if they are not those of this table.
    fn change(&mut self, changes: &TableChanges, add: &mut dyn FnMut(Added)) -> Result<bool, TooManyKeys> {
        if !changes.gone.is_empty() {
            let mut gone = changes.gone.iter().peekable();
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
        let Some((metric, mut numbers)) = self.numbers.take() else { return Ok(false) };
        let (stride, key) = (metric.layout.value_stride(), metric.layout.key.size);
        let mut values = changes.rows.values.chunks_exact(stride.max(1));
        let mut fits = true;
        for (&place, value) in changes.changed.iter().zip(&mut values) {
            match self.rows.get(place) {
                Some(&id) => self.note(id, numbers.of(value), add),
                None => fits = false,
            }
        }
        let mut keys = changes.rows.keys.chunks_exact(key.max(1));
        for value in values {
            let id = self.id(keys.next().unwrap_or_default())?;
            self.rows.push(id);
            self.note(id, numbers.of(value), add);
        }
        self.numbers = Some((metric, numbers));
        Ok(fits)
    }

    /// Reads all rows of a window. Returns false if it has no such numbers.
    fn whole(
        &mut self,
        reader: &WindowReader,
        add: &mut dyn FnMut(Added),
    ) -> Result<bool, Option<TooManyKeys>> {
        let Some(place) = self.place(reader) else { return Ok(false) };
        let head = &reader.head.metrics[place];
        if self.numbers.as_ref().is_none_or(|(metric, _)| metric.layout != head.layout) {
            let metric: Arc<Metric> = Arc::new(head.clone().into());
            let Ok(numbers) = Numbers::new(&metric, self.field) else { return Ok(false) };
            self.numbers = Some((metric, numbers));
        }
        let Some((metric, mut numbers)) = self.numbers.take() else { return Ok(false) };
        let read = if numbers.layout().key == self.key {
            self.rows_of(reader, place, &mut numbers, add).map(|()| true)
        } else {
            Ok(false)
        };
        self.numbers = Some((metric, numbers));
        read
    }

    fn rows_of(
        &mut self,
        reader: &WindowReader,
        place: usize,
        numbers: &mut Numbers,
        add: &mut dyn FnMut(Added),
    ) -> Result<(), Option<TooManyKeys>> {
        let before = std::mem::take(&mut self.rows);
        let mut known = std::mem::take(&mut self.known);
        let mut now: Vec<Option<Number>> = vec![None; known.len()];
        let (mut index, mut crowded) = (0, false);
        while let Some(chunk) = reader.chunk(place, index).map_err(|_| None)? {
            index += 1;
            let chunk: RawTable = chunk;
            numbers.each(&chunk, &mut |key, number| {
                // Entries keep their order from window to window.
                let same =
                    before.get(self.rows.len()).filter(|id| *self.keys[**id as usize] == *key).copied();
                let Some(id) = same.or_else(|| self.id(key).ok()) else {
                    crowded = true;
                    return;
                };
                self.rows.push(id);
                known.resize(self.keys.len(), None);
                now.resize(self.keys.len(), None);
                self.emit(id, known[id as usize], number, add);
                now[id as usize] = Some(number);
            });
            if crowded {
                return Err(Some(TooManyKeys));
            }
        }
        if self.mode == Mode::State {
            before.iter().filter(|id| now[**id as usize].is_none()).for_each(|id| add((*id, None)));
        }
        self.known = now;
        Ok(())
    }

    fn id(&mut self, key: &[u8]) -> Result<u32, TooManyKeys> {
        if let Some(id) = self.ids.get(key) {
            return Ok(*id);
        }
        let id =
            u32::try_from(self.keys.len()).ok().filter(|_| self.keys.len() < MOST_KEYS).ok_or(TooManyKeys)?;
        self.ids.insert(key.into(), id);
        self.keys.push(key.into());
        Ok(id)
    }

    fn note(&mut self, id: u32, number: Number, add: &mut dyn FnMut(Added)) {
        self.known.resize(self.keys.len(), None);
        let before = self.known[id as usize].replace(number);
        self.emit(id, before, number, add);
    }

    fn emit(&self, id: u32, before: Option<Number>, number: Number, add: &mut dyn FnMut(Added)) {
        match self.mode {
            Mode::Windows(_) => add((id, Some(number))),
            Mode::State => {
                if before != Some(number) {
                    add((id, Some(number)));
                }
            }
            Mode::Growth => {
                let growth = number.minus(before.unwrap_or(Number::ZERO));
                // A sum that is smaller than before has begun anew.
                let growth = if growth.as_f64() < 0.0 { number } else { growth };
                if growth.as_f64() != 0.0 {
                    add((id, Some(growth)));
                }
            }
        }
    }
}

/// Returns what a chart of this metric shows.
pub fn mode(metric: &Metric, rule: MergeRule) -> Mode {
    match (metric.temporality, rule) {
        (Temporality::Window, rule) => Mode::Windows(rule),
        (Temporality::Cumulative, MergeRule::Sum) => Mode::Growth,
        (Temporality::Cumulative | Temporality::Live, _) => Mode::State,
    }
}
