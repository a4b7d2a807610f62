//! Windows that are damaged or can't be read: the daemon reports them, leaves other windows
//! unchanged, and overwrites nothing.

use std::fs;
use std::os::unix::fs::symlink;

use sha2::{Digest as _, Sha256};

use super::scene::{damage, put_body};
use super::*;
use crate::body::stored::{BodySource as _, WindowError};
use crate::body::verified::FileState;
use crate::retention::{Missing, RetentionLimits};

/// Returns a body of a later version. Only its magic, version and digest have the form of this
/// version.
fn newer() -> Vec<u8> {
    let mut bytes = b"tpwind77something new".to_vec();
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest);
    bytes
}

#[test]
fn a_body_with_any_byte_wrong_or_missing_is_set_aside_and_the_rest_is_intact() {
    let directory = directory();
    for size in [2, 6_000] {
        let windows = open(directory.path());
        let length = commit(&windows, windows.last_seq() + 1, size).entry.bytes;
        windows.acknowledge(windows.last_seq(), None).unwrap();
        for byte in (0..length).step_by(usize::try_from(length / 100).unwrap().max(1)) {
            let (lost, seq) = (windows.statistics().lost, windows.last_seq() + 1);
            let window = commit(&windows, seq, size);
            damage(directory.path(), &window, byte as usize);
            assert!(
                matches!(window.open(), Err(WindowError::Damaged(_))),
                "byte {byte}"
            );
            assert!(matches!(
                window.open(),
                Err(WindowError::Gone | WindowError::Damaged(_))
            ));
            assert_eq!(windows.get(seq).unwrap_err(), Missing::Lost);
            let statistics = windows.statistics();
            assert_eq!((statistics.lost, statistics.retained), (lost + 1, 0));
        }
    }
}

#[test]
fn a_large_body_is_verified_once_and_again_after_a_change() {
    let directory = directory();
    let windows = open(directory.path());
    let window = commit(&windows, 1, 6_000);
    let state = || FileState::of(&windows.content(&window).unwrap()).unwrap();
    // A file that was just written is not known yet.
    while !windows.bodies.verified.knows(window.id, state()) {
        drop(window.open_at_once(u64::MAX).unwrap());
        std::thread::yield_now();
    }
    let read = || Some(window.open_at_once(u64::MAX).ok()?.table(0).unwrap());
    assert_eq!(read(), Some(rows(1, 6_000)));
    damage(directory.path(), &window, 50_000);
    assert_eq!(read(), None);
    windows.acknowledge(1, None).unwrap();
    commit(&windows, 2, 2);
    assert!(
        !windows.bodies.verified.has(window.id),
        "it is forgotten with its window"
    );
}

#[test]
fn what_is_no_body_is_set_aside() {
    let directory = directory();
    let windows = open(directory.path());
    let whole = bytes(&commit(&windows, 1, 2));
    let cases: [&[u8]; 6] = [
        b"",
        &whole[..1],
        &whole[..whole.len() - 1],
        &[&whole[..], b"\0"].concat(),
        &whole,
        &[0xff; 300],
    ];
    for (seq, bytes) in (2..).zip(cases) {
        put_body(directory.path(), &commit(&windows, seq, 2), bytes);
        let error = windows.get(seq).unwrap().open().unwrap_err();
        assert!(matches!(error, WindowError::Damaged(_)), "{seq}: {error}");
    }
    assert_eq!(
        (numbers(&windows), windows.statistics().damaged),
        (vec![1], 6)
    );
    let again = open(directory.path());
    assert_eq!(
        (again.statistics(), again.last_seq()),
        (windows.statistics(), 7)
    );
}

#[test]
fn a_row_that_is_not_what_was_written_is_set_aside_at_the_next_start() {
    for column in [
        "seq = seq + 100",
        "seq = 1",
        "form = 1",
        "form = 9",
        "start = 'x'",
        "lost = 7",
        "instance = ''",
    ] {
        let directory = directory();
        let windows = open(directory.path());
        (1..=3).for_each(|seq| drop(commit(&windows, seq, 2)));
        drop(windows);
        tamper(
            directory.path(),
            &format!("UPDATE windows SET {column} WHERE seq = 2"),
        );
        for _ in 0..2 {
            let windows = open(directory.path());
            assert_eq!(numbers(&windows), [1, 3], "{column}");
            assert_eq!(windows.last_seq(), 3, "{column}");
            assert_eq!(
                windows.get(3).unwrap().open().unwrap().chunk(0, 0).unwrap(),
                Some(rows(3, 2))
            );
        }
    }
}

#[test]
fn a_row_that_has_vanished_counts_as_damaged_after_an_end_in_order() {
    let directory = directory();
    let windows = open(directory.path());
    (1..=4).for_each(|seq| drop(commit(&windows, seq, 2)));
    windows.save();
    drop(windows);
    tamper(directory.path(), "DELETE FROM windows WHERE seq > 2");
    let windows = open(directory.path());
    let statistics = windows.statistics();
    assert_eq!((numbers(&windows), windows.last_seq()), (vec![1, 2], 4));
    assert_eq!((statistics.lost, statistics.damaged), (2, 2));
    assert_eq!(
        (windows.get(4).unwrap_err(), windows.unreported_lost(5)),
        (Missing::Lost, 2)
    );
    drop(commit(&windows, 5, 2));
    drop(windows);
    let windows = open(directory.path());
    assert_eq!(
        (numbers(&windows), windows.statistics().damaged),
        (vec![1, 2, 5], 2)
    );
}

