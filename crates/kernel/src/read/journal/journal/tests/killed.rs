//! Processes that are killed while they drain a map.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{env, thread};

use super::*;
use crate::read::map::MetricMap;
use crate::sys::mapping::{Mapping, MappingAccess};

const DIRECTORY: &str = "TWINPROBE_TEST_JOURNAL";
const KIND: &str = "TWINPROBE_TEST_JOURNAL_KIND";
const VALUES: u32 = 20_000;
/// The size of a chunk, in bytes: smaller than the daemon's, so that a drain has many steps.
const CHUNK_BYTES: usize = 4096;

/// Opens the pinned map that the processes drain.
fn opened(pins: &Path, kind: MapKind) -> MapTable {
    let map = object::obj_get(&pins.join("map")).unwrap();
    let key_size = if kind.has_keys() { 4 } else { 0 };
    let table = MapTable::new(
        map,
        "test",
        layout(kind, key_size, 4),
        room(kind),
        [accesses(kind)[0]; 2],
    );
    MapTable {
        chunk_bytes: CHUNK_BYTES,
        ..table
    }
}

const fn room(kind: MapKind) -> u32 {
    if matches!(kind, MapKind::Hash) {
        32 * VALUES
    } else {
        VALUES
    }
}

fn pinned(name: &str, kind: MapKind) -> (PinsDirectory, MetricMap) {
    let pins = PinsDirectory::new(name);
    let key_size = if kind.has_keys() { 4 } else { 0 };
    let map = create(kind, key_size, 4, room(kind), 0);
    object::obj_pin(map.as_fd(), &pins.0.join("map")).unwrap();
    let map = MetricMap::Table(opened(&pins.0, kind));
    (pins, map)
}

/// Drains the map in the process that the other tests start and kill; does nothing in other
/// processes.
#[test]
fn a_process_that_drains() {
    let Some(directory) = env::var_os(DIRECTORY).map(PathBuf::from) else {
        return;
    };
    let kind = env::var(KIND).unwrap();
    let kind = MapKind::ALL
        .into_iter()
        .find(|known| known.name() == kind)
        .unwrap();
    MetricMap::Table(opened(&directory, kind))
        .drain_into(&directory.join("journal"))
        .unwrap();
}

/// Kills processes at instants that are spread over the drain, until one process completes it.
/// Returns the number of processes that were killed in the middle.
fn kill(pins: &PinsDirectory, kind: MapKind, round: u64) -> usize {
    let (mut last, mut in_the_middle) = (0, 0);
    for kill in 0.. {
        let mut child = Command::new(env::current_exe().unwrap())
            .args([
                "read::journal::journal::tests::killed::a_process_that_drains",
                "--exact",
            ])
            .env(DIRECTORY, &pins.0)
            .env(KIND, kind.name())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // The process is killed after it has begun to take entries, each time a bit later.
        while child.try_wait().unwrap().is_none() && taken(pins) == last {
            thread::yield_now();
        }
        thread::sleep(Duration::from_micros(137 * round + 200 * kill));
        let ended = child.try_wait().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        last = taken(pins);
        in_the_middle += usize::from(ended.is_none());
        if let Some(status) = ended {
            assert!(status.success(), "{status}");
            break;
        }
    }
    in_the_middle
}

/// Runs rounds until enough processes were killed in the middle. A busy machine needs more rounds,
/// because more processes end before they are killed.
fn rounds(mut round: impl FnMut(u64) -> usize) {
    let full = env::var("TWINPROBE_SCALE").is_ok_and(|scale| scale == "full");
    let (mut in_the_middle, rounds) = (0, if full { 100 } else { 4 });
    for number in 0..1000 {
        if number >= rounds && in_the_middle > 10 {
            break;
        }
        in_the_middle += round(number);
    }
    assert!(
        in_the_middle > 10,
        "only {in_the_middle} processes were killed in the middle"
    );
}

