//! Windows that hold the changes of a sum, compared with an accumulator that keeps whole sums.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use twinprobe_ebpf_common::MergeRules;
use twinprobe_exporter::Accumulator;

use super::*;
use crate::body::head::SumChanges;
use crate::body::part::ages_as_rows;
use crate::body::stored::WindowError;
use crate::retention::RetentionLimits;
use crate::rows::Form;
use crate::windows::tests::scene::damage;

/// The events of a probe.
#[derive(Clone, Debug)]
enum Event {
    /// A window ends that has these keys, each with its number.
    Window {
        rows: BTreeMap<u32, u64>,
        closed_by: ClosedBy,
        /// The number of entries that the sum may have.
        bound: usize,
    },
    /// A window can't be stored at first, but at the second attempt.
    Retry(BTreeMap<u32, u64>),
    /// A replacement of the probe continues with the sum.
    Replace,
    /// The daemon ends, in an orderly way or not, and another daemon starts.
    Restart {
        in_order: bool,
    },
    Acknowledge(u64),
    Take(u64),
    Limits {
        retain: usize,
        bytes: u64,
    },
    DropOldest,
}

fn rows_of() -> impl Strategy<Value = BTreeMap<u32, u64>> {
    let number = prop_oneof![30 => 0_u64..1000, 1 => Just(u64::MAX / 3)];
    btree_map(0_u32..60, number, 0..20)
}

fn event() -> impl Strategy<Value = Event> {
    let closed_by = prop_oneof![6 => Just(ClosedBy::Schedule), 1 => Just(ClosedBy::Read), 2 => Just(ClosedBy::Page)];
    let bytes = prop_oneof![2 => Just(u64::MAX), 1 => 0_u64..60_000];
    prop_oneof![
        20 => (rows_of(), closed_by, 10_usize..60)
            .prop_map(|(rows, closed_by, bound)| Event::Window { rows, closed_by, bound }),
        1 => rows_of().prop_map(Event::Retry),
        1 => Just(Event::Replace),
        1 => any::<bool>().prop_map(|in_order| Event::Restart { in_order }),
        2 => any::<u64>().prop_map(Event::Acknowledge),
        1 => any::<u64>().prop_map(Event::Take),
        1 => (1_usize..40, bytes).prop_map(|(retain, bytes)| Event::Limits { retain, bytes }),
        1 => Just(Event::DropOldest),
    ]
}

/// The head of a window with a sum, and with another metric, whose help each replacement changes.
fn sum_head(seq: u64, closed_by: ClosedBy, sum: &Accumulator, replacements: u32) -> WindowHead {
    let mut head = head(seq, closed_by, 0);
    let [of_sum, other] = &mut head.metrics[..] else {
        unreachable!()
    };
    of_sum.layout = Arc::clone(sum.layout());
    of_sum.dropped = seq / 2;
    other.temporality = Temporality::Window;
    other.help = format!("{replacements:4000}");
    head
}

fn empty_sum() -> Accumulator {
    Accumulator::new(layout(MapKind::Hash, None), &MergeRules::default()).unwrap()
}

/// A probe with one sum, the sums of all its windows, and windows of the same numbers with whole
/// sums in another store.
struct Scene {
    directory: TempDir,
    windows: Arc<Windows>,
    whole: (TempDir, Arc<Windows>),
    sum: Accumulator,
    sums: BTreeMap<u64, (WindowHead, RawTable, Vec<u64>)>,
    replacements: u32,
    limits: RetentionLimits,
    /// The number of windows after which an entry is removed.
    age: u64,
    /// The number of windows that held changes.
    changes: usize,
}

impl Scene {
    fn new() -> Self {
        let (own, other) = (directory(), directory());
        let windows = open(own.path());
        let whole = open(other.path());
        Self {
            directory: own,
            windows,
            whole: (other, whole),
            sum: empty_sum(),
            sums: BTreeMap::new(),
            replacements: 0,
            limits: RetentionLimits::default(),
            age: 20,
            changes: 0,
        }
    }

