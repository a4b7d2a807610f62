//! Files that can't be read, or that a later version has written, are left alone and reported.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::*;
use crate::baseline::BaseError;
use crate::file::stored::WindowError;
use crate::retention::{AckError, Limits, Missing};

/// Makes a file of a later version, of which only the magic, the version and the digest are as today.
fn make_newer(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes.truncate(bytes.len() - 32);
    bytes[6..8].copy_from_slice(b"77");
    bytes.extend_from_slice(b"something new");
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest);
    fs::write(path, bytes).unwrap();
}

/// Makes opening the file fail, even for root.
fn make_unreadable(path: &Path, aside: &Path) {
    fs::rename(path, aside).unwrap();
    symlink(path, path).unwrap();
}

#[test]
fn a_window_that_can_not_be_read_is_left_alone() {
    let directory = directory();
    let (path, aside) = (directory.path().join("p"), directory.path().join("aside"));
    let windows = Windows::open(path.clone());
    (1..=5).for_each(|seq| drop(commit(&windows, seq, 3)));
    drop(windows);
    make_newer(&path.join("2.window"));
    make_unreadable(&path.join("3.window"), &aside);

    let windows = Windows::open(path.clone());
    assert_eq!(numbers(&windows), [1, 4, 5]);
    let statistics = windows.statistics();
    assert_eq!((statistics.unreadable, statistics.damaged, statistics.lost), (2, 0, 0));
    for seq in [2, 3] {
        assert_eq!(windows.get(seq).unwrap_err(), Missing::Unreadable);
    }
    windows.set_limits(Limits { retain: 1, ..Limits::default() });
    windows.acknowledge(5, None).unwrap();
    commit(&windows, 6, 3);
    assert_eq!(files(&path), ["2.window", "3.window", "6.window", "state.json"]);

    // The file can be read again, and its window was acknowledged with the others.
    fs::remove_file(path.join("3.window")).unwrap();
    fs::rename(&aside, path.join("3.window")).unwrap();
    assert_eq!(windows.get(3).unwrap_err(), Missing::Acknowledged);
    assert_eq!(windows.statistics().unreadable, 1);
    drop(windows);
    let windows = Windows::open(path.clone());
    assert_eq!((windows.last_seq(), windows.statistics().unreadable), (6, 1));
    assert_eq!(files(&path), ["2.window", "6.window", "state.json"]);
}

#[test]
fn sums_in_a_window_that_can_not_be_read_are_waited_for() {
    let directory = directory();
    let (path, aside) = (directory.path().join("p"), directory.path().join("aside"));
    let windows = Windows::open(path.clone());
    (1..=3).for_each(|seq| drop(commit(&windows, seq, 3)));
    drop(windows);
    make_unreadable(&path.join("3.window"), &aside);
    let windows = Windows::open(path.clone());
    assert!(matches!(windows.base(Some(1)), Err(BaseError::Unreadable { .. })));
    assert_eq!(windows.last_seq(), 3, "its number is taken");
    fs::remove_file(path.join("3.window")).unwrap();
    fs::rename(&aside, path.join("3.window")).unwrap();
    assert_eq!(windows.base(Some(1)).unwrap().unwrap().through, 3);
    assert_eq!(numbers(&windows), [1, 2, 3]);
    make_newer(&path.join("3.window"));
    let later = windows.base(Some(1)).unwrap_err().to_string();
    assert!(later.contains("until they can: window 3: it has format 77"), "{later}");
    drop(windows);

    // A damaged window is set aside, and the window before it counts.
    fs::write(path.join("3.window"), b"tpwind02").unwrap();
    let windows = Windows::open(path);
    assert_eq!(windows.base(Some(1)).unwrap().unwrap().through, 2);
}

