//! Reading of windows for a chart, by several threads ahead of the one that goes through them. The digests of the bodies take
//! most of the time of a chart.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, available_parallelism};

use twinprobe_ebpf_common::window::WindowEntry;
use twinprobe_ebpf_common::{Direction, Layout, TableLayout};
use twinprobe_exporter::{Metric, NumberColumn, Numbers};
use twinprobe_windows::{StoredWindow, WindowReader, Windows};

/// The largest body in bytes that is read at once.
const AT_ONCE: u64 = 8 << 20;
/// The most threads that read for one chart.
const LANES: usize = 4;
/// The number of windows that a thread reads ahead, beside the one at hand.
const AHEAD: usize = 1;
/// Fewer windows are read without further threads.
const FEW: usize = 8;

/// The numbers that a chart is made of.
#[derive(Debug)]
pub struct WantedNumbers {
    pub direction: Direction,
    pub metric: String,
    pub field: String,
    /// The layout of the keys, as one table; windows with other keys are left out.
    pub key: Layout,
}

/// The rows of a table: keys one after the other, and a number for each.
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
    /// Another metric, other keys, or no such number.
    Other,
    /// The body could not be read.
    Unread,
}

/// The changes of a sum: the keys are those of new entries, the numbers those of changed entries, then of new ones.
#[derive(Debug)]
pub struct HeldChanges {
    pub since: u64,
    pub gone: Vec<usize>,
    pub changed: Vec<usize>,
    pub rows: KeyedNumbers,
}

/// A window, and what it holds as it is stored.
pub type WindowRead = (Arc<StoredWindow>, Held);

/// Reads numbers of windows. Windows of one layout share what is known of it.
#[derive(Debug)]
pub struct NumberReader<'a> {
    wanted: &'a WantedNumbers,
    known: Option<(Arc<Metric>, Numbers)>,
}

impl KeyedNumbers {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The key at this place.
    pub fn key(&self, place: usize) -> Option<&[u8]> {
        self.keys.get(place * self.key..)?.get(..self.key)
    }
}

impl<'a> NumberReader<'a> {
    pub const fn new(wanted: &'a WantedNumbers) -> Self {
        Self { wanted, known: None }
    }

    /// Reads what the window holds, as it is stored.
    pub fn stored(&mut self, window: &StoredWindow) -> Held {
        window.open_at_once(AT_ONCE).map_or(Held::Unread, |reader| self.held(&reader))
    }

    /// Reads what an open window holds.
    pub fn held(&mut self, reader: &WindowReader) -> Held {
        let WantedNumbers { direction, metric, field, key } = self.wanted;
        let mut metrics = reader.head.metrics.iter();
        let place = metrics.position(|one| one.direction == *direction && one.name == *metric);
        let Some(place) = place else { return Held::Other };
        let head = &reader.head.metrics[place];
        if self.known.as_ref().is_none_or(|(metric, _)| metric.layout != head.layout) {
            let metric: Arc<Metric> = Arc::new(head.clone().into());
            let numbers = Numbers::new(&metric, Some(field)).ok();
            self.known = numbers.map(|numbers| (metric, numbers));
        }
        let Some((metric, numbers)) = &mut self.known else { return Held::Other };
        if numbers.layout().key != *key {
            return Held::Other;
        }
        match reader.changes(place) {
            // Its rows are not those of one table.
            Ok(Some(_)) if metric.layout.inner.is_some() => Held::Unread,
            Ok(None) => whole(reader, place, metric, numbers).unwrap_or(Held::Unread),
            Ok(Some(changes)) => Held::Changes(HeldChanges {
                since: reader.head.changes.as_ref().map_or(0, |changes| changes.since),
                gone: changes.gone,
                changed: changes.changed,
                rows: KeyedNumbers {
                    layout: Arc::clone(&metric.layout),
                    key: key_size(numbers),
                    numbers: numbers.column(&changes.rows.values),
                    keys: changes.rows.keys,
                },
            }),
            Err(_) => Held::Unread,
        }
    }
}

fn key_size(numbers: &Numbers) -> usize {
    let layout = numbers.layout();
    if layout.kind.has_keys() { layout.key.size } else { 0 }
}

fn whole(reader: &WindowReader, place: usize, metric: &Metric, numbers: &mut Numbers) -> Option<Held> {
    let key = key_size(numbers);
    let mut all = KeyedNumbers {
        layout: Arc::clone(&metric.layout),
        key,
        keys: Vec::new(),
        numbers: numbers.column(&[]),
    };
    let mut index = 0;
    while let Some(chunk) = reader.chunk(place, index).ok()? {
        index += 1;
        let rows = numbers.rows(&chunk);
        // An entry that is cut off does not count.
        let count = rows.len(numbers.layout());
        let stride = numbers.layout().value_stride();
        let more = numbers.column(rows.values.get(..count * stride)?);
        all.keys.extend_from_slice(rows.keys.get(..count * key)?);
        all.numbers.append(more);
    }
    Some(Held::Whole(all))
}

/// Goes through windows in their order, each with what it holds.
pub fn through<E>(
    windows: &Windows,
    wanted: &WantedNumbers,
    entries: &[(WindowEntry, Option<usize>)],
    mut each: impl FnMut(&WindowEntry, Option<usize>, Option<WindowRead>) -> Result<(), E>,
) -> Result<(), E> {
    let read = |reader: &mut NumberReader<'_>, entry: &WindowEntry| {
        let stored = windows.get(entry.seq).ok()?;
        let held = reader.stored(&stored);
        Some((stored, held))
    };
    let lanes = available_parallelism().map_or(1, NonZeroUsize::get).min(LANES);
    if lanes < 2 || entries.len() < FEW {
        let mut reader = NumberReader::new(wanted);
        return entries.iter().try_for_each(|(entry, point)| each(entry, *point, read(&mut reader, entry)));
    }
    thread::scope(|scope| {
        let lane = |lane: usize| {
            let (sender, receiver) = sync_channel(AHEAD);
            scope.spawn(move || {
                let mut reader = NumberReader::new(wanted);
                let own = entries.iter().skip(lane).step_by(lanes);
                // Whoever wants no more has dropped the receiver.
                own.map(|(entry, _)| read(&mut reader, entry))
                    .try_for_each(|read| sender.send(read).map_err(drop))
            });
            receiver
        };
        let lanes: Vec<_> = (0..lanes).map(lane).collect();
        let mut turns = lanes.iter().cycle();
        entries.iter().try_for_each(|(entry, point)| {
            let read = turns.next().and_then(|lane| lane.recv().ok()).flatten();
            each(entry, *point, read)
        })
    })
}
