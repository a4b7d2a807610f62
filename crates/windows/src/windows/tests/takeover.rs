//! Directories of files of an earlier version, in every state in which a daemon could leave them.

use std::collections::BTreeSet;
use std::fs;

use super::*;
use crate::index::state::SeriesState;
use crate::retention::Missing;
use crate::rows::Form;
use crate::takeover::take_over;

/// Returns the body of window `seq` with this size.
fn body(seq: u64, size: usize) -> Vec<u8> {
    let directory = directory();
    bytes(&commit(&open(directory.path()), seq, size))
}

/// Makes the directory of probe `p` with these files, and takes it over.
fn taken_over(files: &[(&str, Vec<u8>)]) -> (TempDir, Result<Arc<Windows>, std::io::Error>) {
    let directory = directory();
    let old = directory.path().join("windows/p");
    fs::create_dir_all(&old).unwrap();
    for (name, content) in files {
        fs::write(old.join(name), content).unwrap();
    }
    let names = BTreeSet::from(["p".to_owned(), "q".to_owned()]);
    let windows = take_over(directory.path(), &names).map(|change| {
        let database = Database::open(directory.path()).unwrap();
        database.commit(Durable::Now, false, change).unwrap();
        fs::remove_dir_all(directory.path().join("windows")).unwrap();
        open(directory.path())
    });
    (directory, windows)
}

#[test]
fn every_form_of_a_file_becomes_what_it_meant() {
    let mut state = SeriesState {
        first: 1,
        last: 9,
        acknowledged: 4,
        ..SeriesState::default()
    };
    state.collectors.insert("a".into(), 6);
    state.lost.add(2, 4);
    let (directory, windows) = taken_over(&[
        ("state.json", state.encode()),
        ("2.window", body(2, 3)),
        ("3.acked", body(3, 3)),
        ("5.damaged", b"half".to_vec()),
        ("6.window", body(6, 3)),
        ("6.taken", body(6, 3)),
        ("7.window", body(7, 9_000)),
        ("8.lost", Vec::new()),
        ("9.window", b"tpwind03".to_vec()),
        (".new-spare", b"x".to_vec()),
        ("notes", b"x".to_vec()),
    ]);
    let windows = windows.unwrap();
    assert_eq!((numbers(&windows), windows.last_seq()), (vec![6, 7], 9));
    let statistics = windows.statistics();
    assert_eq!(
        (statistics.lost, statistics.damaged),
        (4, 2),
        "2, 5, 8, 9; 5 and 9 are damaged"
    );
    assert_eq!(windows.index.lock().taken(), [6]);
    let damaged: Vec<_> = windows
        .stored()
        .into_iter()
        .filter(|(_, form)| *form == Form::Damaged)
        .collect();
    assert_eq!(
        damaged
            .iter()
            .map(|(window, _)| window.seq())
            .collect::<Vec<_>>(),
        [5, 9]
    );
    assert_eq!(windows.body(&damaged[0].0).unwrap(), b"half");
    assert_eq!(
        [1, 4, 5].map(|seq| windows.get(seq).unwrap_err()),
        [Missing::Acknowledged, Missing::Acknowledged, Missing::Lost]
    );
    assert_eq!(windows.index.lock().state.collectors["a"], 6);
    for (seq, size) in [(6, 3), (7, 9_000)] {
        assert_eq!(
            windows
                .get(seq)
                .unwrap()
                .open()
                .unwrap()
                .chunk(0, 0)
                .unwrap(),
            Some(rows(seq, size))
        );
    }
    assert_eq!(bodies(directory.path()).len(), 1);
    commit(&windows, 10, 1);
    assert_eq!(numbers(&open(directory.path())), [6, 7, 10]);
}

#[test]
fn the_newest_acknowledged_window_and_a_baseline_keep_the_sums() {
    let baseline = fs::read(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/windows/tests/golden/baseline-2"
    ));
    let (_directory, windows) = taken_over(&[
        ("8.acked", body(8, 3)),
        ("9.12.baseline", baseline.unwrap()),
        ("8.3.baseline", b"needless".to_vec()),
    ]);
    let windows = windows.unwrap();
    assert_eq!((numbers(&windows), windows.last_seq()), (vec![], 8));
    assert_eq!(windows.newest().unwrap().seq(), 8);
    assert_eq!(windows.base(Some(12)).unwrap().unwrap().through, 8);
    assert_eq!(windows.base(Some(12)).unwrap().unwrap().parts.len(), 3);
    assert_eq!(
        windows.base(Some(3)).unwrap().unwrap().parts.len(),
        2,
        "those of window 8"
    );
}

#[test]
fn a_state_of_a_later_version_is_left_alone() {
    let later = r#"{"version":9,"first":1}"#;
    let digest: String =
        sha2::Digest::finalize(<sha2::Sha256 as sha2::Digest>::new_with_prefix(later))
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
    let state = format!("{later}\n{{\"sha256\":\"{digest}\"}}\n").into_bytes();
    let (_directory, windows) = taken_over(&[("1.window", body(1, 1)), ("state.json", state)]);
    let error = windows.unwrap_err().to_string();
    assert!(
        error.contains("state.json") && error.contains("format 9"),
        "{error}"
    );
}
