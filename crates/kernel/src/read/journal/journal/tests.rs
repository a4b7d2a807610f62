//! The journal of popped values.

mod keyed;
mod killed;

use std::io::ErrorKind;
use std::time::Duration;

use twinprobe_ebpf_common::MapKind;
use twinprobe_test_attributes::timed;

use super::*;
use crate::read::journal::drain::pop_all as drain;
use crate::read::journal::fifo;
use crate::read::table::tests::*;
use crate::read::table::{self, MapTable};
use crate::sys::bpffs::testing::PinsDirectory;
use crate::sys::map as sys_map;

const KINDS: [MapKind; 2] = [MapKind::Queue, MapKind::Stack];

impl PinsDirectory {
    fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    fn open(&self, table: &MapTable) -> Journal {
        Journal::open(&self.journal(), &table.layout).unwrap()
    }
}

impl Journal {
    /// Returns all rows.
    fn rows(&self) -> RawTable {
        let mut all = RawTable::default();
        let _ = self.read(&mut |chunk| {
            all.append(chunk);
            ControlFlow::Continue(())
        });
        all
    }
}

fn fifo(kind: MapKind, value_size: u32, max_entries: u32) -> MapTable {
    table(
        kind,
        (0, value_size),
        max_entries,
        accesses(kind)[0],
        table::CHUNK_BYTES,
    )
}

/// Returns the content of the value with this number. Values of four bytes or more are all
/// different.
fn content(value_size: u32, number: u32) -> Vec<u8> {
    let mut value = vec![0xa5; value_size as usize];
    let number = number.to_le_bytes();
    let len = value.len().min(4);
    value[..len].copy_from_slice(&number[..len]);
    value
}

/// Pushes values and returns them in the order in which they must be popped.
fn push(table: &MapTable, count: u32) -> Vec<u8> {
    let size = table.layout.value.size as u32;
    let mut values: Vec<Vec<u8>> = (0..count).map(|number| content(size, number)).collect();
    for value in &values {
        sys_map::map_update(table.fd(), &[], value).unwrap();
    }
    if table.layout.kind == MapKind::Stack {
        values.reverse();
    }
    values.concat()
}

fn is_empty(table: &MapTable) -> bool {
    !sys_map::map_lookup(table.fd(), &[], &mut vec![0; table.value_stride()]).unwrap()
}

#[test]
fn all_sizes_and_several_segments() {
    let pins = PinsDirectory::new("sizes");
    for kind in KINDS {
        for (size, count) in [
            (1, 100_000),
            (3, 50_000),
            (7, 1000),
            (8, 1),
            (20, 9000),
            (4099, 70),
            (70_000, 5),
        ] {
            let table = fifo(kind, size, count);
            let expected = push(&table, count);
            drain(&table, &mut pins.open(&table)).unwrap();
            assert!(is_empty(&table));
            let journal = pins.open(&table);
            assert_eq!(journal.len(), count as usize);
            assert!(journal.rows().values == expected, "{kind:?} {size}");
            Journal::discard(&pins.journal()).unwrap();
            assert!(!pins.journal().exists());
        }
    }
}

#[test]
fn an_empty_map_makes_nothing() {
    let pins = PinsDirectory::new("empty");
    let table = fifo(MapKind::Queue, 8, 10);
    let mut journal = pins.open(&table);
    drain(&table, &mut journal).unwrap();
    assert!(journal.is_empty() && journal.rows().is_empty() && !pins.journal().exists());
    Journal::discard(&pins.journal()).unwrap();
}

