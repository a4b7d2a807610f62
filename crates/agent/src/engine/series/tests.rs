//! Charts of windows in a real store, compared with sums over the data of the windows.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use tempfile::TempDir;
use twinprobe_api::Chart;
use twinprobe_ebpf_common::{
    Context, Direction, Format, Layout, MapKind, Member, MergeRules, MetricHead, RawTable, Shape,
    TableLayout, Temporality, Window,
};
use twinprobe_exporter::Accumulator;
use twinprobe_store::Database;
use twinprobe_windows::{ClosedBy, SumChanges, WindowHead, WindowStore, Windows, ages_as_rows};

use crate::engine::series::chart::make;
use crate::engine::series::query::ChartQuery;

/// The content of a window, or the reason why it has none.
#[derive(Clone, Debug)]
enum Event {
    /// The window has these keys in this order, each with its number.
    Rows(Vec<(u32, u32)>),
    /// The window has keys of another type, as after a replacement.
    OtherKeys,
    /// The value has another layout, in which the number still exists.
    OtherValue(Vec<(u32, u32)>),
    /// No window has this number.
    Missing,
}

use Event::{Missing, OtherKeys, OtherValue, Rows};

fn table(kind: MapKind, key: usize, members: &[&str]) -> Arc<TableLayout> {
    let member = |(place, name): (usize, &&str)| Member {
        name: (*name).into(),
        bit_offset: 64 * place,
        bitfield: None,
        layout: Layout::unsigned(8),
    };
    let shape = Shape::Struct(members.iter().enumerate().map(member).collect());
    let value = Layout {
        size: 8 * members.len(),
        shape,
        render: None,
    };
    Arc::new(TableLayout {
        kind,
        key: Layout::unsigned(key),
        value,
        slots: 1,
        inner: None,
    })
}

/// The fields of values: the numbers of a chart are `n`.
const FIELDS: [&[&str]; 2] = [&["other", "n"], &["n", "other", "more"]];

/// The values of [`FIELDS`] at this place.
fn rows(rows: &[(u32, u32)], fields: usize) -> RawTable {
    let value = |number: u32| {
        let numbers: &[u64] = match fields {
            0 => &[7, number.into()],
            _ => &[number.into(), 7, 9],
        };
        numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    RawTable {
        keys: rows.iter().flat_map(|(key, _)| key.to_le_bytes()).collect(),
        values: rows.iter().flat_map(|(_, number)| value(*number)).collect(),
        inner: Vec::new(),
    }
}

fn head(seq: u64, temporality: Temporality, layout: Arc<TableLayout>) -> WindowHead {
    let time = |seconds| format!("2026-11-21T10:{:02}:{:02}Z", seconds / 60, seconds % 60);
    WindowHead {
        probe: "p".into(),
        origin: None,
        interfaces: Vec::new(),
        approximate: None,
        window: Window {
            seq,
            // A stopped daemon has no windows. In these tests the daemon is stopped for a second
            // before each window.
            start: time(2 * seq - 1),
            end: time(2 * seq),
            duration_ns: Some(1_000_000_000),
            clock_step_ns: None,
            quiesce_us: 1,
            lost_windows: 0,
        },
        format: Format::Json,
        context: Context::default(),
        skipped_before: 0,
        closed_by: ClosedBy::Schedule,
        metrics: vec![MetricHead {
            temporality,
            ..MetricHead::new(Direction::Ingress, "m", "m", layout)
        }],
        hidden: Vec::new(),
        changes: None,
    }
}

struct Scene {
    windows: Arc<Windows>,
    _directory: TempDir,
    temporality: Temporality,
    sum: Accumulator,
    changes: usize,
}

impl Scene {
    fn new(temporality: Temporality) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path()).unwrap();
        let store = WindowStore::open(directory.path(), &database, u64::MAX, 0).unwrap();
        let windows = store.of("p");
        windows.set_limits(twinprobe_windows::RetentionLimits {
            retain: 1000,
            ..twinprobe_windows::RetentionLimits::default()
        });
        let sum =
            Accumulator::new(table(MapKind::Hash, 4, FIELDS[0]), &MergeRules::default()).unwrap();
        Self {
            windows,
            _directory: directory,
            temporality,
            sum,
            changes: 0,
        }
    }

    fn run(&mut self, seq: u64, event: &Event) {
        match (event, self.temporality) {
            (Missing, _) => {}
            (OtherKeys, _) => self.write(
                seq,
                table(MapKind::Hash, 8, FIELDS[0]),
                &RawTable::default(),
            ),
            (OtherValue(all), Temporality::Window) => {
                self.write(seq, table(MapKind::Hash, 4, FIELDS[1]), &rows(all, 1));
            }
            (Rows(all), Temporality::Window) => {
                self.write(seq, table(MapKind::Hash, 4, FIELDS[0]), &rows(all, 0));
            }
            (Rows(all) | OtherValue(all), _) => self.add(seq, all),
        }
    }

    fn write(&mut self, seq: u64, layout: Arc<TableLayout>, rows: &RawTable) {
        let mut writer = self
            .windows
            .write(&head(seq, self.temporality, layout))
            .unwrap();
        writer.rows(0, rows).unwrap();
        drop(writer.commit().unwrap());
        self.windows.begin_anew();
    }

    /// Writes a window of the sum: only the changes, if they are known.
    fn add(&mut self, seq: u64, all: &[(u32, u32)]) {
        self.sum.add(&rows(all, 0), seq, 0);
        self.sum.drop_older(seq.saturating_sub(6));
        let mut head = head(seq, self.temporality, Arc::clone(self.sum.layout()));
        let changes = self
            .windows
            .base_of_changes()
            .and_then(|since| Some((since, self.sum.changes(since)?)));
        if let Some((since, changes)) = changes {
            head.changes = Some(SumChanges::new(since, vec![0]));
            let mut writer = self.windows.write(&head).unwrap();
            writer.rows(0, &changes.rows).unwrap();
            writer
                .rows(head.place_of_changes(0), &changes.places())
                .unwrap();
            drop(writer.commit().unwrap());
            self.changes += 1;
        } else {
            let mut writer = self.windows.write(&head).unwrap();
            writer.rows(0, self.sum.table()).unwrap();
            writer
                .rows(head.place_of_ages(0), &ages_as_rows(self.sum.ages()))
                .unwrap();
            drop(writer.commit().unwrap());
        }
        self.sum.note_changes(seq);
    }

    fn chart(&self, top: usize) -> Chart {
        let query = ChartQuery {
            metric: "m".into(),
            field: Some("n".into()),
            top,
            ..ChartQuery::default()
        };
        make(&self.windows, "p", &query).unwrap()
    }
}

