//! A reader gets the written content back.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use twinprobe_ebpf_common::{Member, Shape};

use super::*;
use crate::body::stored::WindowError;

#[test]
fn a_window_is_read_as_it_was_written() {
    let directory = directory();
    let windows = open(directory.path());
    let head = head(7, ClosedBy::Request, 3);
    let nested = RawTable {
        inner: vec![rows(3, 2), RawTable::default(), rows(4, 1)],
        ..rows(2, 3)
    };
    let mut writer = windows.write(&head).unwrap();
    writer.rows(1, &nested).unwrap();
    writer.rows(0, &rows(1, 1000)).unwrap();
    writer.rows(1, &rows(5, 1)).unwrap();
    writer.rows(0, &RawTable::default()).unwrap();
    assert!(
        writer.rows(4, &rows(5, 1)).is_err(),
        "there is no such metric, and so no ages of it"
    );
    let window = writer.commit().unwrap();
    assert_eq!(
        (window.seq(), window.is_file, &*window.instance),
        (7, false, "4f0c")
    );
    assert_eq!(
        (&window.entry.start, &window.entry.end),
        (&head.window.start, &head.window.end)
    );

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
fn a_large_window_is_a_file_of_the_daemon_alone() {
    let directory = directory();
    let windows = open(directory.path());
    let window = commit(&windows, 1, 100_000);
    assert_eq!(bodies(directory.path()), [window.id.to_string()]);
    let path = directory
        .path()
        .join(crate::BODIES)
        .join(window.id.to_string());
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(
        (metadata.permissions().mode() & 0o777, metadata.len()),
        (0o600, window.entry.bytes)
    );
    assert_eq!(
        fs::metadata(path.parent().unwrap())
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o700
    );
    assert_eq!(
        fs::metadata(windows.database.path())
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
    assert_eq!(
        window.open().unwrap().chunk(0, 0).unwrap(),
        Some(rows(1, 100_000))
    );
}

#[test]
fn types_may_be_as_deep_as_btf_lets_them() {
    let mut value = Layout::unsigned(8);
    for _ in 0..40 {
        let member = Member {
            name: "m".into(),
            bit_offset: 0,
            bitfield: None,
            layout: value,
        };
        value = Layout {
            size: 8,
            shape: Shape::Struct(vec![member]),
            render: None,
        };
    }
    let mut head = head(1, ClosedBy::Read, 0);
    let deep = TableLayout {
        value,
        ..(*layout(MapKind::Hash, None)).clone()
    };
    head.metrics[0].layout = Arc::new(deep);
    let directory = directory();
    let windows = open(directory.path());
    let window = windows.write(&head).unwrap().commit().unwrap();
    assert_eq!(*window.open().unwrap().head, head);
}

#[test]
fn a_window_is_read_to_its_end_while_it_is_acknowledged() {
    let directory = directory();
    let windows = open(directory.path());
    for (seq, size) in [(1, 50_000), (3, 50)] {
        let window = commit(&windows, seq, size);
        commit(&windows, seq + 1, 1);
        let reader = window.open().unwrap();
        windows.acknowledge(seq + 1, None).unwrap();
        assert_eq!(bodies(directory.path()), [""; 0]);
        assert!(matches!(window.open(), Err(WindowError::Gone)));
        assert_eq!(reader.chunk(0, 0).unwrap(), Some(rows(seq, size)));
    }
    assert_eq!(
        windows.statistics().lost,
        0,
        "what was acknowledged is not lost"
    );
}

#[test]
fn what_is_not_committed_leaves_nothing() {
    let directory = directory();
    let windows = open(directory.path());
    let mut writer = windows.write(&head(1, ClosedBy::Read, 0)).unwrap();
    writer.rows(0, &rows(1, 100_000)).unwrap();
    assert_eq!(bodies(directory.path()).len(), 1);
    drop(writer);
    assert_eq!(bodies(directory.path()), [""; 0]);
    assert!(!windows.contains(1));
    commit(&windows, 1, 1);
    assert!(windows.contains(1));
    let again = windows.write(&head(1, ClosedBy::Read, 0));
    assert_eq!(again.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
}

/// A killed daemon leaves files that no window names yet, or no longer names.
#[test]
fn bodies_without_a_window_go_at_a_start() {
    let directory = directory();
    let window = commit(&open(directory.path()), 1, 50_000);
    let orphan = directory
        .path()
        .join(crate::BODIES)
        .join((window.id + 7).to_string());
    fs::write(&orphan, "half").unwrap();
    let windows = open(directory.path());
    assert_eq!(bodies(directory.path()), [window.id.to_string()]);
    let next = commit(&windows, 2, 50_000);
    assert!(
        next.id > window.id + 7,
        "the number of a file that may come back is not used"
    );
}
