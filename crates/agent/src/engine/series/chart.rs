//! The making of a chart.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Semaphore;
use twinprobe_api::{Chart, ChartKind, ChartSeries, OtherKeys};
use twinprobe_ebpf_common::{Context, MergeRule, MetricHead};
use twinprobe_exporter::{Metric, Number, Numbers};
use twinprobe_windows::{ListBounds, Windows};

use crate::engine::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::probe::retained::RetainedWindows;
use crate::engine::series::block::{Block, at_once, blocks};
use crate::engine::series::held::WantedNumbers;
use crate::engine::series::keys::{Keys, TooManyKeys};
use crate::engine::series::points::Points;
use crate::engine::series::query::ChartQuery;
use crate::engine::series::sums::{OTHER, Sums};
use crate::engine::series::values::{Totals, Values, json};
use crate::engine::series::walk::{Mode, mode};

/// The places for charts that are made at the same time. Each chart keeps the keys of its windows
/// in memory.
static MAKERS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(2)));

impl Engine {
    /// Makes a chart of a metric over the retained windows. It never delays the end of a window.
    pub async fn chart(&self, name: &str, query: ChartQuery) -> Result<Chart, EngineError> {
        let RetainedWindows { windows, .. } = self.retained(name)?;
        // The semaphore is never closed. The work holds the place: it continues after a client
        // hangs up.
        let place = Arc::clone(&MAKERS).acquire_owned().await;
        let name = name.to_owned();
        let made = tokio::task::spawn_blocking(move || {
            let _place = place;
            make(&windows, &name, &query)
        });
        made.await?
    }
}

/// The metric of a chart, as the newest window has it.
struct Subject {
    metric: Arc<Metric>,
    context: Context,
    numbers: Numbers,
    wanted: WantedNumbers,
    rule: MergeRule,
    mode: Mode,
}

/// Makes a chart from the windows of the probe `name`.
pub fn make(windows: &Arc<Windows>, name: &str, query: &ChartQuery) -> Result<Chart, EngineError> {
    let entries = windows.list(0, ListBounds::default()).windows;
    let points =
        Points::new(entries, (query.from, query.to), query.step).map_err(EngineError::Query)?;
    let subject = subject(windows, name, &points, query)?;
    let mut maker = Maker::new(windows, &subject, &points);
    let too_many = |TooManyKeys| {
        EngineError::Query(
            "there are more than 262144 keys in that time; choose a shorter time".to_owned(),
        )
    };
    maker.first_pass().map_err(too_many)?;
    let (ids, others) = maker.choose(query);
    let (values, rest) = maker.values(&ids).map_err(too_many)?;
    let has_windows: Vec<bool> = maker.seconds.iter().map(|seconds| *seconds > 0.0).collect();
    let series = ids
        .iter()
        .zip(values)
        .map(|((id, key), values)| ChartSeries {
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
            values: if nothing {
                vec![None; has_windows.len()]
            } else {
                values.finish(&has_windows)
            },
        }
    });
    let time = |end: &i128| {
        Timestamp::from_nanosecond(*end)
            .map(|time| format!("{time:.3}"))
            .unwrap_or_default()
    };
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
        source: None,
        series,
        others,
    })
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
    let opened = points.windows.iter().rev().find_map(|(entry, _)| {
        windows
            .get(entry.seq)
            .ok()
            .and_then(|stored| stored.open_as_stored().ok())
    });
    let none = || {
        EngineError::Missing(
            match windows.list(0, ListBounds::default()).windows.is_empty() {
                true => format!(
                    "probe {name} has no retained windows: window.interval, or POST /v1/probes/{name}/windows, closes some"
                ),
                false => format!("probe {name} has no retained windows in that time"),
            },
        )
    };
    let reader = opened.ok_or_else(none)?;
    let head = wanted_metric(&reader.head.metrics, query).map_err(EngineError::Query)?;
    let metric: Arc<Metric> = Arc::new(head.clone().into());
    let numbers = Numbers::new(&metric, query.field.as_deref());
    let numbers =
        numbers.map_err(|error| EngineError::Query(format!("metric {}: {error}", query.metric)))?;
    let (rule, context) = (numbers.rule(), reader.head.context.clone());
    let wanted = WantedNumbers {
        direction: metric.direction,
        metric: metric.name.clone(),
        field: numbers.path().to_owned(),
        key: numbers.layout().key.clone(),
    };
    let mode = mode(&metric, &numbers);
    Ok(Subject {
        metric,
        context,
        numbers,
        wanted,
        rule,
        mode,
    })
}