/// The expected chart: for each key the numbers of the points, `None` where nothing is known.
#[derive(Debug, Default)]
struct Expected {
    /// The keys in the order in which they first came.
    keys: Vec<u32>,
    numbers: BTreeMap<u32, Vec<u64>>,
    known: Vec<bool>,
    /// The seconds that windows cover. A window lasts one, and a sum grows also in the windows that
    /// are missing before it.
    seconds: Vec<f64>,
    left_out: u64,
}

impl Expected {
    fn of(events: &[Event], temporality: Temporality) -> Self {
        let mut expected = Self::default();
        let cumulative = temporality == Temporality::Cumulative;
        // Nothing precedes the very first window.
        let mut knows = !cumulative || !matches!(events.first(), Some(Missing));
        let points = events
            .iter()
            .filter(|event| !matches!(event, Missing))
            .count();
        let mut missing = 0;
        for event in events {
            match event {
                Missing => missing += 1,
                OtherKeys => {
                    expected.known.push(false);
                    expected.seconds.push(0.0);
                    missing = 0;
                    expected.left_out += 1;
                    knows = !cumulative;
                }
                Rows(all) | OtherValue(all) => {
                    let point = expected.known.len();
                    expected.known.push(knows);
                    let grows = if cumulative && missing > 0 {
                        2 * (missing + 1)
                    } else {
                        1
                    };
                    expected
                        .seconds
                        .push(if knows { f64::from(grows) } else { 0.0 });
                    missing = 0;
                    for (key, number) in all.iter().filter(|_| knows) {
                        if !expected.keys.contains(key) {
                            expected.keys.push(*key);
                        }
                        expected
                            .numbers
                            .entry(*key)
                            .or_insert_with(|| vec![0; points])[point] += u64::from(*number);
                    }
                    knows = true;
                }
            }
        }
        expected
    }

