//! The making of a chart.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Semaphore;
use twinprobe_api::{Chart, ChartKind, ChartSeries, OtherKeys};
use twinprobe_ebpf_common::{Context, Layout, MergeRule, MetricHead};
use twinprobe_exporter::{Metric, Number, Numbers};
use twinprobe_windows::Windows;

use crate::engine::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::probe::retained::RetainedWindows;
use crate::engine::series::points::{Points, nanoseconds};
use crate::engine::series::query::ChartQuery;
use crate::engine::series::values::{Totals, Values, json};
use crate::engine::series::walk::{Mode, TooManyKeys, Walk, mode};

/// The number of charts that are made at once. Each holds the keys of its windows.
static MAKERS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(2)));
/// The most numbers that are kept so that the windows need not be read again.
const KEPT: usize = 1 << 19;

impl Engine {
    /// Makes a chart of a metric over the retained windows. The end of a window waits for none.
    pub async fn chart(&self, name: &str, query: ChartQuery) -> Result<Chart, EngineError> {
        let RetainedWindows { windows, .. } = self.retained(name)?;
        // The semaphore is never closed. The place is that of the work: a client that hangs up does not end it.
        let place = Arc::clone(&MAKERS).acquire_owned().await;
        let name = name.to_owned();
        let made = tokio::task::spawn_blocking(move || {
            let _place = place;
            make(&windows, &name, &query)
        });
        made.await?
    }
}

/// The metric of a chart, as its newest window has it.
struct Subject {
    metric: Arc<Metric>,
    context: Context,
    field: String,
    rule: MergeRule,
    mode: Mode,
    walked: Layout,
}

fn make(windows: &Arc<Windows>, name: &str, query: &ChartQuery) -> Result<Chart, EngineError> {
    let entries = windows.list(0).windows;
    let points = Points::new(entries, (query.from, query.to), query.step).map_err(EngineError::Query)?;
    let subject = subject(windows, name, &points, query)?;
    let mut walk =
        Walk::new(windows, &subject.metric, Some(&subject.field), subject.mode, subject.walked.clone());
    let mut maker = Maker::new(&points, subject.mode);
    maker.first_pass(&mut walk).map_err(|TooManyKeys| {
        EngineError::Query("there are more than 262144 keys in that time; take a shorter one".to_owned())
    })?;
    let (ids, others) = maker.choose(&walk, &subject, query);
    let (values, rest) = maker.values(&mut walk, &subject, &ids).unwrap_or_default();
    let has_windows: Vec<bool> = maker.seconds.iter().map(|seconds| *seconds > 0.0).collect();
    let series = ids.iter().zip(values).map(|((id, key), values)| ChartSeries {
        key: key.clone(),
        total: maker.totals.get(*id).and_then(json),
        values: values.finish(&has_windows),
    });
    let series = series.collect();
    let others = rest.filter(|_| others > 0).map(|(values, total)| {
        let nothing = values.means_nothing();
        OtherKeys {
            keys: others,
            total: total.filter(|_| !nothing).and_then(json),
            values: if nothing { vec![None; has_windows.len()] } else { values.finish(&has_windows) },
        }
    });
    let time =
        |end: &i128| Timestamp::from_nanosecond(*end).map(|time| format!("{time:.3}")).unwrap_or_default();
    Ok(Chart {
        probe: name.to_owned(),
        metric: subject.metric.name.clone(),
        direction: subject.metric.direction,
        field: subject.field.clone(),
        shows: kind(subject.mode),
        times: points.ends.iter().map(time).collect(),
        seconds: maker.seconds,
        windows: maker.used,
        left_out: maker.left_out,
        series,
        others,
    })
}

/// The point that a window adds to. What is at the end of the last window before the first point is still so at its beginning.
fn begins(mode: Mode, point: Option<usize>) -> Option<usize> {
    point.or_else(|| (mode == Mode::State).then_some(0))
}

const fn kind(mode: Mode) -> ChartKind {
    match mode {
        Mode::Growth | Mode::Windows(MergeRule::Sum) => ChartKind::Increase,
        Mode::Windows(MergeRule::Max) => ChartKind::Max,
        Mode::Windows(MergeRule::Min) => ChartKind::Min,
        Mode::Windows(MergeRule::Or) => ChartKind::Or,
        Mode::Windows(MergeRule::Last) | Mode::State => ChartKind::Last,
    }
}

