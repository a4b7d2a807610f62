//! The log against a loss of power: files that were not synced are as they were before, cut off, or missing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::file::head::ClosedBy;
use crate::log::segment::{self, FULL};
use crate::retention::Limits;
use crate::store::WindowStore;
use crate::windows::Windows;
use crate::windows::tests::model::view;
use crate::windows::tests::scene::{Operation, Scene, operation};
use crate::windows::tests::{commit, directory, numbers};

type Files = BTreeMap<String, Vec<u8>>;

fn files(path: &Path) -> Files {
    let entries = fs::read_dir(path).into_iter().flatten().flatten().filter(|entry| entry.path().is_file());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

fn store(root: &Path, boot: &str) -> WindowStore {
    WindowStore::open(root.to_owned(), boot, u64::MAX, 0)
}

/// Puts the files back as they may be after a loss of power, `choices` chooses for each.
fn lose_power(path: &Path, before: &Files, choices: &[u8]) {
    let after = files(path);
    let mut choices = choices.iter().cycle();
    for name in before.keys().chain(after.keys()) {
        let (old, new) = (before.get(name), after.get(name));
        let content = match (choices.next().unwrap() % 3, new) {
            (0, _) => old.cloned(),
            (1, Some(new)) if old != Some(new) => Some(new[..new.len() / 2].to_vec()),
            _ => new.cloned(),
        };
        let path = path.join(name);
        match content {
            Some(content) => fs::write(path, content).unwrap(),
            None => drop(fs::remove_file(path)),
        }
    }
}

fn is_simple(operation: &Operation) -> bool {
    use Operation::*;
    matches!(operation, Commit { .. } | Take { .. } | Acknowledge { .. } | SetLimits(_) | DropOldest)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_loss_of_power_changes_nothing(
        first in vec(operation().prop_filter("changes files", is_simple), 0..20),
        then in vec(operation().prop_filter("changes files", is_simple), 1..30),
        choices in vec(any::<u8>(), 1..40),
    ) {
        let directory = directory();
        let root = directory.path();
        let opened = store(root, "one");
        let mut scene = Scene::new(root.join("p"));
        scene.windows = opened.of("p");
        first.iter().for_each(|operation| scene.simple(operation));
        // The file system has written these files, and none since.
        let before = files(&scene.path);
        then.iter().for_each(|operation| scene.simple(operation));
        // What is answered is on disk; what is not answered may be, since it shares the write.
        commit(&opened.of("q"), 1, 1);
        lose_power(&scene.path, &before, &choices);
        let opened = store(root, "two");
        scene.windows = opened.of("p");
        scene.windows.set_limits(scene.model.limits.clone());
        prop_assert_eq!(view(&scene.windows), scene.model.view());
        prop_assert_eq!(numbers(&opened.of("q")), [1]);
    }
}

/// A window that was answered is there although its file is not, and nobody has waited for anything later.
#[test]
fn a_window_needs_nothing_but_its_own_record() {
    let directory = directory();
    let opened = store(directory.path(), "one");
    for probe in ["a", "b"] {
        commit(&opened.of(probe), 7, 5);
        fs::remove_dir_all(directory.path().join(probe)).unwrap();
    }
    // After a kill the files are as they were: somebody has removed them.
    let again = store(directory.path(), "one");
    assert_eq!(numbers(&again.of("a")), [0; 0]);
    drop(again);

    let opened = store(directory.path(), "one");
    for probe in ["a", "b"] {
        commit(&opened.of(probe), 8, 5);
        fs::remove_dir_all(directory.path().join(probe)).unwrap();
    }
    opened.remove("b");
    commit(&opened.of("c"), 1, 1);
    let opened = store(directory.path(), "two");
    assert_eq!([numbers(&opened.of("a")), numbers(&opened.of("b"))], [vec![8], vec![]]);
    assert!(opened.of("a").get(8).unwrap().open().is_ok());
    drop(opened);

    // A start has used the log and forgotten it: what goes later is not brought back.
    fs::remove_dir_all(directory.path().join("a")).unwrap();
    let opened = store(directory.path(), "three");
    assert_eq!(numbers(&opened.of("a")), [0; 0]);
}

#[test]
fn a_log_that_was_cut_off_gives_what_is_before_the_end() {
    let directory = directory();
    let opened = store(directory.path(), "one");
    for seq in 1..=3 {
        commit(&opened.of("p"), seq, 5);
    }
    fs::remove_dir_all(directory.path().join("p")).unwrap();
    let path = segment::path(directory.path(), 0);
    let mut log = fs::read(&path).unwrap();
    let last = log.windows(6).rposition(|bytes| bytes == b"tpwind").unwrap();
    log[last + 50] ^= 1;
    fs::write(path, log).unwrap();
    assert_eq!(numbers(&store(directory.path(), "two").of("p")), [1, 2]);
}

/// Windows that a version without a log has written are newer than the log.
#[test]
fn an_older_log_is_not_used() {
    let directory = directory();
    let opened = store(directory.path(), "one");
    let windows = opened.of("p");
    for seq in 1..=3 {
        commit(&windows, seq, 5);
    }
    drop((windows, opened));
    let earlier = Windows::open(directory.path().join("p"));
    commit(&earlier, 4, 5);
    earlier.acknowledge(3, None).unwrap();
    let windows = store(directory.path(), "two").of("p");
    assert_eq!((numbers(&windows), windows.last_seq()), (vec![4], 4));
}

#[test]
fn a_log_that_can_not_be_written_costs_no_window() {
    let directory = directory();
    let opened = store(directory.path(), "one");
    commit(&opened.of("p"), 1, 5);
    let path = segment::path(directory.path(), 0);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    for seq in 2..=4 {
        commit(&opened.of("p"), seq, 5);
    }
    opened.of("p").acknowledge(1, None).unwrap();
    fs::remove_dir(&path).unwrap();
    assert_eq!(numbers(&store(directory.path(), "two").of("p")), [2, 3, 4]);
}

#[test]
fn segments_are_used_again_and_many_writers_share_them() {
    let directory = directory();
    let opened = store(directory.path(), "one");
    let (size, writers) = (16_000, 4);
    let rounds = 3 * FULL / (12 * size as u64) / writers;
    // A writer far ahead of the others would have its last windows in a segment that is used again.
    let round = Barrier::new(writers as usize);
    thread::scope(|scope| {
        for writer in 0..writers {
            let (opened, round) = (&opened, &round);
            scope.spawn(move || {
                let windows = opened.of(&format!("p{writer}"));
                windows.set_limits(Limits { retain: 5, taken_counts: true, ..Limits::default() });
                for seq in 1..=rounds {
                    round.wait();
                    commit(&windows, seq, size);
                    windows.set_taken(seq);
                }
            });
        }
    });
    let logs = files(directory.path()).into_iter().filter(|(name, _)| name.starts_with(".log-"));
    let sizes: Vec<usize> = logs.map(|(_, bytes)| bytes.len()).collect();
    assert!(sizes.len() == 2 && sizes.iter().all(|size| *size as u64 <= 3 * FULL), "{sizes:?}");
    commit(&opened.of("q"), 1, 1);
    let kept = |opened: &WindowStore| -> Vec<Vec<u64>> {
        (0..writers).map(|writer| numbers(&opened.of(&format!("p{writer}")))).collect()
    };
    let known = kept(&opened);
    assert!(known.iter().all(|numbers| numbers.len() == 5), "{known:?}");
    // What the last segments hold may be gone.
    for writer in 0..writers {
        for seq in rounds - 2..=rounds {
            fs::remove_file(directory.path().join(format!("p{writer}/{seq}.taken"))).unwrap();
        }
    }
    assert_eq!(kept(&store(directory.path(), "two")), known);
}

#[test]
fn windows_that_are_too_long_for_the_log_are_synced_by_themselves() {
    let directory = directory();
    let opened = store(directory.path(), "one");
    commit(&opened.of("p"), 1, 100_000);
    let before = files(&directory.path().join("p"));
    commit(&opened.of("p"), 2, 5);
    commit(&opened.of("p"), 3, 100_000);
    commit(&opened.of("q"), 1, 1);
    let long = |name: &str| files(&directory.path().join("p")).remove(name).unwrap();
    let third = long("3.window");
    lose_power(&directory.path().join("p"), &before, &[0]);
    // The sync of the file has made it last.
    fs::write(directory.path().join("p/3.window"), third).unwrap();
    let windows = store(directory.path(), "two").of("p");
    assert_eq!(numbers(&windows), [1, 2, 3]);
    assert!((1..=3).all(|seq| windows.get(seq).unwrap().open().is_ok()));
    assert!(windows.untaken().iter().all(|window| window.closed_by == ClosedBy::Read));
}
