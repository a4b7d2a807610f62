//! The making of a chart.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Semaphore;
use twinprobe_api::{Chart, ChartKind, ChartSeries, OtherKeys};
use twinprobe_ebpf_common::{Context, MergeRule, MetricHead};
use twinprobe_exporter::{Metric, Number, Numbers};
use twinprobe_windows::Windows;

use crate::engine::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::probe::retained::RetainedWindows;
use crate::engine::series::ahead::{WantedNumbers, through};
use crate::engine::series::kept::KeptNumbers;
use crate::engine::series::keys::TooManyKeys;
use crate::engine::series::points::{Points, nanoseconds};
use crate::engine::series::query::ChartQuery;
use crate::engine::series::values::{Totals, Values, json};
use crate::engine::series::walk::{Mode, Walk, mode};

/// The number of charts that are made at once. Each holds the keys of its windows.
static MAKERS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(2)));
/// Says that a key is one of the others.
const OTHER: u32 = u32::MAX;

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
    numbers: Numbers,
    wanted: WantedNumbers,
    rule: MergeRule,
    mode: Mode,
}

/// Makes a chart of the windows of the probe `name`.
pub fn make(windows: &Arc<Windows>, name: &str, query: &ChartQuery) -> Result<Chart, EngineError> {
    let entries = windows.list(0).windows;
    let points = Points::new(entries, (query.from, query.to), query.step).map_err(EngineError::Query)?;
    let subject = subject(windows, name, &points, query)?;
    let mut walk = Walk::new(windows, &subject.wanted, subject.mode);
    let mut maker = Maker::new(windows, &subject, &points);
    maker.first_pass(&mut walk).map_err(|TooManyKeys| {
        EngineError::Query("there are more than 262144 keys in that time; take a shorter one".to_owned())
    })?;
    let (ids, others) = maker.choose(&walk, query);
    let (values, rest) = maker.values(&mut walk, &ids).unwrap_or_default();
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
        field: subject.wanted.field.clone(),
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
        Mode::Growth { .. } | Mode::Windows(MergeRule::Sum) => ChartKind::Increase,
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
    let wanted = WantedNumbers {
        direction: metric.direction,
        metric: metric.name.clone(),
        field: numbers.path().to_owned(),
        key: numbers.layout().key.clone(),
    };
    let mode = mode(&metric, &numbers);
    Ok(Subject { metric, context, numbers, wanted, rule, mode })
}

/// The numbers of some keys, and those of all others with what they come to.
type Made = (Vec<Values>, Option<(Values, Option<Number>)>);

struct Maker<'a> {
    windows: &'a Windows,
    subject: &'a Subject,
    points: &'a Points,
    totals: Totals,
    /// The numbers that the windows add; `None` if they were too many.
    kept: Option<KeptNumbers>,
    seconds: Vec<f64>,
    used: u64,
    left_out: u64,
}

impl<'a> Maker<'a> {
    fn new(windows: &'a Windows, subject: &'a Subject, points: &'a Points) -> Self {
        let (totals, kept, seconds) =
            (Totals::default(), Some(KeptNumbers::default()), vec![0.0; points.ends.len()]);
        Self { windows, subject, points, totals, kept, seconds, used: 0, left_out: 0 }
    }

    /// Goes through all windows: finds out what each key comes to, and which time each point covers.
    fn first_pass(&mut self, walk: &mut Walk<'_>) -> Result<(), TooManyKeys> {
        let mut last_end = None;
        let Self { windows, subject, points, totals, kept, seconds, used, left_out } = self;
        let mode = subject.mode;
        through(windows, &subject.wanted, &points.windows, |entry, point, read| {
            let adds_to = begins(mode, point);
            let known = walk.window(read, &mut |(id, number)| {
                if adds_to.is_none() {
                    return;
                }
                totals.add(mode, id, number);
                if let Some(kept) = kept {
                    kept.add(id, number);
                }
            })?;
            if let Some(point) = adds_to {
                *kept = kept.take().and_then(|mut kept| kept.end(point).then_some(kept));
            }
            let Some(point) = point else {
                last_end = nanoseconds(&entry.end);
                return Ok(());
            };
            let start = if matches!(mode, Mode::Growth { .. }) { last_end } else { None };
            let start = start.or_else(|| nanoseconds(&entry.start));
            if let (Some(true), Some(start), Some(end)) = (known, start, nanoseconds(&entry.end)) {
                seconds[point] += (end - start).max(1) as f64 / 1e9;
            }
            last_end = if known == Some(false) { None } else { nanoseconds(&entry.end) };
            match known {
                Some(false) => *left_out += 1,
                _ => *used += 1,
            }
            Ok(())
        })
    }

