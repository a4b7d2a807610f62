//! Ways to write windows durably: the measurements that led to the daemon's store.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::measure::Sample;

use crate::frame::options::Bench;
use crate::frame::paired::Estimate;
use crate::frame::section::{Claim, Section};
use crate::frame::table::Table;
use crate::scenes::stores::fjall::Fjall;
use crate::scenes::stores::group::Group;
use crate::scenes::stores::redb::Redb;
use crate::scenes::stores::segments::Segments;
use crate::scenes::stores::single::Files;
use crate::scenes::stores::sqlite::Sqlite;
use crate::scenes::stores::store::{Open, Window};

/// The stores, by name. Earlier versions had the first two.
const STORES: [(&str, Open, bool); 6] = [
    ("a file each, synced", Files::open, false),
    ("segment log and files", Segments::with_files, true),
    ("segment log alone", Segments::alone, true),
    ("SQLite, the daemon's", Sqlite::open, true),
    ("redb 4", Redb::open, true),
    ("fjall 3", Fjall::open, true),
];

/// The kinds of windows, and their size in bytes: 25,000 flows have keys and values of 48 bytes.
const SIZES: [(&str, usize); 2] = [("1 entry", 1024), ("25,000 flows", 25_000 * 48)];
const WRITERS: [usize; 2] = [1, 100];

pub fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new(
        "Stores of windows",
        "What does a durable window cost, by the store?",
        "Writers hand over one window after the other, and continue once it is durable; each writer keeps its newest 32 windows. The \
         stores take turns. With `group commit` the first writer also writes the windows of all that wait, in every \
         store alike. Each writer syncs its own file for each window. Medians with intervals of 95 % (bootstrap).",
    );
    section.details =
        "Processor time is that of the whole process, the kernel's part for it included, but not the writing back of \
         files later. Syncs are those that the store calls for (redb counted in its backend; SQLite and fjall at least)."
        .to_owned();
    let mut table = Table::new(&[
        "window",
        "writers",
        "store",
        "windows/s",
        "CPU per window, us",
        "syncs per window",
        "bytes on disk / kept",
    ]);
    let rounds = bench.rounds(5, 1);
    let mut best = Vec::new();
    for (name, size) in bench.cases(&SIZES, &SIZES[..1]) {
        for writers in bench.cases(&WRITERS, &[4]) {
            let mut runs: Vec<[Sample; 4]> = STORES.iter().map(|_| Default::default()).collect();
            for _ in 0..rounds {
                for ((_, open, shares), run) in STORES.iter().zip(&mut runs) {
                    let length = Duration::from_millis(bench.times(2_000, 200));
                    let figures = measure(*open, *shares, writers, size, length)?;
                    run.iter_mut()
                        .zip(figures)
                        .for_each(|(sample, figure)| sample.add(figure));
                }
            }
            for ((store, ..), [rate, time, syncs, bytes]) in STORES.iter().zip(&runs) {
                let time = Estimate::of(time);
                table.row([
                    name.to_owned(),
                    writers.to_string(),
                    (*store).to_owned(),
                    Estimate::of(rate).show(0),
                    time.show(0),
                    format!("{:.3}", syncs.median()),
                    format!("{:.1}", bytes.median()),
                ]);
                if size == SIZES[0].1 && writers > 1 {
                    best.push(format!("{store} {:.0} us", time.value));
                }
            }
        }
    }
    section.tables.push(table);
    section.meaning = "The cost of a small window is the cost of its sync, and every store here shares a sync among \
        all windows that wait. Our own log is the fastest, and was the hardest to test: it broke promises at a \
        reboot. The daemon uses SQLite. It continues after a full disk or an error of the disk, and operators can read it \
        with a known tool. Its rows for 25,000 flows, inside the database, show why the daemon keeps such \
        windows as files beside it."
        .to_owned();
    section.claims.push(Claim {
        claim: "a durable window of one entry, many writers",
        paper: "a kept store",
        ours: best.join("; "),
        peers: "redb, fjall".into(),
    });
    Ok(section)
}

/// Writes windows for some time. Returns windows per second, microseconds of processor time and
/// syncs for each, and the bytes on disk for each byte that is kept.
fn measure(
    open: Open,
    shares: bool,
    writers: usize,
    size: usize,
    length: Duration,
) -> Result<[f64; 4]> {
    // The directory of this program is on a disk, and not in memory.
    let disk = std::env::current_exe()?;
    let directory = tempfile::tempdir_in(disk.parent().context("a directory")?)?;
    let store = open(directory.path())?;
    let group = Group::new(&*store);
    let (before, synced, started) = (processor_seconds(), store.syncs(), Instant::now());
    let counts: Vec<u64> = thread::scope(|scope| {
        let write = |writer: usize| {
            let (group, store) = (&group, &store);
            move || -> Result<u64> {
                let mut content = vec![0; size];
                let mut seq = 0_u64;
                while started.elapsed() < length {
                    seq += 1;
                    content[..8].copy_from_slice(&seq.to_le_bytes());
                    content[8..16].copy_from_slice(&(writer as u64).to_le_bytes());
                    let window = Window {
                        writer,
                        seq,
                        content: &content,
                    };
                    if shares {
                        group.put(window)?
                    } else {
                        store.put(&[window])?
                    }
                }
                Ok(seq)
            }
        };
        let writing: Vec<_> = (0..writers)
            .map(|writer| scope.spawn(write(writer)))
            .collect();
        writing
            .into_iter()
            .map(|writer| {
                writer
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect::<Result<_>>()
    })?;
    let windows: u64 = counts.iter().sum();
    ensure!(
        counts.iter().all(|count| *count > 0),
        "a writer wrote no window"
    );
    let seconds = started.elapsed().as_secs_f64();
    let time = processor_seconds() - before;
    let kept: u64 = counts
        .iter()
        .map(|count| count.min(&32) * size as u64)
        .sum();
    let syncs = store.syncs() - synced;
    Ok([
        windows as f64 / seconds,
        1e6 * time / windows as f64,
        syncs as f64 / windows as f64,
        on_disk(directory.path())? as f64 / kept as f64,
    ])
}

/// The processor time of this process in seconds, with that of threads that have ended.
fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The room that the files below a directory take, in bytes.
fn on_disk(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() {
            on_disk(&entry.path())?
        } else {
            metadata.blocks() * 512
        };
    }
    Ok(bytes)
}
