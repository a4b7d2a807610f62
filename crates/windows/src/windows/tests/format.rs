//! A reader gets what was written, or an error.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use twinprobe_ebpf_common::{Member, Shape};

use super::*;
use crate::file::stored::WindowError;
use crate::retention::{Limits, Missing};

#[test]
fn a_window_is_read_as_it_was_written() {
    let directory = directory();
    let windows = Windows::open(directory.path().join("windows/p"));
    let head = head(7, ClosedBy::Request, 3);
    let nested = RawTable { inner: vec![rows(3, 2), RawTable::default(), rows(4, 1)], ..rows(2, 3) };
    let mut writer = windows.write(&head).unwrap();
    writer.rows(1, &nested).unwrap();
    writer.rows(0, &rows(1, 1000)).unwrap();
    writer.rows(1, &rows(5, 1)).unwrap();
    writer.rows(0, &RawTable::default()).unwrap();
    assert!(writer.rows(4, &rows(5, 1)).is_err(), "there is no such metric, and so no ages of it");
    let window = writer.commit().unwrap();

    let path = directory.path().join("windows/p/7.window");
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    for made in [directory.path().join("windows"), directory.path().join("windows/p")] {
        assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700);
    }
    assert_eq!((window.seq(), window.entry.bytes), (7, metadata.len()));
    assert_eq!((&window.entry.start, &window.entry.end), (&head.window.start, &head.window.end));

    let reader = window.open().unwrap();
    assert_eq!(*reader.head, head);
    assert_eq!(reader.head.metrics[1].direction, Direction::Egress);
    assert_eq!(reader.head.metrics[1].map, "map of b");
    assert_eq!(reader.chunk(0, 0).unwrap(), Some(rows(1, 1000)));
    assert_eq!(reader.chunk(0, 1).unwrap(), Some(RawTable::default()));
    assert_eq!(reader.chunk(0, 2).unwrap(), None);
    assert_eq!(reader.chunk(1, 0).unwrap(), Some(nested));
    assert_eq!(reader.chunk(1, 1).unwrap(), Some(rows(5, 1)));
    assert_eq!(reader.chunk(2, 0).unwrap(), None);
}

#[test]
fn types_may_be_as_deep_as_btf_lets_them() {
    let mut value = Layout::unsigned(8);
    for _ in 0..40 {
        let member = Member { name: "m".into(), bit_offset: 0, bitfield: None, layout: value };
        value = Layout { size: 8, shape: Shape::Struct(vec![member]), render: None };
    }
    let mut head = head(1, ClosedBy::Read, 0);
    let deep = TableLayout { value, ..(*layout(MapKind::Hash, None)).clone() };
    head.metrics[0].layout = Arc::new(deep);
    let directory = directory();
    let windows = Windows::open(directory.path().to_owned());
    let window = windows.write(&head).unwrap().commit().unwrap();
    assert_eq!(*window.open().unwrap().head, head);
}

#[test]
fn a_file_with_any_byte_wrong_or_missing_is_set_aside_and_the_rest_is_intact() {
    let directory = directory();
    let windows = Windows::open(directory.path().to_owned());
    for seq in 1..=3 {
        commit(&windows, seq, 2);
    }
    let path = directory.path().join("2.window");
    let whole = fs::read(&path).unwrap();
    let flipped = (0..whole.len()).map(|index| {
        let mut damaged = whole.clone();
        damaged[index] ^= 1 << (index % 8);
        damaged
    });
    let truncated = (0..whole.len()).map(|length| whole[..length].to_vec());
    let longer = [[&whole[..], b"\0"].concat()];
    for damaged in flipped.chain(truncated).chain(longer) {
        fs::write(&path, &damaged).unwrap();
        // The traces of the damaged window are removed, so that each case begins alike.
        let _ = fs::remove_file(directory.path().join("2.damaged"));
        let _ = fs::remove_file(directory.path().join("state.json"));
        let windows = Windows::open(directory.path().to_owned());
        assert_eq!(numbers(&windows), [1, 3]);
        assert_eq!(windows.get(2).unwrap_err(), Missing::Lost);
        assert_eq!(fs::read(directory.path().join("2.damaged")).unwrap(), damaged);
        let statistics = windows.statistics();
        assert_eq!((statistics.lost, statistics.damaged, windows.unreported_lost()), (1, 1, 1));
        assert_eq!(windows.get(3).unwrap().open().unwrap().chunk(0, 0).unwrap(), Some(rows(3, 2)));
    }
}