/// Finds the metric in the newest window that can be read.
fn subject(
    windows: &Arc<Windows>,
    name: &str,
    points: &Points,
    query: &ChartQuery,
) -> Result<Subject, EngineError> {
    let opened =
        points.windows.iter().rev().find_map(|(entry, _)| {
            windows.get(entry.seq).ok().and_then(|stored| stored.open_as_stored().ok())
        });
    let none = || EngineError::Missing(format!("probe {name} has no retained windows in that time"));
    let reader = opened.ok_or_else(none)?;
    let of_direction =
        |metric: &&MetricHead| query.direction.is_none_or(|direction| direction == metric.direction);
    let named = |metric: &&MetricHead| metric.name == query.metric;
    let found: Vec<_> = reader.head.metrics.iter().filter(named).filter(of_direction).collect();
    let head = match found[..] {
        [one] => one,
        [] => {
            let mut names: Vec<&str> = reader.head.metrics.iter().map(|metric| &*metric.name).collect();
            names.dedup();
            let (wanted, names) = (&query.metric, names.join(", "));
            return Err(EngineError::Query(format!(
                "the windows have no metric {wanted}; they have {names}"
            )));
        }
        _ => {
            let metric = &query.metric;
            let message = format!("both directions have a metric {metric}; say direction=ingress or egress");
            return Err(EngineError::Query(message));
        }
    };
    let metric: Arc<Metric> = Arc::new(head.clone().into());
    let numbers = Numbers::new(&metric, query.field.as_deref());
    let numbers = numbers.map_err(|error| EngineError::Query(format!("metric {}: {error}", query.metric)))?;
    let (rule, context) = (numbers.rule(), reader.head.context.clone());
    let (field, walked) = (numbers.path().to_owned(), numbers.layout().key.clone());
    let mode = mode(&metric, rule);
    Ok(Subject { metric, context, field, rule, mode, walked })
}

/// The numbers of some keys, and those of all others with what they come to.
type Made = (Vec<Values>, Option<(Values, Option<Number>)>);

struct Maker<'a> {
    points: &'a Points,
    mode: Mode,
    totals: Totals,
    /// The increases of the windows: the point, the key and the number. `None` if it was too much.
    kept: Option<Vec<(u32, u32, Option<Number>)>>,
    seconds: Vec<f64>,
    used: u64,
    left_out: u64,
}

impl<'a> Maker<'a> {
    fn new(points: &'a Points, mode: Mode) -> Self {
        let seconds = vec![0.0; points.ends.len()];
        Self {
            points,
            mode,
            totals: Totals::default(),
            kept: Some(Vec::new()),
            seconds,
            used: 0,
            left_out: 0,
        }
    }

    /// Goes through all windows: finds out what each key comes to, and which time each point covers.
    fn first_pass(&mut self, walk: &mut Walk<'_>) -> Result<(), TooManyKeys> {
        let mut last_end = None;
        for (entry, point) in &self.points.windows {
            let (mode, totals, kept) = (self.mode, &mut self.totals, &mut self.kept);
            let known = walk.window(entry, &mut |(id, number)| {
                let Some(point) = begins(mode, *point) else { return };
                totals.add(mode, id, number);
                if let Some(all) = kept {
                    all.push((point as u32, id, number));
                }
            })?;
            self.kept = self.kept.take().filter(|kept| kept.len() <= KEPT);
            let Some(point) = *point else {
                last_end = nanoseconds(&entry.end);
                continue;
            };
            let start = if self.mode == Mode::Growth { last_end } else { None };
            let start = start.or_else(|| nanoseconds(&entry.start));
            if let (Some(true), Some(start), Some(end)) = (known, start, nanoseconds(&entry.end)) {
                self.seconds[point] += (end - start).max(1) as f64 / 1e9;
            }
            last_end = if known == Some(false) { None } else { nanoseconds(&entry.end) };
            match known {
                Some(false) => self.left_out += 1,
                _ => self.used += 1,
            }
        }
        Ok(())
    }

    /// Returns the keys that the chart shows one by one, and how many others there are.
    fn choose(&self, walk: &Walk<'_>, subject: &Subject, query: &ChartQuery) -> (Vec<(u32, Value)>, u64) {
        let key = |id: u32| serde_json::from_str(&walk.key(id, &subject.context)).unwrap_or_default();
        if query.keys.is_empty() {
            let (ids, others) = self.totals.largest(query.top);
            return (ids.into_iter().map(|id| (id, key(id))).collect(), others);
        }
        let all = (0..walk.len() as u32).map(|id| (id, key(id)));
        (all.filter(|(_, key)| query.names(key)).collect(), 0)
    }

    /// Returns the numbers of these keys and of all others.
    fn values(
        &self,
        walk: &mut Walk<'_>,
        subject: &Subject,
        ids: &[(u32, Value)],
    ) -> Result<Made, TooManyKeys> {
        let count = self.points.ends.len();
        let mut values = vec![Values::of_key(self.mode, count); ids.len()];
        let mut others = (Values::of_many(self.mode, subject.rule, count), Totals::default());
        let places: HashMap<u32, usize> =
            ids.iter().enumerate().map(|(place, (id, _))| (*id, place)).collect();
        let mode = self.mode;
        let mut add = |point: usize, id: u32, number: Option<Number>| match places.get(&id) {
            Some(place) => values[*place].add(point, number),
            None => {
                others.0.add(point, number);
                others.1.add(mode, 0, number);
            }
        };
        if let Some(kept) = &self.kept {
            kept.iter().for_each(|(point, id, number)| add(*point as usize, *id, *number));
        } else {
            walk.rewind();
            for (entry, point) in &self.points.windows {
                walk.window(entry, &mut |(id, number)| {
                    begins(mode, *point).into_iter().for_each(|point| add(point, id, number));
                })?;
            }
        }
        let total = others.1.get(0);
        Ok((values, Some((others.0, total))))
    }
}
