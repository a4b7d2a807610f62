//! Random restarts and crashes, compared with the model.

use std::fs;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::file::directory::Directory;
use crate::retention::{Limits, Missing};
use crate::windows::tests::model::view;
use crate::windows::tests::scene::{Operation, Scene, operation};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_happens_in_whatever_order(operations in vec(operation(), 1..60)) {
        let directory = directory();
        let mut scene = Scene::new(directory.path().join("p"));
        operations.iter().for_each(|operation| scene.run(operation));
        scene.reopen(Directory::new(scene.path.clone()));
        assert_eq!(view(&scene.windows), scene.model.view());
    }

    /// No crash of the daemon leaves an older state; a file system might.
    #[test]
    fn an_older_state_hides_no_window(
        operations in vec(operation(), 1..30),
        last in operation(),
    ) {
        let directory = directory();
        let mut scene = Scene::new(directory.path().join("p"));
        operations.iter().for_each(|operation| scene.run(operation));
        let state = fs::read(scene.path.join("state.json"));
        scene.run(&last);
        if let Ok(state) = state {
            fs::write(scene.path.join("state.json"), state).unwrap();
        }
        let windows = Windows::open(scene.path.clone());
        let retained: Vec<u64> = scene.model.retained.keys().copied().collect();
        prop_assert_eq!(numbers(&windows), retained);
        prop_assert_eq!(windows.last_seq(), scene.model.last);
        prop_assert_eq!(windows.newest().map(|window| window.seq()), scene.model.files().into_iter().max());
    }

    /// A change that a crash interrupts is not lost in silence, even if nothing could be written.
    #[test]
    fn a_crash_on_a_full_disk_forgets_nothing(
        operations in vec(operation(), 1..30),
        steps in 0_usize..12,
        last in operation().prop_filter("changes files", |last| {
            use Operation::*;
            matches!(last, Take { .. } | Acknowledge { .. } | SetLimits(_) | DropOldest)
        }),
    ) {
        let directory = directory();
        let mut scene = Scene::new(directory.path().join("p"));
        operations.iter().for_each(|operation| scene.run(operation));
        scene.set_full(true);
        let before: Vec<_> = (1..=scene.model.last).map(|seq| scene.model.got(seq)).collect();
        scene.windows.directory.faults.kill_after(steps);
        scene.simple(&last);
        let windows = Windows::open(scene.path.clone());
        for (seq, before) in (1..).zip(before) {
            let found = windows.get(seq).map(|window| window.seq());
            let after = scene.model.got(seq);
            prop_assert!(found == before || found == after, "{seq}: {found:?}, not {before:?} or {after:?}");
            if found.is_ok() {
                prop_assert!(windows.get(seq).unwrap().open().is_ok());
            }
        }
        let lost = (1..=scene.model.last).filter(|&seq| windows.get(seq).is_err_and(|error| error == Missing::Lost));
        prop_assert_eq!(windows.statistics().lost, lost.count() as u64);
    }
}

/// A limit has the file of a damaged window removed while there is no room for the state.
#[test]
fn a_damaged_window_counts_after_its_file_had_to_go_on_a_full_disk() {
    let directory = directory();
    let mut scene = Scene::new(directory.path().join("p"));
    let commit = Operation::Commit { skipped: 0, size: 3, closed_by: ClosedBy::Request };
    (0..3).for_each(|_| scene.run(&commit));
    scene.set_full(true);
    scene.run(&Operation::Damage { pick: 0, byte: 0, read: true });
    scene.run(&Operation::SetLimits(Limits { retain: 4, bytes: 0, ..Limits::default() }));
    let bytes = fs::metadata(scene.path.join("1.damaged")).map_or(0, |file| file.len());
    assert_eq!(bytes, 0, "its room is needed");
    scene.reopen(Directory::new(scene.path.clone()));
    assert_eq!(view(&scene.windows), scene.model.view());
    assert_eq!(scene.windows.statistics().damaged, 1);
}