/// Returns the number of rows that the draining process has marked as done. Reads the number
/// without opening the journal, which would complete the row that is under way.
fn taken(pins: &PinsDirectory) -> usize {
    let Ok(map) = object::obj_get(&pins.journal().join("0")) else {
        return 0;
    };
    let head = Mapping::new(map.as_fd(), 0, 64, MappingAccess::Read).unwrap();
    head.u64(SegmentWord::Done as usize).load(Ordering::SeqCst) as usize
}

fn rows(map: &MetricMap, pins: &PinsDirectory) -> RawTable {
    let rows = Journal::open(&pins.journal(), map.layout()).unwrap().rows();
    MetricMap::forget_drained(&pins.journal()).unwrap();
    rows
}

/// All values are popped once and in order.
#[test]
fn of_a_queue_nothing_is_lost() {
    let (pins, map) = pinned("queue", MapKind::Queue);
    rounds(|round| {
        let MetricMap::Table(table) = &map else {
            panic!("a table")
        };
        let expected = push(table, VALUES);
        let killed = kill(&pins, MapKind::Queue, round);
        assert!(is_empty(table));
        assert!(rows(&map, &pins).values == expected, "round {round}");
        killed
    });
}

/// Entries are added during the drain. The drain takes each of them once, or leaves it in the map.
#[test]
fn of_a_hash_nothing_is_lost_while_it_grows() {
    let (pins, map) = pinned("hash", MapKind::Hash);
    let MetricMap::Table(table) = &map else {
        panic!("a table")
    };
    let (added, full, stop) = (
        AtomicU64::new(0),
        AtomicBool::new(false),
        AtomicBool::new(false),
    );
    let mut found = BTreeSet::new();
    let mut keep = |rows: &RawTable| {
        for (key, value) in rows.entries(&table.layout) {
            assert_eq!(key, value);
            assert!(found.insert(key.to_vec()), "{key:?} was taken twice");
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let number = added.load(Ordering::SeqCst) as u32;
                let bytes = number.to_ne_bytes();
                match sys_map::map_update(table.fd(), &bytes, &bytes) {
                    Ok(()) => drop(added.fetch_add(1, Ordering::SeqCst)),
                    // The map is full, because the processes are slow.
                    Err(error) => {
                        assert_eq!(error.raw_os_error(), Some(libc::E2BIG), "{error}");
                        full.store(true, Ordering::SeqCst);
                    }
                }
                if number.is_multiple_of(64) {
                    thread::sleep(Duration::from_micros(50));
                }
            }
        });
        let _stop = Stop(&stop);
        rounds(|round| {
            let before = added.load(Ordering::SeqCst);
            full.store(false, Ordering::SeqCst);
            while added.load(Ordering::SeqCst) < before + u64::from(VALUES)
                && !full.load(Ordering::SeqCst)
            {
                thread::sleep(Duration::from_millis(1));
            }
            let killed = kill(&pins, MapKind::Hash, round);
            keep(&rows(&map, &pins));
            killed
        });
    });
    keep(
        &map.read(twinprobe_ebpf_common::metric::AfterRead::Keep)
            .unwrap(),
    );
    assert_eq!(found.len() as u64, added.load(Ordering::SeqCst));
}

/// Ends the thread that adds entries, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Copying and resetting loses nothing either, as long as no program writes to the map.
#[test]
fn of_an_array_at_rest_nothing_is_lost() {
    let (pins, map) = pinned("array", MapKind::Array);
    let MetricMap::Table(table) = &map else {
        panic!("a table")
    };
    rounds(|round| {
        let expected = fill(table, VALUES);
        let killed = kill(&pins, MapKind::Array, round);
        let mut found = Rows::new();
        collect(&mut found, &table.layout, &rows(&map, &pins));
        assert!(found == expected, "round {round}");
        assert_eq!(
            read(table, twinprobe_ebpf_common::metric::AfterRead::Keep),
            emptied(table, &expected)
        );
        killed
    });
}
