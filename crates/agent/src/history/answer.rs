//! The conversion of a server's answer into a chart, in the form of charts over retained windows.

use jiff::Timestamp;
use serde_json::Number as JsonNumber;
use twinprobe_api::{Chart, ChartKind, ChartSeries, OtherKeys};
use twinprobe_client::SampleSeries;

use crate::history::expression::{HistorySubject, KEYS, MARK, TOTAL};
use crate::history::steps::HistorySteps;

/// The number below which a count is treated as 0.
const NOTHING: f64 = 1e-6;

/// The numbers of a key, or of all keys, at each point; `None` at a point without a number.
type Course = Vec<Option<f64>>;

/// The parts of a server's answer.
#[derive(Default)]
struct HistoryParts {
    keys: Vec<(SampleSeries, Course)>,
    total: Option<Course>,
    /// The total number of keys.
    count: u64,
}

/// The courses of an answer in the form of a chart.
struct ShownCourses<'a> {
    subject: &'a HistorySubject,
    /// For each point, whether the answer has a number there.
    known: Vec<bool>,
}

/// Makes the chart. `source` names the server.
pub fn chart(
    subject: &HistorySubject,
    steps: HistorySteps,
    top: usize,
    source: String,
    answer: Vec<SampleSeries>,
) -> Chart {
    let mut parts = parts(subject, steps, answer);
    if subject.number.is_of_buckets() {
        part_buckets(subject, &mut parts.keys);
    }
    parts.keep_largest(subject.kind(), top);
    let shown = ShownCourses {
        subject,
        known: parts.known(steps),
    };
    let series = parts.keys.iter().map(|(of, course)| {
        let course = shown.filled(course);
        ChartSeries {
            key: subject.number.key(&of.labels),
            total: shown.total(&course),
            values: shown.values(&course),
        }
    });
    let series = series.collect();
    let time = |end| {
        Timestamp::from_second(end)
            .map(|time| format!("{time:.3}"))
            .unwrap_or_default()
    };
    Chart {
        probe: subject.probe.clone(),
        metric: subject.metric.clone(),
        direction: subject.direction,
        field: subject.field.clone(),
        shows: subject.kind(),
        times: steps.ends().map(time).collect(),
        seconds: shown
            .known
            .iter()
            .map(|known| if *known { steps.step as f64 } else { 0.0 })
            .collect(),
        windows: 0,
        left_out: 0,
        source: Some(source),
        series,
        others: shown.others(&parts),
    }
}

impl HistoryParts {
    /// Keeps the `top` keys with the largest numbers, the largest first.
    fn keep_largest(&mut self, kind: ChartKind, top: usize) {
        self.keys.sort_by(|(_, one), (_, other)| {
            let size = |course: &Course| joined(kind, course).unwrap_or(f64::NEG_INFINITY);
            size(other).total_cmp(&size(one))
        });
        self.keys.truncate(top);
    }

    /// Tells for each point whether a key or the sum of all keys has a number there.
    fn known(&self, steps: HistorySteps) -> Vec<bool> {
        let has = |point: usize| {
            let is_there = |course: &Course| course.get(point).is_some_and(Option::is_some);
            self.total.as_ref().is_some_and(is_there)
                || self.keys.iter().any(|(_, course)| is_there(course))
        };
        (0..steps.count as usize).map(has).collect()
    }
}

impl ShownCourses<'_> {
    /// Fills the gaps of a course. The rule is the same as over windows: at a point where something
    /// was counted, a key without samples has counted nothing.
    fn filled(&self, course: &Course) -> Course {
        let is_increase = self.subject.kind() == ChartKind::Increase;
        let nothing = |known: &bool| (*known && is_increase).then_some(0.0);
        course
            .iter()
            .zip(&self.known)
            .map(|(number, known)| number.or_else(|| nothing(known)))
            .collect()
    }

    /// Returns the numbers of a course in the unit of the metric.
    fn values(&self, course: &Course) -> Vec<Option<JsonNumber>> {
        let number = |number: &Option<f64>| self.subject.number.original((*number)?);
        course.iter().map(number).collect()
    }

    /// Returns the number that is computed from a whole course, in the unit of the metric.
    fn total(&self, course: &Course) -> Option<JsonNumber> {
        let total = joined(self.subject.kind(), course)?;
        self.subject.number.original(total)
    }

    /// Returns the keys that are not among the keys of `parts`, if there are any. Keys that the
    /// server has only as `other` count as one of them.
    fn others(&self, parts: &HistoryParts) -> Option<OtherKeys> {
        let others = parts.count.saturating_sub(parts.keys.len() as u64);
        (others > 0).then(|| {
            let total = parts.total.as_ref();
            let rest = total
                .filter(|_| self.subject.kind() == ChartKind::Increase)
                .map(|total| self.filled(&without(total, &parts.keys)));
            let rest = rest.unwrap_or_else(|| vec![None; self.known.len()]);
            OtherKeys {
                keys: others,
                total: self.total(&rest),
                values: self.values(&rest),
            }
        })
    }
}

