//! The journal of popped values, and processes that are killed while they pop.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, thread};

use twinprobe_ebpf_common::MapKind;

use super::*;
use crate::read::journal::fifo;
use crate::read::table::tests::*;
use crate::read::table::{self, MetricMap};
use crate::sys::map as sys_map;
use crate::sys::mapping::{Access, Mapping};
use crate::sys::object;

const KINDS: [MapKind; 2] = [MapKind::Queue, MapKind::Stack];

/// A directory in bpffs, removed on drop.
struct Pins(PathBuf);

impl Pins {
    fn new(name: &str) -> Self {
        let directory = Path::new("/sys/fs/bpf").join(format!("tp_journal_{name}_{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    fn open(&self, table: &Table) -> Journal {
        Journal::open(&self.journal(), &table.layout).unwrap()
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn fifo(kind: MapKind, value_size: u32, max_entries: u32) -> Table {
    table(kind, (0, value_size), max_entries, accesses(kind)[0], table::CHUNK_BYTES)
}

/// No two neighbours alike, unless they are a byte.
fn content(value_size: u32, number: u32) -> Vec<u8> {
    let mut value = vec![0xa5; value_size as usize];
    let number = number.to_le_bytes();
    let len = value.len().min(4);
    value[..len].copy_from_slice(&number[..len]);
    value
}

/// Pushes values and says in which order they are to be popped.
fn push(table: &Table, count: u32) -> Vec<u8> {
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

fn is_empty(table: &Table) -> bool {
    !sys_map::map_lookup(table.fd(), &[], &mut vec![0; table.value_stride()]).unwrap()
}

#[test]
fn all_sizes_and_several_segments() {
    let pins = Pins::new("sizes");
    for kind in KINDS {
        for (size, count) in
            [(1, 100_000), (3, 50_000), (7, 1000), (8, 1), (20, 9000), (4099, 70), (70_000, 5)]
        {
            let table = fifo(kind, size, count);
            let expected = push(&table, count);
            drain(&table, &mut pins.open(&table)).unwrap();
            assert!(is_empty(&table));
            let journal = pins.open(&table);
            assert_eq!(journal.len(), count as usize);
            assert!(journal.rows().values == expected, "{kind:?} {size}");
            journal.remove().unwrap();
            assert!(!pins.journal().exists());
        }
    }
}

#[test]
fn an_empty_map_makes_nothing() {
    let pins = Pins::new("empty");
    let table = fifo(MapKind::Queue, 8, 10);
    let mut journal = pins.open(&table);
    drain(&table, &mut journal).unwrap();
    assert!(journal.is_empty() && journal.rows().is_empty() && !pins.journal().exists());
    journal.remove().unwrap();
}

/// Values are handed on in chunks that do not depend on segments.
#[test]
fn chunks() {
    let pins = Pins::new("chunks");
    let table = fifo(MapKind::Queue, 1000, 2000);
    let expected = push(&table, 2000);
    let mut journal = pins.open(&table);
    drain(&table, &mut journal).unwrap();
    let mut found = Vec::new();
    let mut sink = |chunk: &RawTable| {
        assert!(!chunk.is_empty() && chunk.values.len() <= table::CHUNK_BYTES);
        found.extend_from_slice(&chunk.values);
        if found.len() < 1_500_000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    assert!(journal.read(&mut sink).is_break());
    assert!(found == expected[..found.len()]);
}

/// Where a process can end: each point of a pop, at slots that begin a segment and others, with values that are all alike.
#[test]
fn an_end_at_every_point_of_a_pop() {
    // Of 3,000 bytes 20 fit into the first segment.
    for (size, before) in [(3000, 0), (3000, 1), (3000, 19), (3000, 20), (3000, 21), (1, 5)] {
        for kind in KINDS {
            for point in ["nothing", "prepared", "started", "popped", "finished"] {
                let pins = Pins::new("points");
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
                let reached =
                    ["prepared", "started", "popped", "finished"].iter().position(|at| *at == point);
                let steps = reached.map_or(0, |at| at + 1);
                assert!(sys_map::map_lookup(table.fd(), &[], &mut journal.head).unwrap());
                if steps > 0 {
                    let place = journal.prepare().unwrap();
                    if steps > 1 {
                        journal.start();
                    }
                    if steps > 2 {
                        assert!(
                            sys_map::map_lookup_and_delete(table.fd(), &[], journal.slot(place)).unwrap()
                        );
                    }
                    if steps > 3 {
                        journal.finish();
                    }
                }
                drop(journal);

                let mut journal = pins.open(&table);
                assert_eq!(journal.len(), before + usize::from(steps > 2), "{point} {before}");
                drain(&table, &mut journal).unwrap();
                assert!(journal.rows().values == alike.repeat(count), "{point} {before}");
            }
        }
    }
}

/// An error comes before the pop, and the next call goes on.
#[test]
fn no_room() {
    let table = fifo(MapKind::Queue, 3000, 100);
    let expected = push(&table, 50);
    let elsewhere = tempfile::tempdir().unwrap();
    let mut journal = Journal::open(&elsewhere.path().join("journal"), &table.layout).unwrap();
    let error = drain(&table, &mut journal).unwrap_err();
    assert_eq!(error.call, "preparation of the journal", "{error:?}");
    assert!(journal.is_empty());

    let pins = Pins::new("room");
    let mut journal = pins.open(&table);
    assert!(journal.pop(&table).unwrap());
    // Where the second segment is to be.
    let obstacle = pins.journal().join("1");
    fs::create_dir(&obstacle).unwrap();
    let error = drain(&table, &mut journal).unwrap_err();
    assert_eq!((error.call, error.source.kind()), ("preparation of the journal", ErrorKind::AlreadyExists));
    assert!(journal.rows().values == expected[..20 * 3000]);
    fs::remove_dir(&obstacle).unwrap();
    drain(&table, &mut journal).unwrap();
    assert!(journal.rows().values == expected);
}

/// A removal that was interrupted leaves no journal, and nothing that is in the way of the next.
#[test]
fn half_a_removal() {
    let pins = Pins::new("removal");
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
    let pins = Pins::new("aside");
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
    refused("values of 70000 bytes");
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
    journal.prepare().unwrap();
    journal.start();
    journal.slot((0, 2))[0] ^= 1;
    drop(journal);
    refused("value 2 is neither what was expected nor absent");
}

#[test]
fn other_maps_can_not_be_drained() {
    let pins = Pins::new("others");
    let table = table(MapKind::Hash, (4, 8), 10, accesses(MapKind::Hash)[0], 1000);
    let mut journal = pins.open(&table);
    let error = MetricMap::Table(table).drain_into(&mut journal).unwrap_err();
    assert_eq!(error.source.kind(), ErrorKind::Unsupported);
}

/// Between pop and copy no page is missing: there are a thousand in the journal, and next to no faults.
#[test]
fn the_copy_of_what_was_popped_does_not_fault() {
    let faults = || {
        // SAFETY: zero is a value of every field.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: a structure that lives through the call.
        assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
        usage.ru_minflt + usage.ru_majflt
    };
    let pins = Pins::new("faults");
    let table = fifo(MapKind::Queue, 4096, 1000);
    push(&table, 1000);
    let mut journal = pins.open(&table);
    assert!(journal.pop(&table).unwrap());
    let before = faults();
    drain(&table, &mut journal).unwrap();
    let more = faults() - before;
    assert!(more < 100, "{more} faults");
}

const DIRECTORY: &str = "TWINPROBE_TEST_JOURNAL";

fn of_child(map: OwnedFd) -> Table {
    let access = [accesses(MapKind::Queue)[0]; 2];
    Table::new(map, "test", layout(MapKind::Queue, 0, 4), CHILD_VALUES, access)
}

const CHILD_VALUES: u32 = 20_000;

/// Not a test: what the next one kills.
#[test]
fn a_process_that_drains() {
    let Some(directory) = env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let table = of_child(object::obj_get(&directory.join("queue")).unwrap());
    let mut journal = Journal::open(&directory.join("journal"), &table.layout).unwrap();
    drain(&table, &mut journal).unwrap();
}

/// Processes are killed at instants that are spread over the drain of a queue, until one comes to its end. Between them
/// all values were popped once and in order.
#[test]
fn processes_that_are_killed_lose_nothing() {
    let pins = Pins::new("killed");
    let table = of_child(create(MapKind::Queue, 0, 4, CHILD_VALUES, 0));
    object::obj_pin(table.fd(), &pins.0.join("queue")).unwrap();
    let full = env::var("TWINPROBE_SCALE").is_ok_and(|scale| scale == "full");
    let (mut in_the_middle, rounds) = (0, if full { 100 } else { 4 });
    for round in 0..100 {
        // More rounds are needed where the processes end before they are killed, as on a busy machine.
        if round >= rounds && in_the_middle > 10 {
            break;
        }
        let expected = push(&table, CHILD_VALUES);
        let mut last = 0;
        for kill in 0.. {
            let mut child = Command::new(env::current_exe().unwrap())
                .args(["read::journal::journal::tests::a_process_that_drains", "--exact"])
                .env(DIRECTORY, &pins.0)
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            // A process that has begun to pop, each time a bit longer.
            while child.try_wait().unwrap().is_none() && popped(&pins) == last {
                thread::yield_now();
            }
            thread::sleep(Duration::from_micros(137 * round + 500 * kill));
            let ended = child.try_wait().unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            last = popped(&pins);
            in_the_middle += usize::from((1..CHILD_VALUES as usize).contains(&last));
            if let Some(status) = ended {
                assert!(status.success(), "{status}");
                break;
            }
        }
        assert!(is_empty(&table));
        let journal = pins.open(&table);
        assert_eq!(journal.len(), CHILD_VALUES as usize);
        assert!(journal.rows().values == expected, "round {round}");
        journal.remove().unwrap();
    }
    assert!(in_the_middle > 10, "only {in_the_middle} processes were killed while they popped");
}

/// As far as the process that pops has said so. Opening the journal would settle what is under way.
fn popped(pins: &Pins) -> usize {
    let Ok(map) = object::obj_get(&pins.journal().join("0")) else { return 0 };
    let head = Mapping::new(map.as_fd(), 0, 64, Access::Read).unwrap();
    head.u64(32).load(std::sync::atomic::Ordering::SeqCst) as usize
}

/// `TWINPROBE_SCALE=full` for a million values; prints with `--nocapture`.
#[test]
fn speed_of_the_journal() {
    let full = env::var("TWINPROBE_SCALE").is_ok_and(|scale| scale == "full");
    let count = if full { 1_000_000 } else { 20_000 };
    let pins = Pins::new("speed");
    for size in [8, 64, 1024] {
        let table = fifo(MapKind::Queue, size, count.min(64_000_000 / size));
        let mut best = [Duration::MAX; 2];
        for _ in 0..if full { 5 } else { 1 } {
            let expected = push(&table, table.max_entries as u32);
            let started = std::time::Instant::now();
            let mut rows = RawTable::default();
            let mut sink = |chunk: &RawTable| {
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
            journal.remove().unwrap();
        }
        let rate = |time: Duration| table.max_entries as f64 / time.as_secs_f64() / 1e6;
        let [plain, journal] = best.map(rate);
        println!(
            "{} values of {size}: {plain:.2} million pops/s, {journal:.2} with the journal",
            table.max_entries
        );
    }
}
