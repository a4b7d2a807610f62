//! Cases that the model does not cover: clients that wait, full disks, several probes.

use std::convert::Infallible;
use std::sync::atomic::Ordering;

use super::*;
use crate::body::part::{BaselinePart, PartContent};
use crate::retention::{AckError, Missing, RetentionLimits};
use crate::windows::tests::scene::damage;

#[test]
fn those_who_wait_see_the_newest_window() {
    let directory = directory();
    let windows = open(directory.path());
    let mut changed = windows.changed();
    assert!(!changed.has_changed().unwrap());
    commit(&windows, 1, 1);
    assert!(changed.has_changed().unwrap());
    assert_eq!(*changed.borrow_and_update(), 1);
    assert_eq!(*open(directory.path()).changed().borrow(), 1);
}

/// A change that can't be stored on a full disk has no effect at all.
#[test]
fn on_a_full_disk_everything_stays_as_it_is() {
    let directory = directory();
    let windows = open(directory.path());
    (1..=6).for_each(|seq| drop(commit(&windows, seq, 1)));
    windows.is_full.store(true, Ordering::Relaxed);
    let full = std::io::ErrorKind::StorageFull;
    let writer = |seq| windows.write(&head(seq, ClosedBy::Read, 0)).unwrap();
    assert_eq!(writer(7).commit().unwrap_err().kind(), full);
    assert_eq!(
        windows.acknowledge(2, None),
        Err(AckError::NotWritten(full))
    );
    assert!(!windows.drop_oldest());
    windows.set_taken(3);
    for windows in [&windows, &open(directory.path())] {
        assert_eq!(
            (
                numbers(windows),
                windows.untaken().len(),
                windows.last_seq()
            ),
            ((1..=6).collect(), 6, 6)
        );
    }
    windows.is_full.store(false, Ordering::Relaxed);
    windows.acknowledge(2, None).unwrap();
    writer(7).commit().unwrap();
    assert_eq!(numbers(&windows), [3, 4, 5, 6, 7]);
}

#[test]
fn a_list_ends_at_its_bounds_and_has_one_window_at_least() {
    let directory = directory();
    let windows = open(directory.path());
    let bytes: Vec<u64> = (1..=4)
        .map(|seq| commit(&windows, seq, 10).entry.bytes)
        .collect();
    for (after, most, bytes, expected) in [
        (0, 9, u64::MAX, 1..=4),
        (0, 2, u64::MAX, 1..=2),
        (1, 9, bytes[1] + bytes[2], 2..=3),
        (1, 9, bytes[1] + bytes[2] - 1, 2..=2),
        (3, 9, 1, 4..=4),
    ] {
        let listed = windows
            .list(
                after,
                ListBounds {
                    windows: most,
                    bytes,
                },
            )
            .windows;
        assert!(
            listed.iter().map(|entry| entry.seq).eq(expected.clone()),
            "{expected:?}: {listed:?}"
        );
    }
    assert!(
        windows
            .list(u64::MAX, ListBounds::default())
            .windows
            .is_empty()
    );
}

#[test]
fn only_configured_collectors_acknowledge() {
    let directory = directory();
    let windows = open(directory.path());
    commit(&windows, 1, 1);
    let unknown = Err(AckError::UnknownCollector("a".into()));
    assert_eq!(windows.acknowledge(9, Some("a")), unknown);
    windows.set_limits(RetentionLimits {
        collectors: vec!["a".into(), "b".into()],
        ..RetentionLimits::default()
    });
    assert_eq!(
        windows.acknowledge(9, Some("a")),
        Err(AckError::Beyond { newest: 1 })
    );
    windows.acknowledge(1, Some("a")).unwrap();
    assert_eq!(
        (
            windows.acknowledged("a"),
            windows.acknowledged("b"),
            numbers(&windows)
        ),
        (Ok(1), Ok(0), vec![1])
    );
    windows.set_limits(RetentionLimits {
        collectors: vec!["a".into()],
        ..RetentionLimits::default()
    });
    assert_eq!(numbers(&windows), [0; 0], "no other collector has to");
}

#[test]
fn over_the_budget_the_oldest_of_all_probes_goes_and_each_newest_stays() {
    let directory = directory();
    let first = store(directory.path());
    let (a, b) = (first.of("a"), first.of("b"));
    let size = [(&a, 1), (&b, 2), (&a, 3), (&b, 4), (&b, 5)]
        .map(|(windows, seq)| commit(windows, seq, 1).entry.bytes)[0];
    let limited = |windows| limited(directory.path(), windows * size + size / 2);
    let check = |budget, a: &[u64], b: &[u64]| {
        let store = limited(budget);
        let probes = ["a", "b"].map(|probe| store.of(probe));
        store.enforce();
        assert_eq!(probes.map(|windows| numbers(&windows)), [a, b]);
    };
    check(5, &[1, 3], &[2, 4, 5]);
    check(4, &[3], &[2, 4, 5]);
    check(3, &[3], &[4, 5]);
    check(0, &[3], &[5]);
    let store = limited(0);
    // All named collectors have acknowledged these windows.
    assert_eq!(
        (
            store.of("a").statistics().lost,
            store.of("b").statistics().lost
        ),
        (0, 0)
    );
    assert_eq!(store.of("b").get(2).unwrap_err(), Missing::Outlived);
    assert_eq!(store.statistics()["b"], store.of("b").statistics());
}

