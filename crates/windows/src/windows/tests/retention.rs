//! Cases that the model does not cover: clients that wait, full disks, several probes.

use std::collections::BTreeSet;

use super::*;
use crate::file::part::{Part, PartContent};
use crate::retention::{AckError, Limits, Missing};
use crate::store::WindowStore;

#[test]
fn those_who_wait_see_the_newest_window() {
    let directory = directory();
    let windows = Windows::open(directory.path().to_owned());
    let mut changed = windows.changed();
    assert!(!changed.has_changed().unwrap());
    commit(&windows, 1, 1);
    assert!(changed.has_changed().unwrap());
    assert_eq!(*changed.borrow_and_update(), 1);
    assert_eq!(*Windows::open(directory.path().to_owned()).changed().borrow(), 1);
}

#[test]
fn a_full_disk_does_not_keep_windows_from_making_room() {
    let directory = directory();
    let windows = Windows::open(directory.path().to_owned());
    for seq in 1..=6 {
        commit(&windows, seq, 1);
    }
    windows.directory.faults.set_full(true);
    assert_eq!(
        windows.write(&head(7, ClosedBy::Read, 0)).unwrap_err().kind(),
        std::io::ErrorKind::StorageFull
    );
    windows.acknowledge(2, None).unwrap();
    assert!(windows.drop_oldest());
    assert_eq!(numbers(&windows), [4, 5, 6]);
    let state = ["3.lost", "4.window", "5.window", "6.window", "state.json"];
    assert_eq!(files(directory.path()), state, "there is a file for what was lost");

    let again = Windows::open(directory.path().to_owned());
    assert_eq!((numbers(&again), again.list(2).lost_windows), (vec![4, 5, 6], 1));
    assert_eq!(files(directory.path()), state.split_at(1).1, "now it is written down");
    assert_eq!(
        (again.get(1).unwrap_err(), again.get(3).unwrap_err()),
        (Missing::Acknowledged, Missing::Lost)
    );

    windows.acknowledge(6, None).unwrap();
    assert_eq!(files(directory.path()), ["6.acked", "state.json"]);
    let again = Windows::open(directory.path().to_owned());
    assert_eq!((numbers(&again), again.newest().unwrap().seq(), again.last_seq()), (vec![], 6, 6));
}

#[test]
fn only_configured_collectors_acknowledge() {
    let directory = directory();
    let windows = Windows::open(directory.path().to_owned());
    commit(&windows, 1, 1);
    let unknown = Err(AckError::UnknownCollector("a".into()));
    assert_eq!(windows.acknowledge(9, Some("a")), unknown);
    windows.set_limits(Limits { collectors: vec!["a".into(), "b".into()], ..Limits::default() });
    assert_eq!(windows.acknowledge(9, Some("a")), Err(AckError::Beyond { newest: 1 }));
    windows.acknowledge(1, Some("a")).unwrap();
    assert_eq!(
        (windows.acknowledged("a"), windows.acknowledged("b"), numbers(&windows)),
        (Ok(1), Ok(0), vec![1])
    );
    windows.set_limits(Limits { collectors: vec!["a".into()], ..Limits::default() });
    assert_eq!(numbers(&windows), [0; 0], "nobody else has to");
}

#[test]
fn over_the_budget_the_oldest_of_all_probes_goes_and_each_newest_stays() {
    let directory = directory();
    let root = directory.path().join("windows");
    let store = WindowStore::open(root.clone(), "boot", 0, 0);
    let (a, b) = (store.of("a"), store.of("b"));
    let size = [(&a, 1), (&b, 2), (&a, 3), (&b, 4), (&b, 5)]
        .map(|(windows, seq)| commit(windows, seq, 1).entry.bytes)[0];
    let limited = |windows| WindowStore::open(root.clone(), "boot", windows * size + size / 2, 0);
    let check = |budget, a: &[u64], b: &[u64]| {
        let store = limited(budget);
        let probes = ["a", "b"].map(|probe| store.of(probe));
        store.enforce();
        assert_eq!(probes.map(|windows| numbers(&windows)), [a, b]);
    };
    drop((a, b));
    check(5, &[1, 3], &[2, 4, 5]);
    check(4, &[3], &[2, 4, 5]);
    check(3, &[3], &[4, 5]);
    check(0, &[3], &[5]);
    let store = limited(0);
    assert_eq!((store.of("a").statistics().lost, store.of("b").statistics().lost), (1, 2));
    assert_eq!(store.statistics()["b"], store.of("b").statistics());
}

/// A client that reads slowly keeps no more on the disk than the budget, and loses nothing that is retained.
#[test]
fn slow_readers_keep_no_more_than_the_budget() {
    let directory = directory();
    let root = directory.path().to_owned();
    let sizes = (1..=4)
        .map(|seq| commit(&WindowStore::open(root.clone(), "boot", u64::MAX, 0).of("p"), seq, 1).entry.bytes);
    let size = sizes.max().unwrap();
    let store = WindowStore::open(root, "boot", 2 * size + size / 2, 0);
    let windows = store.of("p");
    let reader = |seq| Arc::new(windows.get(seq).unwrap().open().unwrap());
    let readers: Vec<_> = (1..=4).map(reader).collect();
    readers.iter().for_each(|reader| store.readers.add(reader));
    let readable = || {
        store.enforce();
        readers.iter().map(|reader| reader.chunk(0, 0).is_ok()).collect::<Vec<_>>()
    };
    windows.set_limits(Limits { retain: 2, ..Limits::default() });
    assert_eq!(readers.iter().map(|reader| reader.held()).collect::<Vec<_>>(), [size, size, 0, 0]);
    assert_eq!(readable(), [true; 4]);
    commit(&windows, 5, 1);
    assert_eq!(readable(), [false, true, true, true], "the file that was opened first is given up");
    assert_eq!(numbers(&windows), [4, 5]);
}

