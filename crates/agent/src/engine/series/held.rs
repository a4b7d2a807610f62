//! The part of a window from which a chart is made: the keys of one metric, and one number of each
//! entry.

use std::sync::Arc;

use twinprobe_ebpf_common::{Direction, Layout, RawTable, TableLayout};
use twinprobe_exporter::{Metric, NumberColumn, Numbers};
use twinprobe_windows::{StoredWindow, WindowReader};

/// The largest body that is read at once, in bytes.
const AT_ONCE: u64 = 8 << 20;

/// The numbers from which a chart is made.
#[derive(Debug)]
pub struct WantedNumbers {
    pub direction: Direction,
    pub metric: String,
    pub field: String,
    /// The layout of the keys, as one table. Windows whose keys have another layout are left out.
    pub key: Layout,
}

/// The rows of a table: the keys, one after the other, and a number for each key.
#[derive(Debug)]
pub struct KeyedNumbers {
    pub layout: Arc<TableLayout>,
    /// The size of a key in bytes.
    pub key: usize,
    pub keys: Vec<u8>,
    pub numbers: NumberColumn,
}

/// The part of the numbers that a window holds.
#[derive(Debug)]
pub enum Held {
    /// All rows.
    Whole(KeyedNumbers),
    /// The changes since the window `since`.
    Changes(HeldChanges),
    /// The window does not have this metric, its keys have another layout, or its values lack the
    /// number.
    Other,
    /// The body could not be read.
    Unread,
}

/// The changes of a sum. The keys are those of new entries. The numbers are those of changed
/// entries, followed by those of new entries.
#[derive(Debug)]
pub struct HeldChanges {
    pub since: u64,
    pub gone: Vec<usize>,
    pub changed: Vec<usize>,
    pub rows: KeyedNumbers,
}

/// A reader of numbers in windows. Windows with the same layout share its description.
#[derive(Debug)]
pub struct NumberReader<'a> {
    wanted: &'a WantedNumbers,
    known: Option<(Arc<Metric>, Numbers)>,
}

impl KeyedNumbers {
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the key at this place.
    pub fn key(&self, place: usize) -> Option<&[u8]> {
        self.keys.get(place * self.key..)?.get(..self.key)
    }

    /// Returns the number of rows that have a key.
    pub fn with_keys(&self) -> usize {
        self.keys
            .len()
            .checked_div(self.key)
            .map_or(self.len(), |keys| keys.min(self.len()))
    }
}

impl<'a> NumberReader<'a> {
    pub const fn new(wanted: &'a WantedNumbers) -> Self {
        Self {
            wanted,
            known: None,
        }
    }

    /// Reads the content of the window, as it is stored.
    pub fn stored(&mut self, window: &StoredWindow) -> Held {
        window
            .open_at_once(AT_ONCE)
            .map_or(Held::Unread, |reader| self.held(&reader))
    }

    /// Reads the content of an open window.
    pub fn held(&mut self, reader: &WindowReader) -> Held {
        let WantedNumbers {
            direction,
            metric,
            field,
            key,
        } = self.wanted;
        let mut metrics = reader.head.metrics.iter();
        let place = metrics.position(|one| one.direction == *direction && one.name == *metric);
        let Some(place) = place else {
            return Held::Other;
        };
        let head = &reader.head.metrics[place];
        if self
            .known
            .as_ref()
            .is_none_or(|(metric, _)| metric.layout != head.layout)
        {
            let metric: Arc<Metric> = Arc::new(head.clone().into());
            let numbers = Numbers::new(&metric, Some(field)).ok();
            self.known = numbers.map(|numbers| (metric, numbers));
        }
        let Some((metric, numbers)) = &mut self.known else {
            return Held::Other;
        };
        if numbers.layout().key != *key {
            return Held::Other;
        }
        let held = match reader.has_changes(place) {
            // A map of maps has rows of several tables.
            true if metric.layout.inner.is_some() => None,
            true => changes(reader, place, metric, numbers),
            false => whole(reader, place, metric, numbers),
        };
        held.unwrap_or(Held::Unread)
    }
}

fn changes(
    reader: &WindowReader,
    place: usize,
    metric: &Metric,
    numbers: &mut Numbers,
) -> Option<Held> {
    let places = reader.places_of_changes(place).ok()?;
    let rows = match flat(reader, place, metric, numbers, |_, _| true) {
        Some(rows) => rows,
        None => {
            let RawTable { keys, values, .. } = reader.table(place).ok()?;
            KeyedNumbers {
                keys,
                numbers: numbers.column(&values),
                ..no_rows(metric, numbers)
            }
        }
    };
    let since = reader
        .head
        .changes
        .as_ref()
        .map_or(0, |changes| changes.since);
    Some(Held::Changes(HeldChanges {
        since,
        gone: places.gone,
        changed: places.changed,
        rows,
    }))
}

/// Reads rows in place, without a copy of their values; `None` if they are not in memory or contain
/// tables, or if a chunk has partial values or fails `fits`.
fn flat(
    reader: &WindowReader,
    place: usize,
    metric: &Metric,
    numbers: &mut Numbers,
    fits: impl Fn(&[u8], usize) -> bool,
) -> Option<KeyedNumbers> {
    let mut all = no_rows(metric, numbers);
    let stride = numbers.layout().value_stride().max(1);
    let mut is_whole = true;
    let is_flat = reader.each_flat(place, |keys, values| {
        is_whole &= values.len().is_multiple_of(stride) && fits(keys, values.len() / stride);
        all.keys.extend_from_slice(keys);
        all.numbers.append(numbers.column(values));
    });
    (is_flat.ok()? && is_whole).then_some(all)
}

fn no_rows(metric: &Metric, numbers: &mut Numbers) -> KeyedNumbers {
    KeyedNumbers {
        layout: Arc::clone(&metric.layout),
        key: key_size(numbers),
        keys: Vec::new(),
        numbers: numbers.column(&[]),
    }
}

fn key_size(numbers: &Numbers) -> usize {
    let layout = numbers.layout();
    if layout.kind.has_keys() {
        layout.key.size
    } else {
        0
    }
}

fn whole(
    reader: &WindowReader,
    place: usize,
    metric: &Metric,
    numbers: &mut Numbers,
) -> Option<Held> {
    let key = key_size(numbers);
    let has_a_key_each = |keys: &[u8], values: usize| keys.len() == values * key;
    if metric.layout.inner.is_none()
        && key > 0
        && let Some(all) = flat(reader, place, metric, numbers, has_a_key_each)
    {
        return Some(Held::Whole(all));
    }
    let mut all = no_rows(metric, numbers);
    let stride = numbers.layout().value_stride();
    let mut index = 0;
    while let Some(chunk) = reader.chunk(place, index).ok()? {
        index += 1;
        let rows = numbers.rows(&chunk);
        // An entry that is cut off does not count.
        let count = rows.len(numbers.layout());
        let more = numbers.column(rows.values.get(..count * stride)?);
        all.keys.extend_from_slice(rows.keys.get(..count * key)?);
        all.numbers.append(more);
    }
    Some(Held::Whole(all))
}