fn parts(subject: &HistorySubject, steps: HistorySteps, answer: Vec<SampleSeries>) -> HistoryParts {
    let mut parts = HistoryParts::default();
    // A range longer than the step has more growth than the step.
    let share = match subject.kind() {
        ChartKind::Increase => steps.step as f64 / subject.lookback(steps.step) as f64,
        _ => 1.0,
    };
    for mut series in answer {
        let mut course = vec![None; steps.count as usize];
        for (time, text) in series.values.drain(..) {
            let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
            if let (Some(point), Some(number)) = (steps.point(time), number) {
                course[point] = Some(number);
            }
        }
        if series.labels.get(MARK).is_some_and(|mark| mark == KEYS) {
            parts.count = course.into_iter().flatten().fold(0.0, f64::max) as u64;
            continue;
        }
        course
            .iter_mut()
            .flatten()
            .for_each(|number| *number *= share);
        if series.labels.get(MARK).is_some_and(|mark| mark == TOTAL) {
            parts.total = Some(course);
        } else if !subject.number.is_others(&series.labels) {
            parts.keys.push((series, course));
        }
    }
    parts
}

/// Computes the counts of slots from the counts of buckets. The count of each bucket includes the
/// buckets below it.
fn part_buckets(subject: &HistorySubject, buckets: &mut Vec<(SampleSeries, Course)>) {
    let slot = |(of, _): &(SampleSeries, Course)| subject.number.key(&of.labels).as_u64();
    buckets.retain(|bucket| slot(bucket).is_some());
    buckets.sort_by_key(slot);
    for at in (1..buckets.len()).rev() {
        let (below, [(_, own), ..]) = buckets.split_at_mut(at) else {
            continue;
        };
        for (number, less) in own.iter_mut().zip(&below[at - 1].1) {
            *number = number
                .zip(*less)
                .map(|(number, less)| number - less)
                .or(*number);
            // Servers compute with floats.
            *number = number.map(|number| if number < NOTHING { 0.0 } else { number });
        }
    }
}

/// Returns the number that is computed from all points of a course.
fn joined(kind: ChartKind, course: &Course) -> Option<f64> {
    let mut numbers = course.iter().flatten().copied();
    match kind {
        ChartKind::Increase => numbers.reduce(|sum, number| sum + number),
        ChartKind::Max => numbers.reduce(f64::max),
        ChartKind::Min => numbers.reduce(f64::min),
        ChartKind::Or | ChartKind::Last => numbers.next_back(),
    }
}