#[test]
fn a_large_body_that_is_gone_or_damaged_costs_its_window() {
    let directory = directory();
    let windows = open(directory.path());
    let windows_of: Vec<_> = (1..=4).map(|seq| commit(&windows, seq, 6_000)).collect();
    let file = |at: usize| {
        directory
            .path()
            .join(crate::BODIES)
            .join(windows_of[at].id.to_string())
    };
    fs::write(file(0), b"tpwind01").unwrap();
    assert!(matches!(windows_of[0].open(), Err(WindowError::Damaged(_))));
    fs::remove_file(file(1)).unwrap();
    assert!(
        matches!(windows_of[1].open(), Err(WindowError::Gone)),
        "somebody else has removed it"
    );
    assert_eq!(
        (
            windows.list(0, ListBounds::default()).lost_windows,
            numbers(&windows)
        ),
        (2, vec![3, 4])
    );
    fs::remove_file(file(2)).unwrap();
    let again = open(directory.path());
    assert_eq!(
        (
            again.list(0, ListBounds::default()).lost_windows,
            numbers(&again),
            again.last_seq()
        ),
        (3, vec![4], 4)
    );
}

#[test]
fn a_damaged_state_is_reported_and_the_windows_say_what_they_can() {
    let directory = directory();
    let windows = open(directory.path());
    windows.set_limits(RetentionLimits {
        retain: 3,
        collectors: vec!["a".to_owned()],
        ..RetentionLimits::default()
    });
    (4..=9).for_each(|seq| drop(commit(&windows, seq, 1)));
    windows.set_taken(8);
    windows.acknowledge(7, None).unwrap();
    assert_eq!(
        (numbers(&windows), windows.statistics().lost),
        (vec![8, 9], 3)
    );
    drop(windows);
    tamper(
        directory.path(),
        "UPDATE series SET state = substr(state, 2)",
    );
    let windows = open(directory.path());
    assert_eq!((numbers(&windows), windows.last_seq()), (vec![8, 9], 9));
    assert_eq!(windows.untaken().len(), 1, "8 was taken");
}

#[test]
fn a_few_damaged_windows_are_kept() {
    let directory = directory();
    let windows = open(directory.path());
    for seq in 1..=12 {
        let window = commit(&windows, seq, 1);
        damage(directory.path(), &window, 9);
        assert!(window.open().is_err());
    }
    let windows = open(directory.path());
    let statistics = windows.statistics();
    assert_eq!(
        (
            statistics.damaged,
            windows.list(0, ListBounds::default()).lost_windows,
            windows.last_seq()
        ),
        (12, 12, 12)
    );
    assert_eq!(windows.index.lock().all().0.len(), 8);
}

#[test]
fn a_damaged_window_that_its_maps_still_hold_is_stored_again() {
    let directory = directory();
    let windows = open(directory.path());
    commit(&windows, 1, 1);
    let window = commit(&windows, 2, 1);
    damage(directory.path(), &window, 9);
    assert!(window.open().is_err());
    assert_eq!((numbers(&windows), windows.statistics().lost), (vec![1], 1));
    assert!(
        windows.write(&head(1, ClosedBy::Read, 0)).is_err(),
        "1 is as it was"
    );
    assert_eq!(
        (windows.unreported_lost(3), windows.unreported_lost(2)),
        (1, 0)
    );
    commit(&windows, 2, 3);
    for windows in [windows, open(directory.path())] {
        assert_eq!(
            (numbers(&windows), windows.statistics().lost),
            (vec![1, 2], 0)
        );
    }
}

#[test]
fn a_window_that_can_not_be_read_is_left_alone_and_its_sums_are_waited_for() {
    let directory = directory();
    let windows = open(directory.path());
    let [_, large, later] =
        [(1, 1), (2, 6_000), (3, 1)].map(|(seq, size)| commit(&windows, seq, size));
    put_body(directory.path(), &later, &newer());
    assert!(matches!(later.open(), Err(WindowError::Newer(_))));
    let error = windows.base(None).unwrap_err().to_string();
    assert!(
        error.contains("until they can: window 3: the window can't be read: it has format 77"),
        "{error}"
    );
    assert_eq!(
        (
            windows.statistics().unreadable,
            windows.statistics().damaged
        ),
        (1, 0)
    );
    // A link to itself can't be opened even by root.
    let path = directory
        .path()
        .join(crate::BODIES)
        .join(large.id.to_string());
    let aside = directory.path().join("aside");
    fs::rename(&path, &aside).unwrap();
    symlink(&path, &path).unwrap();
    assert!(matches!(large.open(), Err(WindowError::Io(_))));
    assert_eq!(
        (windows.statistics().unreadable, numbers(&windows)),
        (2, vec![1, 2, 3])
    );
    fs::rename(&aside, &path).unwrap();
    assert!(large.open().is_ok());
    assert_eq!(windows.statistics().unreadable, 1);
}

#[test]
fn a_damaged_baseline_is_reported_and_the_window_before_counts() {
    let directory = directory();
    let windows = open(directory.path());
    commit(&windows, 1, 3);
    windows.write_baseline((2, 7), &[], Durable::Now).unwrap();
    windows.pass_baseline_on(Some(7), 8).unwrap();
    windows.forget_other_baselines(8);
    assert_eq!(windows.base(Some(8)).unwrap().unwrap().parts, []);
    tamper(directory.path(), "UPDATE baselines SET body = x'00'");
    for windows in [windows, open(directory.path())] {
        let base = windows.base(Some(8)).unwrap().unwrap();
        assert_eq!(
            (base.through, base.parts.len()),
            (1, 2),
            "the window before it"
        );
    }
}