#[test]
fn damaged_files_and_sums_count_and_what_is_damaged_goes_first() {
    let directory = directory();
    let root = directory.path().join("windows");
    let windows = WindowStore::open(root.clone(), "boot", u64::MAX, 0).of("p");
    let size = commit(&windows, 1, 64).entry.bytes;
    (2..=4).for_each(|seq| drop(commit(&windows, seq, 64)));
    for seq in [1, 2] {
        let file = std::fs::File::options().append(true).open(root.join(format!("p/{seq}.window"))).unwrap();
        file.set_len(3 * size).unwrap();
        windows.get(seq).unwrap().open().unwrap_err();
    }
    let of_probe = || files(&root.join("p"));
    assert_eq!(of_probe(), ["1.damaged", "2.damaged", "3.window", "4.window", "state.json"]);
    let sums = |bytes: u64| {
        let layout = layout(MapKind::Hash, None);
        let rows = rows(1, bytes as usize / 12);
        let (direction, map, content) = (Direction::Ingress, "m".to_owned(), PartContent::Sum);
        vec![Part {
            direction,
            map,
            metric: None,
            content,
            through: 4,
            layout,
            rows,
            ages: Vec::new(),
            dropped: 0,
        }]
    };

    // Eight sizes are kept. The limit of the probe and that of all probes count alike, as does the next daemon.
    let limit = |bytes| windows.set_limits(Limits { bytes, ..Limits::default() });
    limit(8 * size);
    assert_eq!(of_probe().len(), 5);
    limit(8 * size - 1);
    assert_eq!(of_probe(), ["2.damaged", "3.window", "4.window", "state.json"]);
    let enforce = |budget| {
        let store = WindowStore::open(root.clone(), "boot", budget, 0);
        let windows = store.of("p");
        store.enforce();
        windows
    };
    enforce(5 * size);
    assert_eq!(of_probe(), ["2.damaged", "3.window", "4.window", "state.json"]);
    let windows = enforce(5 * size - 1);
    assert_eq!(
        (of_probe(), windows.statistics().lost),
        (vec!["3.window".into(), "4.window".into(), "state.json".into()], 2)
    );
    windows.write_baseline("p", 5, 7, &sums(2 * size)).unwrap();
    windows.set_limits(Limits { bytes: 3 * size, ..Limits::default() });
    assert_eq!(
        of_probe(),
        ["4.window", "5.7.baseline", "state.json"],
        "the sums are no smaller than two windows"
    );
    windows.forget_baseline(7);
    commit(&windows, 5, 64);
    assert_eq!(numbers(&windows), [4, 5], "the sums are gone");
}

/// Lists the directories of probes, beside which there is the log.
fn probes(root: &Path) -> Vec<String> {
    files(root).into_iter().filter(|name| !name.starts_with(".log-")).collect()
}

#[test]
fn a_removed_probe_leaves_nothing_and_nobody_brings_it_back() {
    let directory = directory();
    let store = WindowStore::open(directory.path().to_owned(), "boot", u64::MAX, 0);
    let windows = store.of("p");
    assert!(Arc::ptr_eq(&windows, &store.of("p")));
    commit(&windows, 1, 1);
    let writer = windows.write(&head(2, ClosedBy::Read, 0)).unwrap();
    store.remove("p");
    assert!(writer.commit().is_err());
    assert!(windows.write(&head(2, ClosedBy::Read, 0)).is_err());
    assert_eq!(probes(directory.path()), [""; 0]);
    assert_eq!(store.of("p").last_seq(), 0);

    for probe in ["p", "q", "r"] {
        commit(&store.of(probe), 1, 1);
    }
    let store = WindowStore::open(directory.path().to_owned(), "boot", u64::MAX, 0);
    store.remove("q");
    store.sweep(&BTreeSet::from(["p".to_owned()]));
    assert_eq!(probes(directory.path()), ["p"]);
    WindowStore::open(directory.path().join("none"), "boot", 0, 0).sweep(&BTreeSet::new());
}

/// A page needs the sums of a window only: its window goes with the next one, and drives out none that others wait for.
#[test]
fn windows_of_pages_take_nothing_from_collectors() {
    let directory = directory();
    let windows = Windows::open(directory.path().to_owned());
    windows.set_limits(Limits { retain: 2, ..Limits::default() });
    let page = |seq| windows.write(&head(seq, ClosedBy::Page, 0)).unwrap().commit().unwrap();
    commit(&windows, 1, 1);
    commit(&windows, 2, 1);
    for seq in 3..9 {
        page(seq);
        assert_eq!((numbers(&windows), windows.newest().unwrap().entry.seq), (vec![1, 2], seq));
        let statistics = windows.statistics();
        assert_eq!((statistics.retained, statistics.newest, statistics.lost), (2, Some(2), 0));
        assert_eq!(windows.get(seq - 1).is_ok(), seq == 3);
    }
    assert_eq!(files(directory.path()), ["1.window", "2.window", "8.window", "state.json"]);
    commit(&windows, 9, 1);
    assert_eq!((numbers(&windows), windows.statistics().lost), (vec![2, 9], 1));
    page(10);
    // The next daemon does not know what closed the window, and keeps it for everybody.
    let again = Windows::open(directory.path().to_owned());
    assert_eq!((numbers(&again), again.last_seq()), (vec![2, 9, 10], 10));
    let again = again.get(10).unwrap().open().unwrap().head.closed_by;
    assert_eq!(again, ClosedBy::Request);
}
