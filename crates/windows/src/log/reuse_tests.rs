//! Files that are written again: nobody sees another content under a name or at a descriptor, also after a loss of power.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::file::head::ClosedBy;
use crate::log::log::Log;
use crate::log::record::BLOCK;
use crate::log::segment;
use crate::retention::Limits;
use crate::store::WindowStore;
use crate::windows::Windows;
use crate::windows::tests::model::view;
use crate::windows::tests::scene::{Operation, Scene, operation};
use crate::windows::tests::{commit, directory, numbers};

/// Counts the descriptors of this process that lead to the file.
fn is_unshared(file: &File) -> bool {
    let known = file.metadata().unwrap();
    let entries = fs::read_dir("/proc/self/fd").unwrap();
    let open = entries.filter_map(|entry| fs::metadata(entry.ok()?.path()).ok());
    open.filter(|other| (other.dev(), other.ino()) == (known.dev(), known.ino())).count() == 1
}

pub fn store(root: &Path, boot: &str) -> WindowStore {
    WindowStore::open(root.to_owned(), boot, u64::MAX, 0).reusing(is_unshared)
}

fn retain(windows: &Windows, retain: usize) {
    windows.set_limits(Limits { retain, taken_counts: true, ..Limits::default() });
}

/// The inode and the content of each file.
type Files = BTreeMap<String, (u64, Vec<u8>)>;

fn files(path: &Path) -> Files {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| {
        let file = (entry.metadata().unwrap().ino(), fs::read(entry.path()).unwrap());
        (entry.file_name().into_string().unwrap(), file)
    };
    entries.map(of).collect()
}

fn inode(path: &Path, name: &str) -> u64 {
    fs::metadata(path.join(name)).unwrap().ino()
}

fn spares(path: &Path) -> usize {
    files(path).keys().filter(|name| name.starts_with(".new-")).count()
}

/// Windows of changing sizes need few files, and each is what it was written as.
#[test]
fn files_are_written_again() {
    let directory = directory();
    let opened = store(directory.path(), "one");
    let (windows, path) = (opened.of("p"), directory.path().join("p"));
    retain(&windows, 3);
    let mut inodes = std::collections::BTreeSet::new();
    for seq in 1..=40 {
        commit(&windows, seq, (seq * 37 % 50) as usize);
        inodes.extend(files(&path).values().map(|(inode, _)| *inode));
        assert!((seq.saturating_sub(2).max(1)..=seq).all(|seq| windows.get(seq).unwrap().open().is_ok()));
        for name in files(&path).keys() {
            let metadata = fs::metadata(path.join(name)).unwrap();
            assert_eq!((metadata.mode() & 0o777, metadata.nlink()), (0o600, 1));
        }
    }
    assert!(inodes.len() <= 12, "{} files for 40 windows and as many states", inodes.len());
    assert!((1..=4).contains(&spares(&path)), "{:?}", files(&path).keys());
    assert_eq!((numbers(&windows), windows.statistics().lost), (vec![38, 39, 40], 37));
    assert_eq!(
        windows.statistics().bytes,
        windows.list(0).windows.iter().map(|entry| entry.bytes).sum::<u64>()
    );

    // A daemon that dies leaves them, and they are nothing to the next one.
    std::mem::forget((windows, opened));
    let opened = store(directory.path(), "one");
    assert_eq!((numbers(&opened.of("p")), opened.of("p").statistics().lost), (vec![38, 39, 40], 37));
    assert_eq!(spares(&path), 0);
    // Where there is no room they go first.
    let windows = opened.of("p");
    retain(&windows, 1);
    (41..=45).for_each(|seq| drop(commit(&windows, seq, 1)));
    assert!(spares(&path) > 0 && windows.directory.give_up_spares());
    assert_eq!((spares(&path), windows.directory.give_up_spares()), (0, false));
    commit(&windows, 46, 1);
    opened.remove("p");
    assert!(!path.exists());
}