    /// Returns the keys that the chart shows one by one, and how many others there are.
    fn choose(&self, walk: &Walk<'_>, query: &ChartQuery) -> (Vec<(u32, Value)>, u64) {
        let Subject { numbers, context, .. } = self.subject;
        let key =
            |id: u32| serde_json::from_str(&numbers.key(walk.keys.get(id), context)).unwrap_or_default();
        if query.keys.is_empty() {
            let (ids, others) = self.totals.largest(query.top);
            return (ids.into_iter().map(|id| (id, key(id))).collect(), others);
        }
        let all = (0..walk.keys.len() as u32).map(|id| (id, key(id)));
        (all.filter(|(_, key)| query.names(key)).collect(), 0)
    }

    /// Returns the numbers of these keys and of all others.
    fn values(&self, walk: &mut Walk<'_>, ids: &[(u32, Value)]) -> Result<Made, TooManyKeys> {
        let Subject { mode, rule, wanted, .. } = self.subject;
        let mut sums = Sums::new(*mode, *rule, self.points.ends.len(), ids, walk.keys.len());
        if let Some(kept) = &self.kept {
            for window in kept.windows() {
                let small = window.small().filter(|_| adds(*mode));
                match small {
                    Some(small) => sums.add_small(window.point, small),
                    None => window.all().for_each(|(id, number)| sums.add(window.point, id, number)),
                }
            }
        } else {
            walk.rewind();
            through(self.windows, wanted, &self.points.windows, |_, point, read| {
                let point = begins(*mode, point);
                walk.window(read, &mut |(id, number)| {
                    point.into_iter().for_each(|point| sums.add(point, id, number));
                })?;
                Ok(())
            })?;
        }
        let total = sums.total.get(0);
        Ok((sums.values, Some((sums.others, total))))
    }
}

/// Tells whether what comes at one point adds up.
const fn adds(mode: Mode) -> bool {
    matches!(mode, Mode::Growth { .. } | Mode::Windows(MergeRule::Sum))
}

/// The numbers of the keys of a chart, and of all others together.
struct Sums {
    mode: Mode,
    /// The place of each key among those of the chart, or [`OTHER`].
    places: Vec<u32>,
    values: Vec<Values>,
    others: Values,
    total: Totals,
}

impl Sums {
    fn new(mode: Mode, rule: MergeRule, points: usize, ids: &[(u32, Value)], keys: usize) -> Self {
        let mut places = vec![OTHER; keys];
        for (place, (id, _)) in (0..).zip(ids) {
            places[*id as usize] = place;
        }
        let values = vec![Values::of_key(mode, points); ids.len()];
        let others = Values::of_many(mode, rule, points);
        Self { mode, places, values, others, total: Totals::default() }
    }

    fn add(&mut self, point: usize, id: u32, number: Option<Number>) {
        // A window that was closed meanwhile may have further keys.
        match self.places.get(id as usize) {
            Some(&place) if place != OTHER => self.values[place as usize].add(point, number),
            _ => {
                self.others.add(point, number);
                self.total.add(self.mode, 0, number);
            }
        }
    }

    /// Does the same for the small numbers of a window where numbers add up.
    fn add_small(&mut self, point: usize, numbers: impl Iterator<Item = (u32, u32)>) {
        let (mut sum, mut has_others) = (0_u64, false);
        for (id, number) in numbers {
            match self.places[id as usize] {
                OTHER => {
                    sum += u64::from(number);
                    has_others = true;
                }
                place => self.values[place as usize].add(point, Some(Number::Integer(number.into()))),
            }
        }
        if has_others {
            let sum = Some(Number::Integer(sum.into()));
            self.others.add(point, sum);
            self.total.add(self.mode, 0, sum);
        }
    }
}