/// A client that reads slowly keeps at most the budget on the disk, and loses nothing that is
/// retained.
#[test]
fn slow_readers_keep_no_more_than_the_budget() {
    const LARGE: usize = 10_000;
    let directory = directory();
    let all = (1..=4).map(|seq| commit(&open(directory.path()), seq, LARGE).entry.bytes);
    let size = all.max().unwrap();
    let store = limited(directory.path(), 2 * size + size / 2);
    let windows = store.of("p");
    let reader = |seq| Arc::new(windows.get(seq).unwrap().open().unwrap());
    let readers: Vec<_> = (1..=4).map(reader).collect();
    readers.iter().for_each(|reader| store.readers.add(reader));
    let readable = || {
        store.enforce();
        readers
            .iter()
            .map(|reader| reader.chunk(0, 0).is_ok())
            .collect::<Vec<_>>()
    };
    windows.set_limits(RetentionLimits {
        retain: 2,
        ..RetentionLimits::default()
    });
    assert_eq!(
        readers
            .iter()
            .map(|reader| reader.held())
            .collect::<Vec<_>>(),
        [size, size, 0, 0]
    );
    assert_eq!(readable(), [true; 4]);
    commit(&windows, 5, LARGE);
    assert_eq!(
        readable(),
        [false, true, true, true],
        "the file that was opened first is given up"
    );
    assert_eq!(numbers(&windows), [4, 5]);
}

#[test]
fn damaged_windows_and_sums_count_and_what_is_damaged_goes_first() {
    let directory = directory();
    let windows = open(directory.path());
    let size = commit(&windows, 1, 64).entry.bytes;
    (2..=4).for_each(|seq| drop(commit(&windows, seq, 64)));
    for seq in [1, 2] {
        let window = windows.get(seq).unwrap();
        damage(directory.path(), &window, 9);
        window.open().unwrap_err();
    }
    let kept = |windows: &Windows| windows.index.lock().all().0.len();
    assert_eq!((numbers(&windows), kept(&windows)), (vec![3, 4], 4));
    let sums = |bytes: u64| {
        let layout = layout(MapKind::Hash, None);
        let rows = rows(1, bytes as usize / 12);
        let (direction, map, content) = (Direction::Ingress, "m".to_owned(), PartContent::Sum);
        let (metric, ages) = (None, Vec::new());
        vec![BaselinePart {
            direction,
            map,
            metric,
            content,
            through: 4,
            layout,
            rows,
            ages,
            dropped: 0,
        }]
    };

    // Four windows are kept. The probe's limit and the limit of all probes count the same bytes,
    // and so does the daemon after a restart.
    let limit = |bytes| {
        windows.set_limits(RetentionLimits {
            bytes,
            ..RetentionLimits::default()
        });
    };
    limit(4 * size);
    assert_eq!(kept(&windows), 4);
    limit(4 * size - 1);
    assert_eq!((numbers(&windows), kept(&windows)), (vec![3, 4], 3));
    let enforce = |budget| {
        let store = limited(directory.path(), budget);
        store.enforce();
        store.of("p")
    };
    assert_eq!(kept(&enforce(3 * size)), 3);
    let windows = enforce(3 * size - 1);
    assert_eq!(
        (numbers(&windows), kept(&windows), windows.statistics().lost),
        (vec![3, 4], 2, 2)
    );
    windows
        .write_baseline((5, 7), &sums(2 * size), Durable::Now)
        .unwrap();
    windows.set_limits(RetentionLimits {
        bytes: 3 * size,
        ..RetentionLimits::default()
    });
    assert_eq!(
        numbers(&windows),
        [4],
        "the sums are no smaller than two windows"
    );
    windows.forget_baseline(7);
    commit(&windows, 5, 64);
    assert_eq!(numbers(&windows), [4, 5], "the sums are gone");
}

