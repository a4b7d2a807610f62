//! The largest entries of each metric of a reading, as `top` and `by` ask for them.

use std::sync::Arc;

use axum::http::StatusCode;
use serde::Deserialize;
use twinprobe_ebpf_common::Format;
use twinprobe_exporter::{LargestRows, Metric, NoNumber};

use crate::api::error::ProblemAnswer;
use crate::engine::error::EngineError;
use crate::engine::window::delivery::{Delivery, DocumentPart, Rows};

/// The most entries of a metric that a request may ask for: they are in memory during the choice.
const MOST: usize = 10_000;
/// The most metrics that an error mentions.
const MOST_REASONS: usize = 4;

/// The number of entries that a client requests, and the number by which these entries are the
/// largest.
#[derive(Debug, Default, Deserialize)]
pub struct TopQuery {
    pub top: Option<usize>,
    pub by: Option<String>,
}

impl TopQuery {
    /// Refuses an impossible choice before anything is read.
    pub fn check(&self) -> Result<(), ProblemAnswer> {
        let detail = match (self.top, &self.by) {
            (None, Some(_)) => {
                "by chooses the entries that top leaves; it needs top, the number of entries"
                    .to_owned()
            }
            (Some(top), _) if !(1..=MOST).contains(&top) => {
                format!("top={top} is not a number of entries; use 1 to {MOST}")
            }
            _ => return Ok(()),
        };
        Err(ProblemAnswer::new(StatusCode::BAD_REQUEST, detail))
    }

    /// Keeps the largest entries of each metric, and the sum of all others. Pages of samples make
    /// their own choice.
    pub async fn choose(
        &self,
        mut delivery: Delivery,
        format: Format,
    ) -> Result<Delivery, EngineError> {
        let Some(top) = self.top else {
            return Ok(delivery);
        };
        let chosen = delivery
            .parts
            .iter()
            .map(|part| LargestRows::new(&part.metric, top, self.by.as_deref()));
        let chosen: Vec<_> = chosen.collect();
        // A document may have metrics without the number; their first counter then decides the
        // order.
        if chosen.iter().any(Result::is_err)
            && !chosen.iter().any(|chosen| matches!(chosen, Ok(Some(_))))
        {
            return Err(EngineError::Query(format!(
                "by: {}",
                reasons(&delivery.parts, &chosen)
            )));
        }
        let boot_time_ns = delivery.context.boot_time_ns;
        for (part, chosen) in delivery.parts.iter_mut().zip(chosen) {
            let has_number = chosen.is_ok();
            if matches!(format, Format::OpenMetrics | Format::Prometheus) {
                let by = self.by.clone().filter(|_| has_number);
                part.metric = limited(&part.metric, top as u64, by);
                continue;
            }
            let chosen = chosen
                .or_else(|_| LargestRows::new(&part.metric, top, None))
                .ok()
                .flatten();
            if let Some(chosen) = chosen {
                leave(part, chosen, boot_time_ns).await?;
            }
        }
        Ok(delivery)
    }
}

/// Returns the reasons of the metrics if no metric has a number. Only metrics with named numbers
/// give a useful reason.
fn reasons(parts: &[DocumentPart], chosen: &[Result<Option<LargestRows>, NoNumber>]) -> String {
    let errors: Vec<(&str, &NoNumber)> = parts
        .iter()
        .zip(chosen)
        .filter_map(|(part, chosen)| Some((&*part.metric.name, chosen.as_ref().err()?)))
        .collect();
    let has_names = errors.iter().any(|(_, error)| error.1);
    let mut texts: Vec<String> = Vec::new();
    for (metric, error) in errors.iter().filter(|(_, error)| error.1 == has_names) {
        let text = format!("{metric}: {error}");
        if !texts.contains(&text) && texts.len() < MOST_REASONS {
            texts.push(text);
        }
    }
    texts.join("; ")
}

/// Limits the entries that become samples. A lower limit of the configuration stays.
fn limited(metric: &Arc<Metric>, top: u64, by: Option<String>) -> Arc<Metric> {
    if !metric.layout.kind.has_keys() || metric.has_slots() {
        return Arc::clone(metric);
    }
    Arc::new(Metric::clone(metric).with(|head| {
        head.series.max_series = Some(head.series.max_series.map_or(top, |known| known.min(top)));
        head.series.series_by = by.or_else(|| head.series.series_by.take());
    }))
}

async fn leave(
    part: &mut DocumentPart,
    mut chosen: LargestRows,
    boot_time_ns: i128,
) -> Result<(), EngineError> {
    let mut cursor = part.rows.cursor(|| None)?;
    while let Some(rows) = cursor.next().await? {
        chosen.add(&rows, boot_time_ns);
    }
    let (metric, rows) = chosen.finish();
    (part.metric, part.rows) = (metric, Rows::Held(Arc::new(rows)));
    Ok(())
}