/// Finds the metric that a query names. An error names the metrics that there are.
fn wanted_metric<'a>(
    metrics: &'a [MetricHead],
    query: &ChartQuery,
) -> Result<&'a MetricHead, String> {
    let wanted = &query.metric;
    let of_direction = |metric: &&MetricHead| {
        query
            .direction
            .is_none_or(|direction| direction == metric.direction)
    };
    let named = |metric: &&MetricHead| metric.name == *wanted;
    let found: Vec<_> = metrics.iter().filter(named).filter(of_direction).collect();
    match found[..] {
        [one] => Ok(one),
        [] => {
            // A metric of both directions is named once.
            let names: BTreeSet<&str> = metrics.iter().map(|metric| &*metric.name).collect();
            let names = Vec::from_iter(names).join(", ");
            Err(format!(
                "the windows have no metric {wanted}; they have {names}"
            ))
        }
        _ => Err(format!(
            "both directions have a metric {wanted}; add direction=ingress or direction=egress"
        )),
    }
}

/// The numbers of some keys, and the sums of all other keys.
type Made = (Vec<Values>, Option<(Values, Option<Number>)>);

struct Maker<'a> {
    subject: &'a Subject,
    points: &'a Points,
    blocks: Vec<Block<'a>>,
    /// The keys of all blocks. For each block, `ids` has the numbers of its keys in this object.
    keys: Keys,
    ids: Vec<Vec<u32>>,
    totals: Totals,
    seconds: Vec<f64>,
    used: u64,
    left_out: u64,
}

impl<'a> Maker<'a> {
    fn new(windows: &'a Windows, subject: &'a Subject, points: &'a Points) -> Self {
        let count = points.ends.len();
        let blocks = blocks(
            windows,
            &subject.wanted,
            subject.mode,
            &points.windows,
            count,
        );
        let (keys, ids, totals, seconds) = (
            Keys::default(),
            Vec::new(),
            Totals::default(),
            vec![0.0; count],
        );
        Self {
            subject,
            points,
            blocks,
            keys,
            ids,
            totals,
            seconds,
            used: 0,
            left_out: 0,
        }
    }

    /// Reads all windows: computes the sum of each key, and the time that each point covers.
    fn first_pass(&mut self) -> Result<(), TooManyKeys> {
        at_once(&mut self.blocks, |_, block| block.first_pass())?;
        for block in &self.blocks {
            let of_block =
                (0..block.keys().len() as u32).map(|id| self.keys.id(block.keys().get(id)));
            let ids = of_block.collect::<Result<Vec<u32>, _>>()?;
            self.totals.join(self.subject.mode, &block.totals, &ids);
            self.ids.push(ids);
            self.seconds
                .iter_mut()
                .zip(&block.seconds)
                .for_each(|(all, own)| *all += own);
            self.used += block.used;
            self.left_out += block.left_out;
        }
        Ok(())
    }

    /// Returns the keys that the chart shows one by one, and the number of all other keys.
    fn choose(&self, query: &ChartQuery) -> (Vec<(u32, Value)>, u64) {
        let Subject {
            numbers, context, ..
        } = self.subject;
        let key = |id: u32| {
            serde_json::from_str(&numbers.key(self.keys.get(id), context)).unwrap_or_default()
        };
        if query.keys.is_empty() {
            let (ids, others) = self.totals.largest(query.top);
            return (ids.into_iter().map(|id| (id, key(id))).collect(), others);
        }
        let all = (0..self.keys.len() as u32).map(|id| (id, key(id)));
        (all.filter(|(_, key)| query.names(key)).collect(), 0)
    }

    /// Returns the numbers of these keys, and the sums of all other keys.
    fn values(&mut self, ids: &[(u32, Value)]) -> Result<Made, TooManyKeys> {
        let Subject { mode, rule, .. } = *self.subject;
        let mut places = vec![OTHER; self.keys.len()];
        for (place, (id, _)) in (0..).zip(ids) {
            places[*id as usize] = place;
        }
        let points = self.points.ends.len();
        let of_blocks = &self.ids;
        let sums = at_once(&mut self.blocks, |block, own| {
            let places = of_blocks[block]
                .iter()
                .map(|id| places[*id as usize])
                .collect();
            own.second_pass(Sums::new(mode, rule, points, places, ids.len()))
        })?;
        let mut sums = sums.into_iter();
        let Some(mut all) = sums.next() else {
            return Ok(Made::default());
        };
        sums.for_each(|later| all.join(&later));
        let total = all.total.get(0);
        Ok((all.values, Some((all.others, total))))
    }
}