#[test]
fn a_removed_probe_leaves_nothing_and_nobody_brings_it_back() {
    let directory = directory();
    let all = store(directory.path());
    let windows = all.of("p");
    assert!(Arc::ptr_eq(&windows, &all.of("p")));
    commit(&windows, 1, 1);
    commit(&windows, 2, 50_000);
    windows.write_baseline((3, 1), &[], Durable::Now).unwrap();
    let writer = windows.write(&head(3, ClosedBy::Read, 0)).unwrap();
    let refused = all.remove("p", |_| Err("the record could not be removed"));
    assert!(refused.is_err());
    assert_eq!(
        (numbers(&windows), bodies(directory.path()).len()),
        (vec![1, 2], 1)
    );
    let Ok(()) = all.remove("p", |change| {
        windows.database.commit(Durable::Now, true, change).unwrap();
        Ok::<(), Infallible>(())
    });
    assert!(writer.commit().is_err());
    assert!(windows.write(&head(3, ClosedBy::Read, 0)).is_err());
    assert_eq!(bodies(directory.path()), [""; 0]);
    for all in [all, store(directory.path())] {
        let windows = all.of("p");
        assert_eq!((windows.last_seq(), windows.base(None).unwrap()), (0, None));
    }
}

/// A page needs only the sums of a window: the window is removed with the next one, and displaces
/// no window that others wait for.
#[test]
fn windows_of_pages_take_nothing_from_collectors() {
    let directory = directory();
    let windows = open(directory.path());
    windows.set_limits(RetentionLimits {
        retain: 2,
        collectors: vec!["a".to_owned()],
        ..RetentionLimits::default()
    });
    let page = |seq| {
        windows
            .write(&head(seq, ClosedBy::Page, 0))
            .unwrap()
            .commit()
            .unwrap()
    };
    commit(&windows, 1, 1);
    commit(&windows, 2, 1);
    for seq in 3..9 {
        page(seq);
        assert_eq!(
            (numbers(&windows), windows.newest().unwrap().entry.seq),
            (vec![1, 2], seq)
        );
        let statistics = windows.statistics();
        assert_eq!(
            (statistics.retained, statistics.newest, statistics.lost),
            (2, Some(2), 0)
        );
        assert_eq!(windows.get(seq - 1).is_ok(), seq == 3);
    }
    assert_eq!(windows.index.lock().all().0.len(), 3);
    commit(&windows, 9, 1);
    assert_eq!(
        (numbers(&windows), windows.statistics().lost),
        (vec![2, 9], 1)
    );
    page(10);
    // The next daemon does not know why the window was closed, and keeps the window for all
    // clients.
    let again = open(directory.path());
    assert_eq!((numbers(&again), again.last_seq()), (vec![2, 9, 10], 10));
    let again = again.get(10).unwrap().open().unwrap().head.closed_by;
    assert_eq!(again, ClosedBy::Request);
}

/// A holder reads each window, however fast collectors are. Clients do not see the windows that are
/// kept only for a holder.
#[test]
fn held_windows_stay_until_their_holders_have_used_them() {
    let directory = directory();
    let windows = open(directory.path());
    (1..=4).for_each(|seq| drop(commit(&windows, seq, 1)));
    windows.hold("a", Some(1));
    windows.hold("b", Some(0));
    windows.acknowledge(3, None).unwrap();
    let next = |windows: &Windows, seq| windows.next_after(seq).map(|entry| entry.seq);
    assert_eq!(
        (
            numbers(&windows),
            windows.statistics().retained,
            windows.untaken().len()
        ),
        (vec![4], 1, 1)
    );
    assert_eq!(
        (next(&windows, 0), next(&windows, 1), next(&windows, 4)),
        (Some(1), Some(2), None)
    );
    windows.hold("b", Some(2));
    assert_eq!(
        (next(&windows, 0), numbers(&windows)),
        (Some(2), vec![4]),
        "a has used one window"
    );
    assert_eq!(windows.get(1).unwrap_err(), Missing::Acknowledged);

    // After a start, no window has a holder, and no removed window reappears.
    let again = open(directory.path());
    assert_eq!(
        (next(&again, 0), numbers(&again), again.statistics().lost),
        (Some(2), vec![4], 0)
    );
    again.hold("a", Some(3));
    assert_eq!((next(&again, 0), again.stored().len()), (Some(4), 1));
    again.acknowledge(4, None).unwrap();
    again.hold("a", None);
    assert_eq!(
        (next(&again, 0), again.newest().map(|newest| newest.seq())),
        (None, Some(4))
    );
}

/// Limits remove acknowledged windows that a holder keeps, and these do not count as lost.
#[test]
fn limits_remove_held_windows_that_no_client_needs() {
    let directory = directory();
    let windows = open(directory.path());
    let collectors = vec!["c".to_owned()];
    windows.set_limits(RetentionLimits {
        retain: 3,
        collectors,
        ..RetentionLimits::default()
    });
    windows.hold("a", Some(0));
    for seq in 1..=5 {
        commit(&windows, seq, 1);
        windows.acknowledge(seq, Some("c")).unwrap();
    }
    assert_eq!(
        (
            windows.next_after(0).map(|entry| entry.seq),
            windows.statistics().lost
        ),
        (Some(3), 0)
    );
    assert!(numbers(&windows).is_empty());
}