#[test]
fn a_file_that_is_damaged_later_is_set_aside_when_it_is_read() {
    let directory = directory();
    let windows = Windows::open(directory.path().to_owned());
    let first = commit(&windows, 1, 2);
    let second = commit(&windows, 2, 2);
    fs::write(directory.path().join("1.window"), b"tpwind01").unwrap();
    assert!(matches!(first.open(), Err(WindowError::Damaged(_))));
    assert!(matches!(first.open(), Err(WindowError::Gone)));
    assert_eq!(windows.get(1).unwrap_err(), Missing::Lost);
    assert_eq!(windows.list(0).lost_windows, 1);
    fs::remove_file(directory.path().join("2.window")).unwrap();
    assert!(matches!(second.open(), Err(WindowError::Gone)), "somebody else has removed it");
    assert_eq!((windows.list(0).lost_windows, windows.last_seq()), (2, 2));
    assert!(windows.newest().is_none());
    assert_eq!(files(directory.path()), ["1.damaged", "state.json"]);
    let again = Windows::open(directory.path().to_owned());
    assert_eq!((again.statistics(), again.last_seq()), (windows.statistics(), 2));
}

#[test]
fn a_damaged_state_is_set_aside_and_the_files_say_what_they_can() {
    let directory = directory();
    let windows = Windows::open(directory.path().to_owned());
    windows.set_limits(Limits { retain: 3, ..Limits::default() });
    for seq in 4..=9 {
        commit(&windows, seq, 1);
    }
    windows.set_taken(8);
    windows.acknowledge(7, None).unwrap();
    assert_eq!((numbers(&windows), windows.statistics().lost), (vec![8, 9], 3));
    let path = directory.path().join("state.json");
    let whole = fs::read(&path).unwrap();
    for index in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[index] ^= 1 << (index % 8);
        for damaged in [&flipped[..], &whole[..index]] {
            fs::write(&path, damaged).unwrap();
            let windows = Windows::open(directory.path().to_owned());
            assert_eq!((numbers(&windows), windows.last_seq()), (vec![8, 9], 9));
            assert_eq!(windows.untaken().len(), 1, "8 was taken");
            assert_eq!(fs::read(directory.path().join("state.damaged")).unwrap(), damaged);
        }
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(Windows::open(directory.path().to_owned()).statistics().lost, 3);
}

#[test]
fn a_few_damaged_files_are_kept() {
    let directory = directory();
    let windows = Windows::open(directory.path().to_owned());
    for seq in 1..=12 {
        let window = commit(&windows, seq, 1);
        fs::write(directory.path().join(format!("{seq}.window")), b"").unwrap();
        assert!(window.open().is_err());
    }
    assert_eq!(files(directory.path()).iter().filter(|name| name.ends_with(".damaged")).count(), 8);
    for seq in 13..=20 {
        commit(&windows, seq, 1);
        fs::write(directory.path().join(format!("{seq}.window")), b"").unwrap();
    }
    let windows = Windows::open(directory.path().to_owned());
    assert_eq!(
        (windows.statistics().damaged, windows.list(0).lost_windows, windows.last_seq()),
        (20, 20, 20)
    );
    let mut expected: Vec<String> = (13..=20).map(|seq| format!("{seq}.damaged")).collect();
    expected.push("state.json".into());
    assert_eq!(files(directory.path()), expected);
}

#[test]
fn a_window_is_read_to_its_end_while_it_is_acknowledged() {
    let directory = directory();
    let windows = Windows::open(directory.path().to_owned());
    let window = commit(&windows, 1, 5000);
    commit(&windows, 2, 1);
    let reader = window.open().unwrap();
    windows.acknowledge(2, None).unwrap();
    assert!(!directory.path().join("1.window").exists());
    assert!(matches!(window.open(), Err(WindowError::Gone)));
    assert_eq!(reader.chunk(0, 0).unwrap(), Some(rows(1, 5000)));
    assert_eq!(windows.statistics().lost, 0, "what was acknowledged is not lost");
}

#[test]
fn what_is_not_committed_leaves_nothing() {
    let directory = directory();
    let windows = Windows::open(directory.path().to_owned());
    let mut writer = windows.write(&head(1, ClosedBy::Read, 0)).unwrap();
    writer.rows(0, &rows(1, 100_000)).unwrap();
    assert_eq!(files(directory.path()).len(), 1);
    drop(writer);
    assert_eq!(files(directory.path()), [""; 0]);
    assert!(!windows.contains(1));
    commit(&windows, 1, 1);
    assert!(windows.contains(1));
    let again = windows.write(&head(1, ClosedBy::Read, 0));
    assert_eq!(again.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
}

#[test]
fn a_damaged_window_that_its_maps_still_hold_is_stored_again() {
    let directory = directory();
    let windows = Windows::open(directory.path().to_owned());
    commit(&windows, 1, 1);
    commit(&windows, 2, 1);
    fs::write(directory.path().join("2.window"), b"").unwrap();
    let windows = Windows::open(directory.path().to_owned());
    windows.reclaim(1);
    assert_eq!((numbers(&windows), windows.statistics().lost), (vec![1], 1), "1 is as it was");
    windows.reclaim(2);
    commit(&windows, 2, 3);
    for windows in [windows, Windows::open(directory.path().to_owned())] {
        assert_eq!((numbers(&windows), windows.statistics().lost), (vec![1, 2], 0));
    }
}
