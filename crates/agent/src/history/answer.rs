//! The answer of a server as a chart, in the form of those over retained windows.

use jiff::Timestamp;
use serde_json::Number as JsonNumber;
use twinprobe_api::{Chart, ChartKind, ChartSeries, OtherKeys};
use twinprobe_client::SampleSeries;

use crate::history::expression::{HistorySubject, KEYS, MARK, TOTAL};
use crate::history::steps::HistorySteps;

/// The numbers of a key, or of all keys, at each point; `None` where there are none.
type Course = Vec<Option<f64>>;

/// The parts of an answer.
#[derive(Default)]
struct HistoryParts {
    keys: Vec<(SampleSeries, Course)>,
    total: Option<Course>,
    /// The number of all keys.
    count: u64,
}

/// Makes the chart. `source` names the server.
pub fn chart(
    subject: &HistorySubject,
    steps: HistorySteps,
    top: usize,
    source: String,
    answer: Vec<SampleSeries>,
) -> Chart {
    let kind = subject.kind();
    let HistoryParts { mut keys, total, count } = parts(subject, steps, answer);
    keys.sort_by(|(_, one), (_, other)| {
        let size = |course: &Course| joined(kind, course).unwrap_or(f64::NEG_INFINITY);
        size(other).total_cmp(&size(one))
    });
    keys.truncate(top);
    let has = |point: usize| {
        let is_there = |course: &Course| course.get(point).is_some_and(Option::is_some);
        total.as_ref().is_some_and(is_there) || keys.iter().any(|(_, course)| is_there(course))
    };
    let known: Vec<bool> = (0..steps.count as usize).map(has).collect();
    // As over windows: where something was counted, a key without samples has counted nothing.
    let filled = |course: &Course| -> Course {
        let nothing = |known: &bool| (*known && kind == ChartKind::Increase).then_some(0.0);
        course.iter().zip(&known).map(|(number, known)| number.or_else(|| nothing(known))).collect()
    };
    let numbers = |course: &Course| -> Vec<Option<JsonNumber>> {
        course.iter().map(|number| subject.number.original((*number)?)).collect()
    };
    let sum = |course: &Course| subject.number.original(joined(kind, course)?);
    let others = count.saturating_sub(keys.len() as u64);
    let others = (others > 0).then(|| {
        let rest = total.filter(|_| kind == ChartKind::Increase).map(|total| filled(&without(&total, &keys)));
        let rest = rest.unwrap_or_else(|| vec![None; known.len()]);
        OtherKeys { keys: others, total: sum(&rest), values: numbers(&rest) }
    });
    let series = keys.iter().map(|(of, course)| {
        let course = filled(course);
        ChartSeries { key: subject.number.key(&of.labels), total: sum(&course), values: numbers(&course) }
    });
    let time = |end| Timestamp::from_second(end).map(|time| format!("{time:.3}")).unwrap_or_default();
    Chart {
        probe: subject.probe.clone(),
        metric: subject.metric.clone(),
        direction: subject.direction,
        field: subject.field.clone(),
        shows: kind,
        times: steps.ends().map(time).collect(),
        seconds: known.iter().map(|known| if *known { steps.step as f64 } else { 0.0 }).collect(),
        windows: 0,
        left_out: 0,
        source: Some(source),
        series: series.collect(),
        others,
    }
}

fn parts(subject: &HistorySubject, steps: HistorySteps, answer: Vec<SampleSeries>) -> HistoryParts {
    let mut parts = HistoryParts::default();
    // A range that is longer than the step has the growth of more than the step.
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
        course.iter_mut().flatten().for_each(|number| *number *= share);
        if series.labels.get(MARK).is_some_and(|mark| mark == TOTAL) {
            parts.total = Some(course);
        } else if !subject.number.is_others(&series.labels) {
            parts.keys.push((series, course));
        }
    }
    parts
}

/// Returns what the points of a course come to.
fn joined(kind: ChartKind, course: &Course) -> Option<f64> {
    let mut numbers = course.iter().flatten().copied();
    match kind {
        ChartKind::Increase => numbers.reduce(|sum, number| sum + number),
        ChartKind::Max => numbers.reduce(f64::max),
        ChartKind::Min => numbers.reduce(f64::min),
        ChartKind::Or | ChartKind::Last => numbers.next_back(),
    }
}

/// Returns the sum of all keys but these. Servers compute with floats, so that nothing may be a little less than nothing.
fn without(total: &Course, keys: &[(SampleSeries, Course)]) -> Course {
    let shown = |point: usize| keys.iter().filter_map(|(_, course)| course[point]).sum::<f64>();
    total.iter().enumerate().map(|(point, all)| Some(((*all)? - shown(point)).max(0.0))).collect()
}
