//! The steps to a chart of history: find the names of the samples, send the query, and convert the
//! server's answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::spawn_blocking;
use twinprobe_api::Chart;
use twinprobe_client::{RangeQuestion, range_answer};
use twinprobe_exporter::{ExportedNumber, Metric, Numbers};

use crate::engine::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::series::query::ChartQuery;
use crate::history::answer::chart;
use crate::history::expression::{HistorySubject, TAKEN};
use crate::history::options::HistorySource;
use crate::history::steps::{HistorySteps, LATE};

/// The longest wait for a server's answer.
const PATIENCE: Duration = Duration::from_secs(5);

impl HistorySource {
    /// Makes a chart of a metric from the samples that the server has stored.
    pub async fn chart(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        name: &str,
        query: ChartQuery,
    ) -> Result<Chart, EngineError> {
        if !query.keys.is_empty() {
            return Err(EngineError::Query(
                "history has the largest keys only; leave key out".to_owned(),
            ));
        }
        let wanted = Arc::new(query);
        let (node, of_probe) = (engine.node.clone(), Arc::clone(&wanted));
        let told = engine
            .in_turn(name, move |probe| probe.exported(&of_probe.metric))
            .await?;
        let subject =
            subject(name, node, told.metrics, &told.labels, &wanted).map_err(EngineError::Query)?;
        let now = Timestamp::now().as_nanosecond();
        let steps = HistorySteps::new(&wanted, now, told.interval).map_err(EngineError::Query)?;
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
        let source = Arc::clone(self);
        // The files of credentials and of the system's authorities are read.
        let http = spawn_blocking(move || source.server.prepare(&source.credentials()?));
        let http = http.await?.map_err(EngineError::History)?;
        let question = RangeQuestion {
            expression: subject.expression(steps, wanted.top),
            start: steps.first as f64 + LATE,
            end: (steps.first + steps.range() - steps.step) as f64 + LATE,
            step: steps.step,
        };
        let body = self
            .server
            .ask(&http, &question, PATIENCE)
            .await
            .map_err(EngineError::History)?;
        let host = self.server.to_string();
        // The numbers of an answer of some MiB take a while.
        let made = spawn_blocking(move || {
            let answer = range_answer(&body)
                .map_err(|error| EngineError::History(format!("{host}: {error}")))?;
            if answer.is_empty() {
                return Err(EngineError::Missing(nothing(&subject, &host)));
            }
            Ok(chart(&subject, steps, wanted.top, host, answer))
        });
        made.await?
    }
}

/// Finds the requested number among the metrics of a probe with this name.
fn subject(
    probe: &str,
    node: String,
    metrics: Vec<Arc<Metric>>,
    labels: &BTreeMap<String, String>,
    query: &ChartQuery,
) -> Result<HistorySubject, String> {
    let is_it = |metric: &Arc<Metric>| {
        query
            .direction
            .is_none_or(|direction| direction == metric.direction)
    };
    let name = &query.metric;
    let found: Vec<_> = metrics.into_iter().filter(is_it).collect();
    let metric = match &found[..] {
        [one] => one,
        [] => {
            return Err(format!(
                "the probe shows no metric {name} there; GET /v1/probes/{probe} has its metrics"
            ));
        }
        _ => {
            return Err(format!(
                "both directions have a metric {name}; say direction=ingress or egress"
            ));
        }
    };
    let of_metric = |error: String| format!("metric {name}: {error}");
    let numbers = Numbers::new(metric, query.field.as_deref())
        .map_err(|error| of_metric(error.to_string()))?;
    let number = ExportedNumber::new(metric, numbers.path(), labels);
    let number =
        number.map_err(|error| of_metric(format!("there is no history of it: {error}")))?;
    if let Some(label) = number
        .by
        .iter()
        .find(|label| TAKEN.contains(&label.as_str()))
    {
        return Err(of_metric(format!(
            "there is no history of it: its key has the label {label}, which servers give another meaning"
        )));
    }
    Ok(HistorySubject {
        probe: probe.to_owned(),
        node,
        metric: name.clone(),
        direction: metric.direction,
        field: numbers.path().to_owned(),
        number,
        temporality: metric.temporality,
        rule: numbers.rule(),
    })
}

/// Returns the reason why an answer has no numbers, and what to do.
fn nothing(subject: &HistorySubject, host: &str) -> String {
    let HistorySubject {
        probe,
        node,
        number,
        ..
    } = subject;
    let way = match subject.is_of_windows() {
        true => {
            "each window resets it, so that only `twinprobe stream` brings all of its counts there"
        }
        false => "let it scrape /metrics, or send windows with `twinprobe stream`",
    };
    format!(
        "{host} has no samples {} of probe {probe} of node {node} in that time: {way}",
        number.name
    )
}
