//! The speed of each strategy at large tables.

use std::time::{Duration, Instant};

use twinprobe_test_attributes::timed;

use super::*;
use crate::read::table;
use crate::sys::batch::{self, BatchCursor};
use crate::sys::map as sys_map;

/// Measures the wall-clock time, and the CPU time of this thread, which is the better one on a busy
/// machine.
fn timed(work: impl FnOnce()) -> [Duration; 2] {
    let (started, cpu) = (Instant::now(), cpu_time());
    work();
    [started.elapsed(), cpu_time() - cpu]
}

fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a structure that lives through the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Does batch lookups and nothing else, for comparison with the strategies. Returns the number of
/// rows.
fn bare(table: &MapTable) -> usize {
    let room = table.batch_len();
    let (mut keys, mut values) = (
        vec![0; room * table.key_size()],
        vec![0; room * table.value_stride()],
    );
    let (mut cursor, mut rows, mut errno) = (BatchCursor::new(table.key_size()), 0, 0);
    while errno == 0 {
        let outcome =
            batch::map_lookup_batch(table.fd(), &mut cursor, &mut keys, &mut values, room, false);
        (rows, errno) = (rows + outcome.count, outcome.errno());
    }
    rows
}

fn count_rows(table: &MapTable, after: AfterRead) -> usize {
    let mut rows = 0;
    let mut sink = |chunk: &mut RawTable| {
        let bytes = chunk.keys.len() + chunk.values.len();
        assert!(bytes <= 2 * table::CHUNK_BYTES, "a chunk of {bytes} bytes");
        rows += chunk.len(&table.layout);
        ControlFlow::Continue(())
    };
    assert!(table.read_chunks(after, &mut sink).unwrap().is_continue());
    rows
}

#[test]
fn large_tables_are_read_whole_and_in_pieces() {
    read_by_each_strategy(20_000, 1);
}

/// The speed of the strategies, printed with `--no-capture`; `TWINPROBE_SCALE=full` measures a
/// million entries.
#[timed("it measures how long a reading takes")]
fn speed_of_the_strategies() {
    let full = std::env::var("TWINPROBE_SCALE").is_ok_and(|scale| scale == "full");
    read_by_each_strategy(if full { 1_000_000 } else { 100_000 }, 3);
}

/// Prints the median time of these rounds.
fn read_by_each_strategy(count: u32, rounds: usize) {
    for kind in [
        MapKind::Hash,
        MapKind::PercpuHash,
        MapKind::Array,
        MapKind::LpmTrie,
    ] {
        let key_size = if kind == MapKind::LpmTrie { 8 } else { 4 };
        let mut accesses = accesses(kind);
        accesses.dedup_by_key(|access| access.strategy);
        for access in accesses {
            let table = table(kind, (key_size, 8), count, access, table::CHUNK_BYTES);
            let value = value(&table.layout, 1);
            let measure = |what: &str, read: &dyn Fn() -> usize| {
                let mut times: Vec<[Duration; 2]> = Vec::new();
                for _ in 0..rounds {
                    let fill = |n| {
                        sys_map::map_update(table.fd(), &key(kind, key_size, n), &value).unwrap();
                    };
                    (0..count).for_each(fill);
                    times.push(timed(|| {
                        assert_eq!(read(), count as usize, "{kind:?} {:?}", access.strategy);
                    }));
                }
                times.sort_unstable_by_key(|[_, cpu]| *cpu);
                let [wall, cpu] = times[times.len() / 2];
                println!(
                    "{count} {} {:?} {what}: {wall:.2?}, of a CPU {cpu:.2?}",
                    kind.name(),
                    access.strategy
                );
            };
            measure("bare", &|| bare(&table));
            measure("keep", &|| count_rows(&table, AfterRead::Keep));
            measure("reset", &|| count_rows(&table, AfterRead::Reset));
        }
    }
}