/// A window and the state that follows from it are one write of the log.
#[test]
fn a_window_costs_one_write_of_the_log() {
    let directory = directory();
    let opened = store(directory.path(), "one");
    let windows = opened.of("p");
    retain(&windows, 2);
    let blocks = || {
        let log = fs::read(segment::path(directory.path(), 0)).unwrap();
        log.chunks(BLOCK).filter(|block| block.starts_with(b"tprc")).count()
    };
    commit(&windows, 1, 1);
    let before = blocks();
    (2..=21).for_each(|seq| drop(commit(&windows, seq, 1)));
    assert_eq!(blocks() - before, 20);
    assert_eq!(windows.statistics().lost, 19);
}

#[test]
fn who_has_opened_a_file_reads_it_to_its_end() {
    let directory = directory();
    let opened = store(directory.path(), "one");
    let (windows, path) = (opened.of("p"), directory.path().join("p"));
    retain(&windows, 1);
    commit(&windows, 1, 30);
    let reader = windows.get(1).unwrap().open().unwrap();
    let rows = reader.chunk(0, 0).unwrap();
    let mut state = File::open(path.join("state.json")).unwrap();
    let content = fs::read(path.join("state.json")).unwrap();
    commit(&windows, 2, 30);
    let linked = directory.path().join("linked");
    fs::hard_link(path.join("2.window"), &linked).unwrap();
    let second = fs::read(&linked).unwrap();
    // Somebody opens a spare file by its own name.
    (3..=6).for_each(|seq| drop(commit(&windows, seq, 30)));
    let (name, (_, before)) = files(&path).into_iter().find(|(name, _)| name.contains("spare")).unwrap();
    let mut spare = File::open(path.join(name)).unwrap();
    (7..=20).for_each(|seq| drop(commit(&windows, seq, 30)));
    assert_eq!(reader.chunk(0, 0).unwrap(), rows);
    assert!(reader.held() > 0, "the room of a file that was removed counts");
    assert_eq!(fs::read(&linked).unwrap(), second);
    for (file, before) in [(&mut state, content), (&mut spare, before)] {
        let mut now = Vec::new();
        file.read_to_end(&mut now).unwrap();
        assert_eq!(now, before);
    }
    assert_eq!((numbers(&windows), windows.statistics().damaged), (vec![20], 0));
}

/// A file is not written again before a loss of power can't bring its name back.
#[test]
fn a_removal_is_on_disk_before_its_file_is_written_again() {
    let directory = directory();
    let opened = store(directory.path(), "one");
    let (windows, path) = (opened.of("p"), directory.path().join("p"));
    retain(&windows, 1);
    commit(&windows, 1, 1);
    windows.set_taken(1);
    let first = inode(&path, "1.taken");
    commit(&windows, 2, 1);
    commit(&windows, 3, 1);
    assert_ne!(inode(&path, "3.window"), first, "the removal of 1 was written together with 3");
    commit(&windows, 4, 1);
    assert_eq!(inode(&path, "4.window"), first);
}

/// A window that has a record and no name is closed again by a daemon that was killed, and is there after a loss of
/// power.
#[test]
fn a_window_has_its_name_after_its_record() {
    for (boot, there) in [("one", vec![1]), ("two", vec![1, 2])] {
        let directory = directory();
        let opened = store(directory.path(), "one");
        let windows = opened.of("p");
        retain(&windows, 5);
        commit(&windows, 1, 1);
        windows.directory.faults.kill_after(2);
        let mut writer = windows.write(&crate::windows::tests::head(2, ClosedBy::Read, 0)).unwrap();
        writer.rows(0, &crate::windows::tests::rows(2, 1)).unwrap();
        let filed = writer.file().unwrap();
        assert!(!directory.path().join("p/2.window").exists());
        // Another window has the log written.
        commit(&opened.of("q"), 1, 1);
        std::mem::forget(filed);
        let windows = store(directory.path(), boot).of("p");
        assert_eq!(numbers(&windows), there);
        commit(&windows, there.len() as u64 + 1, 1);
    }
}