#[test]
fn nothing_changes_while_the_state_can_not_be_read() {
    let directory = directory();
    let (path, aside) = (directory.path().join("p"), directory.path().join("aside"));
    let windows = Windows::open(path.clone());
    (1..=3).for_each(|seq| drop(commit(&windows, seq, 3)));
    windows.acknowledge(1, None).unwrap();
    let state = fs::read(path.join("state.json")).unwrap();
    drop(windows);
    let text = String::from_utf8(state.clone()).unwrap();
    let line = text.lines().next().unwrap().replace("\"version\":1", "\"version\":9");
    let digest: String = Sha256::digest(&line).iter().map(|byte| format!("{byte:02x}")).collect();
    let newer = format!("{line}\n{{\"sha256\":\"{digest}\"}}\n");
    for case in 0..2 {
        match case {
            0 => make_unreadable(&path.join("state.json"), &aside),
            _ => fs::write(path.join("state.json"), &newer).unwrap(),
        }
        let before = files(&path);
        let windows = Windows::open(path.clone());
        windows.set_limits(Limits { retain: 1, ..Limits::default() });
        assert_eq!(windows.acknowledge(3, None), Err(AckError::NotWritten(ErrorKind::Other)));
        windows.set_taken(3);
        assert!(!windows.drop_oldest());
        assert!(windows.write(&head(4, ClosedBy::Read, 0)).is_err());
        assert!(windows.write_baseline("p", 4, 1, &[]).is_err());
        assert!(matches!(windows.base(None), Err(BaseError::Blocked(_))));
        assert!(windows.get(3).unwrap().open().is_ok(), "what is there can be read");
        assert_eq!(files(&path), before, "case {case}");
        // A window whose file is damaged, or gone, meanwhile changes nothing either.
        let (window, file) = (windows.get(3).unwrap(), path.join("3.window"));
        let content = fs::read(&file).unwrap();
        fs::write(&file, b"tpwind02").unwrap();
        assert!(matches!(window.open(), Err(WindowError::Damaged(_))));
        assert_eq!(files(&path), before, "case {case}, damaged");
        assert_eq!(windows.get(3).unwrap_err(), Missing::Unreadable);
        assert_eq!(files(&path), before, "case {case}, looked at again");
        fs::write(&file, &content).unwrap();
        let window = windows.get(3).expect("it can be read again");
        fs::remove_file(&file).unwrap();
        assert!(matches!(window.open(), Err(WindowError::Gone)));
        fs::write(&file, &content).unwrap();
        assert_eq!(files(&path), before, "case {case}, gone");
        if case == 1 {
            assert_eq!(fs::read_to_string(path.join("state.json")).unwrap(), newer);
        }

        fs::remove_file(path.join("state.json")).unwrap();
        fs::write(path.join("state.json"), &state).unwrap();
        windows.acknowledge(2, None).unwrap();
        assert_eq!(numbers(&windows), [3], "what was to be retained holds now");
        windows.set_limits(Limits::default());
        drop(windows);
        fs::write(path.join("state.json"), &state).unwrap();
        let windows = Windows::open(path.clone());
        assert_eq!(windows.last_seq(), 3);
    }
}

#[test]
fn a_baseline_that_can_not_be_read_is_waited_for_or_set_aside() {
    let directory = directory();
    let (path, aside) = (directory.path().join("p"), directory.path().join("aside"));
    let windows = Windows::open(path.clone());
    commit(&windows, 1, 3);
    windows.write_baseline("p", 2, 7, &[]).unwrap();
    make_unreadable(&path.join("2.7.baseline"), &aside);
    assert!(matches!(windows.base(Some(7)), Err(BaseError::Unreadable { .. })));
    // A deployment that takes the place of this one finds the same baseline.
    fs::remove_file(path.join("2.7.baseline")).unwrap();
    fs::rename(&aside, path.join("2.7.baseline")).unwrap();
    windows.pass_baseline_on(Some(7), 8).unwrap();
    windows.forget_other_baselines(8);
    assert_eq!(windows.base(Some(8)).unwrap().unwrap().parts, []);
    fs::write(path.join("2.8.baseline"), b"tpbase01").unwrap();
    assert_eq!(windows.base(Some(8)).unwrap().unwrap().through, 1, "the window before it");
    assert_eq!(files(&path), ["1.window", "2.8.baseline.damaged", "state.json"]);
}