    fn run(&mut self, event: &Event) {
        let last = self.windows.last_seq();
        match event {
            Event::Window {
                rows,
                closed_by: ClosedBy::Schedule,
                bound,
            } => self.window(rows, *bound),
            Event::Window {
                rows,
                closed_by,
                bound,
            } => {
                self.add(rows, *bound);
                self.write(*closed_by);
            }
            Event::Retry(rows) => {
                self.add(rows, 60);
                self.windows.is_full.store(true, Ordering::Relaxed);
                assert!(self.written(ClosedBy::Schedule).is_err());
                self.windows.is_full.store(false, Ordering::Relaxed);
                self.write(ClosedBy::Schedule);
            }
            Event::Replace => {
                self.replacements += 1;
                self.resume();
            }
            Event::Restart { in_order } => {
                let database = Arc::clone(&self.windows.database);
                if *in_order {
                    database.close();
                } else {
                    std::mem::forget(database);
                }
                self.windows = open(self.directory.path());
                self.windows.set_limits(self.limits.clone());
                self.whole.1 = open(self.whole.0.path());
                self.whole.1.set_limits(RetentionLimits {
                    bytes: u64::MAX,
                    ..self.limits.clone()
                });
                self.resume();
            }
            Event::Acknowledge(pick) => {
                let seq = pick % (last + 1);
                [&self.windows, &self.whole.1]
                    .iter()
                    .for_each(|w| w.acknowledge(seq, None).unwrap());
            }
            Event::Take(pick) => {
                [&self.windows, &self.whole.1]
                    .iter()
                    .for_each(|w| w.set_taken(pick % (last + 1)));
            }
            Event::Limits { retain, bytes } => {
                self.limits = RetentionLimits {
                    retain: *retain,
                    bytes: *bytes,
                    ..RetentionLimits::default()
                };
                self.windows.set_limits(self.limits.clone());
                let by_number = RetentionLimits {
                    retain: *retain,
                    ..RetentionLimits::default()
                };
                self.whole.1.set_limits(by_number);
            }
            Event::DropOldest => {
                self.windows.drop_oldest();
            }
        }
        // The test reads all windows at the end.
        let last = self.windows.last_seq();
        self.check(|seq| seq + 2 > last || seq % 8 == 0);
    }

    fn window(&mut self, rows: &BTreeMap<u32, u64>, bound: usize) {
        self.add(rows, bound);
        self.write(ClosedBy::Schedule);
    }

    fn add(&mut self, rows: &BTreeMap<u32, u64>, bound: usize) {
        let table = RawTable {
            keys: rows.keys().flat_map(|key| key.to_le_bytes()).collect(),
            values: rows
                .values()
                .flat_map(|number| number.to_le_bytes())
                .collect(),
            inner: Vec::new(),
        };
        let seq = self.windows.last_seq() + 1;
        self.sum.add(&table, seq, 0);
        self.sum.bound(bound);
        self.sum.drop_older(seq.saturating_sub(self.age));
    }

    fn written(&self, closed_by: ClosedBy) -> std::io::Result<(Arc<StoredWindow>, bool)> {
        let (sum, seq) = (&self.sum, self.windows.last_seq() + 1);
        let mut head = self.head(seq, closed_by);
        let changes = self
            .windows
            .base_of_changes()
            .and_then(|since| Some((since, sum.changes(since)?)));
        let Some((since, changes)) = changes else {
            let mut writer = self.windows.write(&head)?;
            writer.rows(0, sum.table())?;
            writer.rows(head.place_of_ages(0), &ages_as_rows(sum.ages()))?;
            return Ok((writer.commit()?, false));
        };
        head.changes = Some(SumChanges::new(since, vec![0]));
        let mut writer = self.windows.write(&head)?;
        writer.rows(0, &changes.rows)?;
        writer.rows(head.place_of_changes(0), &changes.places())?;
        Ok((writer.commit()?, true))
    }

    fn head(&self, seq: u64, closed_by: ClosedBy) -> WindowHead {
        sum_head(seq, closed_by, &self.sum, self.replacements)
    }

    fn write(&mut self, closed_by: ClosedBy) {
        let (stored, has_changes) = self.written(closed_by).unwrap();
        self.changes += usize::from(has_changes);
        let seq = stored.seq();
        let head = self.head(seq, closed_by);
        drop(self.whole.1.write(&head).unwrap().commit().unwrap());
        let sum = (head, self.sum.table().clone(), self.sum.ages().to_vec());
        self.sums.insert(seq, sum);
        self.sum.note_changes(seq);
    }

    /// Continues with the sum in the newest window.
    fn resume(&mut self) {
        self.sum = empty_sum();
        let Some(base) = self.windows.base(None).unwrap() else {
            return;
        };
        for part in base.parts {
            self.sum.add_of(&part.rows, &part.layout, part.through, 0);
            self.sum.set_ages(&part.ages);
        }
        let (head, rows, ages) = &self.sums[&base.through];
        let layout = &head.metrics[0].layout;
        assert_eq!(
            (self.sum.layout(), self.sum.table(), self.sum.ages()),
            (layout, rows, &ages[..])
        );
    }