/// Values are handed on in chunks that do not depend on segments.
#[test]
fn chunks() {
    let pins = PinsDirectory::new("chunks");
    let table = fifo(MapKind::Queue, 1000, 2000);
    let expected = push(&table, 2000);
    let mut journal = pins.open(&table);
    drain(&table, &mut journal).unwrap();
    let mut found = Vec::new();
    let mut sink = |chunk: &mut RawTable| {
        assert!(!chunk.is_empty() && chunk.values.len() <= table::CHUNK_BYTES);
        found.extend_from_slice(&chunk.values);
        if found.len() < 1_500_000 {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    };
    assert!(journal.read(&mut sink).is_break());
    assert!(found == expected[..found.len()]);
}

/// A process may end at each step of a pop, at the first slot of a segment and at other slots, and
/// with values that are all equal.
#[test]
fn an_end_at_every_point_of_a_pop() {
    // The first segment has room for 20 values of 3,000 bytes.
    for (size, before) in [
        (3000, 0),
        (3000, 1),
        (3000, 19),
        (3000, 20),
        (3000, 21),
        (1, 5),
    ] {
        for kind in KINDS {
            for point in ["nothing", "prepared", "started", "popped", "finished"] {
                let pins = PinsDirectory::new("points");
                let table = fifo(kind, size, 100);
                let alike = content(size, 7);
                let count = before + 10;
                for _ in 0..count {
                    sys_map::map_update(table.fd(), &[], &alike).unwrap();
                }
                let mut journal = pins.open(&table);
                for _ in 0..before {
                    assert!(journal.pop(&table).unwrap());
                }
                let reached = ["prepared", "started", "popped", "finished"]
                    .iter()
                    .position(|at| *at == point);
                let steps = reached.map_or(0, |at| at + 1);
                assert!(sys_map::map_lookup(table.fd(), &[], &mut journal.head).unwrap());
                if steps > 0 {
                    let place = journal.prepare().unwrap();
                    if steps > 1 {
                        journal.set(SegmentWord::Started, journal.len() + 1);
                    }
                    if steps > 2 {
                        assert!(
                            sys_map::map_lookup_and_delete(table.fd(), &[], journal.slot(place))
                                .unwrap()
                        );
                    }
                    if steps > 3 {
                        journal.set(SegmentWord::Done, journal.len() + 1);
                    }
                }
                drop(journal);

                let mut journal = pins.open(&table);
                assert_eq!(
                    journal.len(),
                    before + usize::from(steps > 2),
                    "{point} {before}"
                );
                drain(&table, &mut journal).unwrap();
                assert!(
                    journal.rows().values == alike.repeat(count),
                    "{point} {before}"
                );
            }
        }
    }
}

/// An error comes before the pop, and the next call continues.
#[test]
fn no_room() {
    let table = fifo(MapKind::Queue, 3000, 100);
    let expected = push(&table, 50);
    let elsewhere = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(&elsewhere.path().join("journal"), &table.layout).unwrap();
    let error = drain(&table, &mut journal).unwrap_err();
    assert_eq!(error.call, "preparation of the journal", "{error:?}");
    assert!(journal.is_empty());

    let pins = PinsDirectory::new("room");
    let mut journal = pins.open(&table);
    assert!(journal.pop(&table).unwrap());
    // A directory occupies the path of the second segment's pin.
    let obstacle = pins.journal().join("1");
    fs::create_dir(&obstacle).unwrap();
    let error = drain(&table, &mut journal).unwrap_err();
    assert_eq!(
        (error.call, error.source.kind()),
        ("preparation of the journal", ErrorKind::AlreadyExists)
    );
    assert!(journal.rows().values == expected[..20 * 3000]);
    fs::remove_dir(&obstacle).unwrap();
    drain(&table, &mut journal).unwrap();
    assert!(journal.rows().values == expected);
}

/// An interrupted removal leaves no journal, and nothing that hinders the next one.
#[test]
fn half_a_removal() {
    let pins = PinsDirectory::new("removal");
    let table = fifo(MapKind::Queue, 3000, 100);
    push(&table, 50);
    drain(&table, &mut pins.open(&table)).unwrap();
    fs::remove_file(pins.journal().join("0")).unwrap();
    let expected = push(&table, 50);
    let mut journal = pins.open(&table);
    assert!(journal.is_empty());
    drain(&table, &mut journal).unwrap();
    assert!(journal.rows().values == expected);
}

#[test]
fn what_is_no_journal_of_this_map_is_set_aside() {
    let pins = PinsDirectory::new("aside");
    let table = fifo(MapKind::Queue, 8, 100);
    let refused = |reason: &str| {
        let error = Journal::open(&pins.journal(), &table.layout).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        assert!(pins.0.join("journal_damaged").exists() && !pins.journal().exists());
        assert!(pins.open(&table).is_empty());
    };
    let other = fifo(MapKind::Queue, 70_000, 100);
    push(&other, 2);
    drain(&other, &mut pins.open(&other)).unwrap();
    refused("rows of 70000 bytes");
    let stack = fifo(MapKind::Stack, 8, 100);
    push(&stack, 2);
    drain(&stack, &mut pins.open(&stack)).unwrap();
    refused("from a map of type 23");
    fs::create_dir(pins.journal()).unwrap();
    object::obj_pin(table.fd(), &pins.journal().join("0")).unwrap();
    refused("segment 0 is another map");
    push(&table, 2);
    let mut journal = pins.open(&table);
    drain(&table, &mut journal).unwrap();
    journal.set(SegmentWord::Done, 1);
    drop(journal);
    // If one more row is started than done, it may be an unfinished pop.
    assert_eq!(pins.open(&table).len(), 2);
    pins.open(&table).set(SegmentWord::Done, 0);
    refused("the header says 0 of 2 rows, but there are");
}

/// The pop of a STACK to which packets push may return another value than the expected one. This
/// value belongs to the journal.
#[test]
fn another_value_than_expected_was_popped() {
    let pins = PinsDirectory::new("another");
    let table = fifo(MapKind::Stack, 8, 100);
    let mut expected = push(&table, 2);
    let mut journal = pins.open(&table);
    assert!(sys_map::map_lookup(table.fd(), &[], &mut journal.head).unwrap());
    let place = journal.prepare().unwrap();
    journal.set(SegmentWord::Started, 1);
    let late = content(8, 77);
    sys_map::map_update(table.fd(), &[], &late).unwrap();
    assert!(sys_map::map_lookup_and_delete(table.fd(), &[], journal.slot(place)).unwrap());
    drop(journal);
    let mut journal = pins.open(&table);
    assert_eq!(journal.len(), 1);
    drain(&table, &mut journal).unwrap();
    expected.splice(0..0, late);
    assert!(journal.rows().values == expected);
}

/// The copy after a pop finds every page present: the journal has a thousand pages, and hardly any
/// fault happens.
#[test]
fn the_copy_of_what_was_popped_does_not_fault() {
    let faults = || {
        // SAFETY: zero is a value of every field.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: a structure that lives through the call.
        let read = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
        assert_eq!(read, 0);
        usage.ru_minflt + usage.ru_majflt
    };
    let pins = PinsDirectory::new("faults");
    let table = fifo(MapKind::Queue, 4096, 1000);
    push(&table, 1000);
    let mut journal = pins.open(&table);
    assert!(journal.pop(&table).unwrap());
    let before = faults();
    drain(&table, &mut journal).unwrap();
    let more = faults() - before;
    assert!(more < 100, "{more} faults");
}

/// The journal has the rows of a plain reading in the same order.
#[test]
fn large_queues_are_drained_whole() {
    compare_with_a_plain_reading(20_000, 1);
}

/// The speed of the journal, printed with `--no-capture`; `TWINPROBE_SCALE=full` measures a million
/// values.
#[timed("it measures values per second")]
fn speed_of_the_journal() {
    let full = std::env::var("TWINPROBE_SCALE").is_ok_and(|scale| scale == "full");
    compare_with_a_plain_reading(if full { 1_000_000 } else { 100_000 }, 5);
}

/// Prints the best speed of these rounds.
fn compare_with_a_plain_reading(count: u32, rounds: usize) {
    let pins = PinsDirectory::new("speed");
    for size in [8, 64, 1024] {
        let table = fifo(MapKind::Queue, size, count.min(64_000_000 / size));
        let mut best = [Duration::MAX; 2];
        for _ in 0..rounds {
            let expected = push(&table, table.max_entries as u32);
            let started = std::time::Instant::now();
            let mut rows = RawTable::default();
            let mut sink = |chunk: &mut RawTable| {
                rows.append(chunk);
                ControlFlow::Continue(())
            };
            assert!(fifo::read(&table, &mut sink).unwrap().is_continue());
            best[0] = best[0].min(started.elapsed());
            assert!(rows.values == expected);
            push(&table, table.max_entries as u32);
            let started = std::time::Instant::now();
            let mut journal = pins.open(&table);
            drain(&table, &mut journal).unwrap();
            let rows = journal.rows();
            best[1] = best[1].min(started.elapsed());
            assert!(rows.values == expected);
            Journal::discard(&pins.journal()).unwrap();
        }
        let rate = |time: Duration| table.max_entries as f64 / time.as_secs_f64() / 1e6;
        let [plain, journal] = best.map(rate);
        println!(
            "{} values of {size}: {plain:.2} million pops/s, {journal:.2} with the journal",
            table.max_entries
        );
    }
}
