//! The bodies of all versions so far, which every later version must read. A body of the present
//! version is also compared byte by byte: a change of the written bytes needs a new version and a
//! new file here. `UPDATE_GOLDEN=1` writes the files that are missing.

use std::fs;
use std::num::NonZeroU32;
use std::path::PathBuf;

use super::*;
use crate::baseline::Base;
use twinprobe_ebpf_common::TableChanges;

use crate::body::head::SumChanges;
use crate::body::part::{BaselinePart, PartContent, ages_as_rows};
use crate::index::state::SeriesState;
use crate::rows;
use crate::windows::tests::scene::put_body;

fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/windows/tests/golden"
    ))
    .join(name)
}

fn golden(name: &str) -> Vec<u8> {
    fs::read(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[track_caller]
fn assert_golden(name: &str, written: &[u8]) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() && !path(name).exists() {
        fs::write(path(name), written).unwrap();
    }
    assert!(
        golden(name) == written,
        "{name} is written in another way: give the format another version"
    );
}

/// Makes a store with one window, whose body is `bytes`.
fn with(seq: u64, bytes: &[u8]) -> (TempDir, Arc<Windows>) {
    let directory = directory();
    let windows = open(directory.path());
    put_body(directory.path(), &commit(&windows, seq, 1), bytes);
    (directory, windows)
}

fn sum(of: Direction, map: &str, through: u64) -> BaselinePart {
    BaselinePart {
        direction: of,
        map: map.into(),
        metric: None,
        content: PartContent::Sum,
        through,
        layout: layout(MapKind::Hash, None),
        rows: rows(3, 4),
        ages: vec![1, 3, 2, 3],
        dropped: 5,
    }
}

/// The golden file is from a daemon that kept sums in files of their own: 7 packets.
#[test]
fn windows_of_the_first_format_are_read() {
    let (_directory, windows) = with(2, &golden("window-1"));
    let reader = windows.get(2).unwrap().open().unwrap();
    let names: Vec<String> = reader
        .head
        .metrics
        .iter()
        .map(|metric| metric.name.clone())
        .collect();
    assert_eq!(names, ["in_array", "in_hash", "in_percpu_array"]);
    assert_eq!(reader.head.closed_by, ClosedBy::Request);
    let Base { through, parts } = windows.base(Some(1)).unwrap().unwrap();
    assert_eq!(through, 2);
    let sums: Vec<(&str, usize)> = parts
        .iter()
        .map(|part| (&*part.map, part.rows.len(&part.layout)))
        .collect();
    assert_eq!(sums, [("in_array", 8), ("in_percpu_array", 8)]);
    for BaselinePart {
        layout,
        rows,
        ages,
        dropped,
        ..
    } in &parts
    {
        let first = |value: &[u8]| u64::from_le_bytes(value[..8].try_into().unwrap());
        let slots = rows.values.chunks_exact(layout.slot_stride());
        assert_eq!(
            slots.map(first).sum::<u64>(),
            7,
            "packets of all keys and CPUs"
        );
        assert_eq!((&ages[..], *dropped), (&[][..], 0));
    }
}

/// The head of the golden files since the second format.
fn golden_head() -> WindowHead {
    let mut head = head(7, ClosedBy::Request, 3);
    let seen = MetricHead {
        dropped: 5,
        ..head.metrics.swap_remove(0)
    };
    let hidden = MetricHead {
        direction: Direction::Egress,
        ..seen.clone()
    };
    (head.metrics, head.hidden) = (vec![seen], vec![hidden]);
    head
}

/// Checks that the golden file `name` is read as the window with this head and with the sums of
/// both directions.
#[track_caller]
fn assert_window(name: &str, head: &WindowHead) {
    let (_directory, windows) = with(7, &golden(name));
    let reader = windows.newest().unwrap().open().unwrap();
    assert_eq!(*reader.head, *head);
    assert_eq!(reader.head.metrics.len(), 1, "what is hidden is not shown");
    let map = "map of a";
    let named = |part: BaselinePart| BaselinePart {
        metric: Some("a".into()),
        ..part
    };
    let parts = vec![
        named(sum(Direction::Ingress, map, 7)),
        named(sum(Direction::Egress, map, 7)),
    ];
    assert_eq!(
        windows.base(None).unwrap(),
        Some(Base { through: 7, parts })
    );
}

/// The golden file is from a daemon that recorded no origin and had no samples.
#[test]
fn windows_of_the_second_format_are_read() {
    assert_window(
        "window-2",
        &WindowHead {
            origin: None,
            ..golden_head()
        },
    );
}

/// The golden file is from a daemon whose sums had times since the boot.
#[test]
fn windows_of_the_third_format_are_read() {
    let mut head = golden_head();
    head.metrics[0].sample = NonZeroU32::new(100);
    assert_window("window-3", &head);
}

/// The golden file is from a daemon whose sums had at most 64 bits.
#[test]
fn windows_of_the_fourth_format_are_read() {
    let mut head = golden_head();
    head.metrics[0].sample = NonZeroU32::new(100);
    assert_window("window-4", &head);
}

#[test]
fn windows_of_this_format_are_read_and_written() {
    let directory = directory();
    let windows = open(directory.path());
    let mut head = golden_head();
    head.metrics[0].sample = NonZeroU32::new(100);
    let mut writer = windows.write(&head).unwrap();
    for place in 0..2 {
        writer.rows(place, &rows(3, 4)).unwrap();
        writer
            .rows(head.place_of_ages(place), &ages_as_rows(&[1, 3, 2, 3]))
            .unwrap();
    }
    assert_golden("window-5", &bytes(&writer.commit().unwrap()));
    assert_window("window-5", &head);
}

/// A window with changes in its sums since a window of the previous format.
#[test]
fn windows_with_changes_are_read_and_written() {
    let (directory, windows) = with(7, &golden("window-5"));
    let mut head = golden_head();
    head.metrics[0].sample = NonZeroU32::new(100);
    head.window.seq = 8;
    head.changes = Some(SumChanges::new(7, vec![0, 1]));
    let new = [44_u64, 90]
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    let new = RawTable {
        keys: vec![9, 0, 0, 0],
        values: new,
        ..RawTable::default()
    };
    let changes = TableChanges {
        gone: vec![1],
        changed: vec![0],
        rows: new,
    };
    let mut writer = windows.write(&head).unwrap();
    for place in 0..2 {
        writer.rows(place, &changes.rows).unwrap();
        writer
            .rows(head.place_of_changes(place), &changes.places())
            .unwrap();
    }
    let stored = writer.commit().unwrap();
    assert_golden("window-6", &bytes(&stored));

    put_body(directory.path(), &stored, &golden("window-6"));
    let reader = windows.newest().unwrap().open().unwrap();
    assert_eq!(
        *reader.head,
        WindowHead {
            changes: None,
            ..head
        }
    );
    let (mut expected, mut ages) = (rows(3, 4), vec![1, 3, 2, 3]);
    assert!(changes.apply(&mut expected, &mut ages, 8, &layout(MapKind::Hash, None)));
    for place in 0..2 {
        assert_eq!(reader.table(place).unwrap(), expected);
        assert_eq!(
            reader.table(reader.head.place_of_ages(place)).unwrap(),
            ages_as_rows(&ages)
        );
    }
}

/// A window whose metrics a window of the fifth format describes. The window repeats all numbers of
/// the metrics, or none.
#[test]
fn windows_without_descriptions_are_read_and_written() {
    let directory = directory();
    let windows = open(directory.path());
    let mut head = golden_head();
    let write = |head: &WindowHead, place: usize, table: &RawTable| {
        let mut writer = windows.write(head).unwrap();
        (0..2).for_each(|metric| writer.rows(metric + 2 * place, table).unwrap());
        writer.commit().unwrap()
    };
    write(&head, 0, &rows(3, 4));
    head.window.seq = 8;
    head.changes = Some(SumChanges::new(7, vec![0, 1]));
    head.hidden[0].dropped = 6;
    let stored = write(&head, 2, &TableChanges::default().places());
    assert_golden("window-8", &bytes(&stored));
    let mut before = head.clone();
    before.metrics[0].help = "another".to_owned();
    for (name, head) in [("window-8", head), ("window-7", before)] {
        put_body(directory.path(), &stored, &golden(name));
        for windows in [&windows, &open(directory.path())] {
            let reader = windows.newest().unwrap().open().unwrap();
            assert_eq!(
                *reader.head,
                WindowHead {
                    changes: None,
                    ..head.clone()
                }
            );
            (0..2).for_each(|place| assert_eq!(reader.table(place).unwrap(), rows(3, 4)));
        }
    }
}

/// The sum of one map and the open rows of another, as the golden files have them.
fn golden_parts() -> [BaselinePart; 2] {
    let open = BaselinePart {
        content: PartContent::Open,
        ages: Vec::new(),
        dropped: 0,
        ..sum(Direction::Egress, ".bss:b", 8)
    };
    [sum(Direction::Ingress, "a", 8), open]
}

/// Makes a store with one baseline of window 9 and serial 12, whose body is `bytes`.
fn with_baseline(bytes: &[u8]) -> (TempDir, Arc<Windows>) {
    let directory = directory();
    let windows = open(directory.path());
    windows.write_baseline((9, 12), &[], Durable::Now).unwrap();
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    tamper(
        directory.path(),
        &format!("UPDATE baselines SET body = x'{digits}'"),
    );
    (directory, windows)
}

/// The golden file is from a daemon that had one metric for each map.
#[test]
fn baselines_of_the_first_format_are_read() {
    let (_directory, windows) = with_baseline(&golden("baseline-1"));
    let base = Base {
        through: 8,
        parts: golden_parts().into(),
    };
    assert_eq!(windows.base(Some(12)).unwrap(), Some(base));
}

/// The parts of the golden files since the second format.
fn named_parts() -> [BaselinePart; 3] {
    let [sum, open_rows] = golden_parts();
    let named = |name: &str| BaselinePart {
        metric: Some(name.into()),
        ..sum.clone()
    };
    [named("x"), named("y"), open_rows]
}

/// The golden file is from a daemon whose sums had times since the boot.
#[test]
fn baselines_of_the_second_format_are_read() {
    let (_directory, windows) = with_baseline(&golden("baseline-2"));
    let base = Base {
        through: 8,
        parts: named_parts().into(),
    };
    assert_eq!(windows.base(Some(12)).unwrap(), Some(base));
}

/// The golden file is from a daemon whose sums had at most 64 bits.
#[test]
fn baselines_of_the_third_format_are_read() {
    let (_directory, windows) = with_baseline(&golden("baseline-3"));
    let base = Base {
        through: 8,
        parts: named_parts().into(),
    };
    assert_eq!(windows.base(Some(12)).unwrap(), Some(base));
}

#[test]
fn baselines_of_this_format_are_read_and_written() {
    let directory = directory();
    let windows = open(directory.path());
    let parts = named_parts();
    windows
        .write_baseline((9, 12), &parts, Durable::Now)
        .unwrap();
    let id = windows.index.lock().all().1[0].0;
    let body = rows::body(&windows.database, rows::SqlTable::Baselines, id)
        .unwrap()
        .unwrap();
    assert_golden("baseline-4", &body);

    let (directory, windows) = with_baseline(&golden("baseline-4"));
    let base = Base {
        through: 8,
        parts: parts.into(),
    };
    for windows in [&windows, &open(directory.path())] {
        assert_eq!(windows.base(Some(12)).unwrap(), Some(base.clone()));
        assert_eq!(
            windows.base(Some(11)).unwrap(),
            None,
            "it is another deployment's"
        );
        assert_eq!(windows.base(None).unwrap(), Some(base.clone()));
    }
    commit(&windows, 9, 1);
    assert_eq!(
        windows.base(Some(12)).unwrap().unwrap().through,
        9,
        "the window has its sums"
    );
    assert_eq!(windows.index.lock().all().1, []);
}

#[test]
fn states_are_read_and_written() {
    let state = SeriesState::decode(&golden("state-0.json")).unwrap();
    assert_eq!(
        (
            state.first,
            state.last,
            state.acknowledged,
            state.reported_through
        ),
        (1, 2, 1, 2)
    );
    let mut state = SeriesState {
        first: 1,
        last: 9,
        acknowledged: 4,
        damaged: 1,
        ..SeriesState::default()
    };
    state.collectors.insert("a".into(), 6);
    state.lost.add(2, 9);
    (state.reported, state.reported_through) = (1, 9);
    assert_golden("state-1.json", &state.encode());
    assert_eq!(SeriesState::decode(&golden("state-1.json")).unwrap(), state);
}