/// Returns the sum of all other keys. Servers compute with floats, so that a difference of 0 may
/// become slightly negative.
fn without(total: &Course, keys: &[(SampleSeries, Course)]) -> Course {
    let shown = |point: usize| {
        keys.iter()
            .filter_map(|(_, course)| course[point])
            .sum::<f64>()
    };
    total
        .iter()
        .enumerate()
        .map(|(point, all)| Some(((*all)? - shown(point)).max(0.0)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::json;
    use twinprobe_ebpf_common::{
        Direction, Layout, MapKind, MergeRule, MergeRules, MetricHead, Render, TableLayout,
        Temporality,
    };
    use twinprobe_exporter::{ExportedNumber, Metric};

    use super::*;
    use crate::engine::series::query::ChartQuery;

    fn subject(temporality: Temporality) -> HistorySubject {
        let (key, value) = (Layout::unsigned(2), Layout::unsigned(8));
        let layout = TableLayout {
            kind: MapKind::Hash,
            key,
            value,
            slots: 1,
            inner: None,
        };
        let head = MetricHead::new(Direction::Ingress, "m_nanoseconds", "m", Arc::new(layout));
        let mut head = MetricHead {
            temporality,
            ..head
        };
        head.series.merge = Some(MergeRules::default());
        let metric: Arc<Metric> = Arc::new(head.into());
        HistorySubject {
            probe: "p".to_owned(),
            node: "a".to_owned(),
            metric: "m_nanoseconds".to_owned(),
            direction: Direction::Ingress,
            field: String::new(),
            number: ExportedNumber::new(&metric, "", &BTreeMap::new()).unwrap(),
            temporality,
            rule: MergeRule::Sum,
        }
    }

    /// Returns three points at a distance of a minute: the ends are 60, 120 and 180.
    fn steps() -> HistorySteps {
        let query = ChartQuery {
            from: Some(0),
            to: Some(180_000_000_000),
            step: Some(Duration::from_secs(60)),
            ..ChartQuery::default()
        };
        HistorySteps::new(&query, 0, None).unwrap()
    }

    fn series(label: (&str, &str), values: &[(f64, &str)]) -> SampleSeries {
        let labels = BTreeMap::from([(label.0.to_owned(), label.1.to_owned())]);
        SampleSeries {
            labels,
            values: values
                .iter()
                .map(|(time, text)| (*time, (*text).to_owned()))
                .collect(),
        }
    }

    #[test]
    fn an_answer_becomes_a_chart_as_of_windows() {
        let answer = vec![
            series(("key", "7"), &[(60.437, "1e-9")]),
            series(("key", "8"), &[(60.437, "0.000000002"), (180.437, "5e-9")]),
            series(
                (MARK, TOTAL),
                &[(60.437, "10e-9"), (180.437, "5e-9"), (999.0, "1")],
            ),
            series((MARK, KEYS), &[(60.437, "4")]),
        ];
        let chart = chart(
            &subject(Temporality::Window),
            steps(),
            10,
            "server".to_owned(),
            answer,
        );
        let shown = serde_json::to_value(&chart).unwrap();
        assert_eq!(shown["seconds"], json!([60.0, 0.0, 60.0]));
        assert_eq!(shown["times"][0], "1970-01-01T00:01:00.000Z");
        assert_eq!(
            shown["series"],
            json!([
                { "key": 8, "total": 7, "values": [2, null, 5] },
                { "key": 7, "total": 1, "values": [1, null, 0] },
            ])
        );
        assert_eq!(
            shown["others"],
            json!({ "keys": 2, "total": 7, "values": [7, null, 0] })
        );
        assert_eq!(
            (&shown["source"], &shown["shows"]),
            (&json!("server"), &json!("increase"))
        );
    }

    #[test]
    fn buckets_become_slots() {
        let (key, value) = (Layout::unsigned(4), Layout::unsigned(8));
        let value = Layout {
            render: Some(Render::Histogram),
            ..value
        };
        let layout = TableLayout {
            kind: MapKind::Array,
            key,
            value,
            slots: 1,
            inner: None,
        };
        let head = MetricHead::new(Direction::Ingress, "sizes", "sizes", Arc::new(layout));
        let head = MetricHead {
            temporality: Temporality::Window,
            ..head
        };
        let metric: Arc<Metric> = Arc::new(head.into());
        let number = ExportedNumber::new(&metric, "", &BTreeMap::new()).unwrap();
        let subject = HistorySubject {
            number,
            ..subject(Temporality::Window)
        };
        let bucket =
            |bound, first, last| series(("le", bound), &[(60.437, first), (180.437, last)]);
        let answer = vec![
            bucket("+Inf", "9", "4"),
            bucket("7", "9", "4.0000000001"),
            bucket("1.0", "2", "0"),
            bucket("3.0", "9", "4"),
        ];
        let chart = chart(&subject, steps(), 10, String::new(), answer);
        let shown = serde_json::to_value(&chart).unwrap();
        assert_eq!(
            shown["series"],
            json!([
                { "key": 1, "total": 11, "values": [7, null, 4] },
                { "key": 0, "total": 2, "values": [2, null, 0] },
                { "key": 2, "total": 0, "values": [0, null, 0] },
            ])
        );
        assert!(chart.others.is_none());
    }

    #[test]
    fn growth_over_five_minutes_is_that_of_a_step() {
        let answer = vec![series(("key", "7"), &[(60.437, "50e-9"), (120.437, "NaN")])];
        let chart = chart(
            &subject(Temporality::Cumulative),
            steps(),
            10,
            String::new(),
            answer,
        );
        assert_eq!(
            serde_json::to_value(&chart.series[0].values).unwrap(),
            json!([10, null, null])
        );
        assert!(chart.others.is_none());
    }

    #[test]
    fn last_numbers_have_no_sum() {
        let answer = vec![
            series(("key", "7"), &[(60.437, "3e-9"), (180.437, "1e-9")]),
            series((MARK, TOTAL), &[(60.437, "10e-9")]),
            series((MARK, KEYS), &[(60.437, "2")]),
        ];
        let chart = chart(
            &subject(Temporality::Live),
            steps(),
            1,
            String::new(),
            answer,
        );
        let shown = serde_json::to_value(&chart).unwrap();
        assert_eq!(
            shown["series"][0],
            json!({ "key": 7, "total": 1, "values": [3, null, 1] })
        );
        assert_eq!(
            shown["others"],
            json!({ "keys": 1, "total": null, "values": [null, null, null] })
        );
    }
}