    /// Checks that each window is read as if it had the whole sum, and that the store keeps no
    /// needless window.
    fn check(&self, reads: impl Fn(u64) -> bool) {
        let listed = self.windows.stored();
        let is_read = |(window, form): &&(Arc<StoredWindow>, Form)| {
            ![Form::BuiltOn, Form::Damaged].contains(form) && reads(window.seq())
        };
        for (window, _) in listed.iter().filter(is_read) {
            let (head, rows, ages) = &self.sums[&window.seq()];
            let reader = window.open().unwrap();
            assert_eq!(
                *reader.head,
                WindowHead {
                    closed_by: reader.head.closed_by,
                    ..head.clone()
                }
            );
            let as_stored = window.open_as_stored().unwrap();
            assert_eq!(as_stored.head.metrics, head.metrics);
            assert_eq!(reader.table(0).unwrap(), *rows, "window {}", window.seq());
            assert_eq!(
                reader.table(reader.head.place_of_ages(0)).unwrap(),
                ages_as_rows(ages)
            );
        }
        let all: u64 = listed.iter().map(|(window, _)| window.entry.bytes).sum();
        let index = self.windows.index.lock();
        assert_eq!(index.bytes(), all);
        let (together, bytes, _) = index.together();
        assert!(together <= 64, "{together}");
        let page = index
            .newest()
            .filter(|newest| newest.closed_by == ClosedBy::Page);
        assert!(
            all <= self.limits.bytes || all == bytes || page.is_some(),
            "{all} bytes, {bytes} together"
        );
        drop(index);
        if self.limits.bytes == u64::MAX {
            let newest = numbers(&self.windows).into_iter().rev();
            let as_before = numbers(&self.whole.1).into_iter().rev();
            assert!(
                newest.zip(as_before).all(|(own, other)| own == other),
                "entries leave lists as before"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn windows_with_changes_are_read_as_windows_with_sums(events in vec(event(), 1..100)) {
        let mut scene = Scene::new();
        events.iter().for_each(|event| scene.run(event));
        scene.check(|_| true);
    }
}

#[test]
fn there_is_a_whole_sum_every_64_windows() {
    let mut scene = Scene {
        age: 1_000,
        ..Scene::new()
    };
    for seq in 0..200_u32 {
        let rows = if seq == 0 {
            (0..600).map(|key| (key, 1)).collect()
        } else {
            [(seq, 1), (7, 1)].into()
        };
        scene.window(&rows, 600);
    }
    scene.check(|_| true);
    assert_eq!(scene.changes, 200 - 4);
    // Acknowledged windows are removed once no window builds on them.
    scene.run(&Event::Acknowledge(130));
    let kept = |scene: &Scene| {
        scene
            .windows
            .stored()
            .iter()
            .map(|(window, _)| window.seq())
            .collect::<Vec<_>>()
    };
    assert_eq!((numbers(&scene.windows)[0], kept(&scene)[0]), (131, 129));
    scene.run(&Event::Acknowledge(200));
    assert_eq!(kept(&scene), (193..=200).collect::<Vec<_>>());
}

/// The sum has 30,000 keys, and each window has 300 of them. The descriptions of the metrics are
/// larger than that.
#[test]
fn a_window_takes_little_more_than_what_changed() {
    let mut scene = Scene::new();
    let rows = |keys: &mut dyn Iterator<Item = u32>| keys.map(|key| (key, 1_500)).collect();
    let whole = Event::Window {
        rows: rows(&mut (0..30_000)),
        closed_by: ClosedBy::Schedule,
        bound: 30_000,
    };
    scene.run(&whole);
    let sum = scene.windows.newest().unwrap().entry.bytes;
    for seq in 0..3 {
        let descriptions = serde_json::to_vec(&scene.head(2, ClosedBy::Schedule))
            .unwrap()
            .len();
        assert!(descriptions > 300 * (4 + 8));
        let rows = rows(&mut (0..300).map(|key| key * 97 + seq));
        scene.run(&Event::Window {
            rows,
            closed_by: ClosedBy::Schedule,
            bound: 30_000,
        });
        let bytes = scene.windows.newest().unwrap().entry.bytes;
        let changed = 300 * (4 + 8);
        assert!(
            bytes * 10 <= changed * 12,
            "{bytes} bytes of {sum} for {changed} that changed"
        );
    }
}

/// With a damaged window, only the windows that build on it are lost: the next window has whole
/// sums.
#[test]
fn a_damaged_window_takes_those_along_that_build_on_it() {
    let mut scene = Scene::new();
    (1..=6).for_each(|key| scene.window(&[(key, 1)].into(), 60));
    damage(scene.directory.path(), &scene.windows.get(4).unwrap(), 200);
    let open = |scene: &Scene, seq| scene.windows.get(seq).unwrap().open().map(drop);
    for seq in 1..=3 {
        open(&scene, seq).unwrap();
    }
    for seq in [5, 4, 6] {
        assert!(
            matches!(open(&scene, seq), Err(WindowError::Damaged(_))),
            "{seq}"
        );
    }
    assert_eq!(numbers(&scene.windows), [1, 2, 3]);
    assert_eq!(scene.windows.base_of_changes(), None);
    scene.window(&[(7, 1)].into(), 60);
    scene.window(&[(8, 1)].into(), 60);
    assert_eq!(numbers(&scene.windows), [1, 2, 3, 7, 8]);
    assert_eq!(scene.changes, 6, "2 to 6, and 8");
}