    fn check(&self, chart: &Chart, top: usize) {
        let total = |key: &u32| self.numbers[key].iter().sum::<u64>();
        let mut sorted: Vec<&u32> = self.keys.iter().collect();
        sorted.sort_by_key(|key| std::cmp::Reverse(total(key)));
        let (chosen, others) = sorted.split_at(top.min(sorted.len()));
        let shown: Vec<u64> = chart
            .series
            .iter()
            .filter_map(|series| series.key.as_u64())
            .collect();
        let totals: Vec<u64> = chart
            .series
            .iter()
            .filter_map(|series| series.total.clone()?.as_u64())
            .collect();
        assert_eq!(
            totals,
            chosen.iter().map(|key| total(key)).collect::<Vec<_>>()
        );
        for (series, key) in chart.series.iter().zip(&shown) {
            assert_eq!(
                self.values(&[&(*key as u32)]),
                numbers(&series.values),
                "{key}"
            );
        }
        assert_eq!(chart.left_out, self.left_out);
        assert_eq!(chart.seconds, self.seconds);
        assert_eq!(chart.windows + self.left_out, self.known.len() as u64);
        match &chart.others {
            None => assert!(others.is_empty()),
            Some(found) => {
                assert_eq!(found.keys, others.len() as u64);
                let shown = |key: &&&u32| !shown.contains(&u64::from(***key));
                let others: Vec<&u32> = sorted.iter().filter(shown).copied().collect();
                assert_eq!(self.values(&others), numbers(&found.values));
                assert_eq!(
                    found.total.as_ref().and_then(|total| total.as_u64()),
                    Some(others.iter().map(|key| total_of(self, key)).sum())
                );
            }
        }
    }

    fn values(&self, keys: &[&u32]) -> Vec<Option<u64>> {
        let point = |(point, known): (usize, &bool)| {
            known.then(|| {
                keys.iter()
                    .filter_map(|key| self.numbers.get(key))
                    .map(|numbers| numbers[point])
                    .sum()
            })
        };
        self.known.iter().enumerate().map(point).collect()
    }
}

fn total_of(expected: &Expected, key: &u32) -> u64 {
    expected.numbers[key].iter().sum()
}

fn numbers(values: &[Option<serde_json::Number>]) -> Vec<Option<u64>> {
    values
        .iter()
        .map(|value| value.as_ref().and_then(serde_json::Number::as_u64))
        .collect()
}

fn event() -> impl Strategy<Value = Event> {
    // Few different numbers, so that many keys have equal sums; some that take more than 32 bits
    // when they add up.
    let number = prop_oneof![6 => 1_u32..4, 1 => Just(u32::MAX)];
    let keys = prop::collection::btree_map(0_u32..30, number, 0..25);
    let rows = keys
        .prop_map(|keys| keys.into_iter().collect::<Vec<_>>())
        .prop_shuffle();
    prop_oneof![
        10 => rows.clone().prop_map(Rows),
        1 => Just(OtherKeys),
        1 => rows.prop_map(OtherValue),
        1 => Just(Missing),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn a_chart_adds_up_what_windows_have(events in vec(event(), 1..30), top in 1_usize..12, cumulative: bool) {
        let temporality = if cumulative { Temporality::Cumulative } else { Temporality::Window };
        let mut scene = Scene::new(temporality);
        for (seq, event) in (1..).zip(&events) {
            scene.run(seq, event);
        }
        // The newest window decides the keys.
        prop_assume!(!matches!(events.iter().rfind(|event| !matches!(event, Missing)), None | Some(OtherKeys)));
        Expected::of(&events, temporality).check(&scene.chart(top), top);
    }
}

#[test]
fn of_equal_keys_those_that_came_first_are_shown() {
    let mut scene = Scene::new(Temporality::Window);
    for (seq, keys) in (1..).zip([&[9, 4, 7][..], &[7, 1, 9], &[4, 1]]) {
        scene.run(seq, &Rows(keys.iter().map(|key| (*key, 2)).collect()));
    }
    let shown: Vec<Option<u64>> = scene
        .chart(3)
        .series
        .iter()
        .map(|series| series.key.as_u64())
        .collect();
    assert_eq!(shown, [Some(9), Some(4), Some(7)], "all of them come to 4");
}

#[test]
fn windows_of_changes_are_followed() {
    let mut scene = Scene::new(Temporality::Cumulative);
    let events: Vec<Event> = (0..150_u32)
        .map(|window| {
            Rows(
                (0..8)
                    .map(|key| ((window * 3 + key * 5) % 40, 1 + key))
                    .collect(),
            )
        })
        .collect();
    for (seq, event) in (1..).zip(&events) {
        scene.run(seq, event);
    }
    assert!(
        scene.changes > 100,
        "{} windows hold changes",
        scene.changes
    );
    Expected::of(&events, Temporality::Cumulative).check(&scene.chart(5), 5);
}
