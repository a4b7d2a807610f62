//! Writers, readers and acknowledgements from several threads at once.

use std::thread;

use super::*;
use crate::body::stored::WindowError;
use crate::retention::RetentionLimits;

const WINDOWS: u64 = 300;

/// Commits a window and returns the number of lost windows that it reports.
fn write(windows: &Arc<Windows>, seq: u64) -> u64 {
    let reports = windows.unreported_lost(seq);
    commit(windows, seq, 20);
    reports
}

#[test]
fn a_reader_gets_all_of_a_window_or_hears_that_it_has_gone() {
    let directory = directory();
    let windows = open(directory.path());
    windows.set_limits(RetentionLimits {
        retain: 4,
        ..RetentionLimits::default()
    });
    let reported = thread::scope(|scope| {
        let writer = scope.spawn(|| (1..=WINDOWS).map(|seq| write(&windows, seq)).sum::<u64>());
        for reader in 0..3 {
            let windows = &windows;
            scope.spawn(move || {
                while windows.last_seq() < WINDOWS {
                    let listed = windows
                        .list(0, ListBounds::default())
                        .windows
                        .first()
                        .and_then(|entry| windows.get(entry.seq).ok());
                    for window in [listed, windows.newest()].into_iter().flatten() {
                        match window.open() {
                            Ok(read) => {
                                assert_eq!(read.chunk(0, 0).unwrap(), Some(rows(window.seq(), 20)));
                            }
                            Err(error) => assert!(matches!(error, WindowError::Gone), "{error}"),
                        }
                        if reader == 0 {
                            windows.set_taken(window.seq());
                        } else if reader == 1 && window.seq() % 3 == 0 {
                            windows.acknowledge(window.seq(), None).unwrap();
                        }
                    }
                }
            });
        }
        writer.join().unwrap()
    });
    let statistics = windows.statistics();
    assert_eq!(statistics.damaged, 0);
    assert_eq!(windows.last_seq(), WINDOWS);
    let found = open(directory.path());
    assert_eq!(
        (found.statistics(), numbers(&found)),
        (statistics, numbers(&windows))
    );
    assert_eq!(
        reported + windows.unreported_lost(WINDOWS + 1),
        statistics.lost
    );
}