/// The state that the log has beside a window does not stay if it turns out otherwise.
#[test]
fn a_state_that_was_foreseen_wrongly_is_corrected() {
    for allows_more in [false, true] {
        let directory = directory();
        let opened = store(directory.path(), "one");
        let windows = opened.of("p");
        retain(&windows, 2);
        (1..=2).for_each(|seq| drop(commit(&windows, seq, 1)));
        let mut writer = windows.write(&crate::windows::tests::head(3, ClosedBy::Read, 0)).unwrap();
        writer.rows(0, &crate::windows::tests::rows(3, 1)).unwrap();
        let filed = writer.file().unwrap();
        if allows_more {
            retain(&windows, 3);
        } else {
            windows.acknowledge(1, None).unwrap();
        }
        let _ = filed.list().unwrap().follow();
        let known = view(&windows);
        commit(&opened.of("q"), 1, 1);
        let before = (numbers(&windows), windows.statistics().lost);
        assert_eq!(before.1, 0);
        let windows = store(directory.path(), "two").of("p");
        retain(&windows, 3);
        assert_eq!((numbers(&windows), windows.statistics().lost), before, "{known:?}");
    }
}

/// Puts the names back as they may be after a loss of power: each leads to the file of before or to that of now, and a
/// file has its content of before or that of now, or a part of it.
fn lose_power(path: &Path, before: &Files, choices: &[u8]) {
    let after = files(path);
    let mut choices = choices.iter().cycle();
    let mut found = Files::new();
    for name in before.keys().chain(after.keys()) {
        let mut choose = |many: u8| choices.next().unwrap() % many;
        let (old, new) = (before.get(name), after.get(name));
        let Some((inode, old)) = (if choose(2) == 0 { old.or(new) } else { new }) else { continue };
        let now = after.values().find(|(other, _)| other == inode).map(|(_, content)| content);
        let content = match (choose(3), now) {
            (0, Some(now)) if now != old => now[..now.len() / 2].to_vec(),
            (1, Some(now)) => now.clone(),
            _ => old.clone(),
        };
        // A file that was not there before may be missing.
        if before.contains_key(name) || choose(3) > 0 {
            found.insert(name.clone(), (*inode, content));
        }
    }
    fs::remove_dir_all(path).unwrap();
    fs::create_dir(path).unwrap();
    for (name, (_, content)) in found {
        fs::write(path.join(name), content).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_loss_of_power_mixes_no_files(
        first in vec(operation(), 0..20),
        then in vec(operation(), 1..30),
        choices in vec(any::<u8>(), 1..60),
    ) {
        use Operation::*;
        let is_simple = |operation: &&Operation| {
            matches!(operation, Commit { .. } | Take { .. } | Acknowledge { .. } | SetLimits(_) | DropOldest)
        };
        let directory = directory();
        let root = directory.path();
        let opened = store(root, "one");
        let mut scene = Scene::new(root.join("p"));
        scene.windows = opened.of("p");
        first.iter().filter(is_simple).for_each(|operation| scene.simple(operation));
        let before = files(&scene.path);
        then.iter().filter(is_simple).for_each(|operation| scene.simple(operation));
        commit(&opened.of("q"), 1, 1);
        if scene.path.exists() {
            lose_power(&scene.path, &before, &choices);
        }
        let opened = store(root, "two");
        scene.windows = opened.of("p");
        scene.windows.set_limits(scene.model.limits.clone());
        prop_assert_eq!(view(&scene.windows), scene.model.view());
    }

    /// A daemon that dies at any step leaves what the next one needs, also where files are written again.
    #[test]
    fn whatever_happens_in_whatever_order_with_a_log(operations in vec(operation(), 1..60)) {
        let directory = directory();
        let mut scene = Scene::with(directory.path().join("p"), |path| {
            let log = Log::open(path.parent().unwrap(), "one").unwrap();
            crate::file::directory::Directory::with_log(path.to_owned(), Some(log)).reusing(Some(is_unshared))
        });
        operations.iter().for_each(|operation| scene.run(operation));
        scene.reopen(scene.directory());
        assert_eq!(view(&scene.windows), scene.model.view());
    }
}
