//! `GET /metrics`: one page about the daemon and all probes. Only the rows being written are in
//! memory. The page needs a table once for each metric family of its rows, but reads each map only
//! once.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use twinprobe_ebpf_common::RawTable;
use twinprobe_exporter::{PageConversion, PageEncoder, PageFormat};

use crate::api::documents::negotiate::accepted;
use crate::api::documents::rendering::{Renderable, Rendering};
use crate::api::error::ProblemAnswer;
use crate::api::state::Api;
use crate::engine::error::Broken;
use crate::engine::window::delivery::DocumentPart;
use crate::engine::window::scrape::Scraped;
use crate::store::spool::Spools;

/// Answers with the format that `Accept` prefers.
pub async fn scrape(State(api): State<Api>, headers: HeaderMap) -> Result<Response, ProblemAnswer> {
    // An impossible format is refused before a window is closed.
    let formats = PageFormat::ALL.map(|format| (format.media_type(), format));
    let format = accepted(&headers, &formats)?
        .first()
        .copied()
        .unwrap_or(PageFormat::OpenMetrics);
    let probes = api.engine.read_all().await;
    // The daemon's own metrics come after the readings: readings may close windows, and these
    // metrics count them.
    let own = api.engine.own_metrics().await?;
    let body =
        Body::from_stream(page(format, probes, &own, api.engine.deployer.spools()).into_stream());
    Ok(([(header::CONTENT_TYPE, format.media_type())], body).into_response())
}

/// The readings of all probes. The page continues with the other probes if one can't be read.
struct ScrapePage {
    encoder: PageEncoder,
    /// The conversion of the encoder's output.
    conversion: PageConversion,
    probes: Vec<Scraped>,
    /// The probe and the metric's place in its document, by the encoder's number of the table.
    tables: Vec<(usize, usize)>,
}

/// Begins a page. `own` has the daemon's own metrics.
fn page(
    format: PageFormat,
    probes: Vec<Scraped>,
    own: &str,
    spools: Spools,
) -> Rendering<ScrapePage> {
    let (mut encoder, mut tables, mut out) = (PageEncoder::new(), Vec::new(), Vec::new());
    for (probe, Scraped { delivery, .. }) in probes.iter().enumerate() {
        encoder.add_probe(&delivery.head(), delivery.skipped_before);
        for (place, part) in delivery.parts.iter().enumerate() {
            encoder.add_metric(&part.metric, Arc::clone(&delivery.context));
            tables.push((probe, place));
        }
    }
    encoder.begin(own, &mut out);
    let mut conversion = PageConversion::new(format);
    conversion.convert(0, &mut out);
    Rendering::new(
        ScrapePage {
            encoder,
            conversion,
            probes,
            tables,
        },
        out,
        spools,
    )
}

impl Renderable for ScrapePage {
    fn next_table(&mut self, out: &mut Vec<u8>) -> Option<usize> {
        self.encoder.next_table(out)
    }

    fn asks_again(&self) -> bool {
        self.encoder.asks_again()
    }

    fn part(&mut self, table: usize) -> &mut DocumentPart {
        let (probe, place) = self.tables[table];
        &mut self.probes[probe].delivery.parts[place]
    }

    fn rows(&mut self, rows: &RawTable, out: &mut Vec<u8>) {
        self.encoder.rows(rows, out);
    }

    fn more(&mut self, out: &mut Vec<u8>) -> bool {
        self.encoder.more(out)
    }

    /// The page keeps the finished rows of the probe, and the next client gets the reading again.
    fn give_up(&mut self, table: usize, error: Broken) -> Result<(), Broken> {
        self.encoder.abandon();
        let probe = &mut self.probes[self.tables[table].0];
        tracing::warn!(probe = probe.delivery.probe, %error, "a part of the probe is left out of /metrics");
        if !std::mem::replace(&mut probe.broken, true) {
            probe.counters.read_failures.inc();
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        let skipped = self.encoder.finish(out);
        for (probe, skipped) in self.probes.iter().zip(skipped) {
            probe.delivery.skipped(skipped);
        }
    }

    fn convert(&mut self, start: usize, out: &mut Vec<u8>) {
        self.conversion.convert(start, out);
    }

    fn taken(&self) {
        self.probes
            .iter()
            .filter(|probe| !probe.broken)
            .for_each(|probe| probe.delivery.complete());
    }

    fn broke_off(&self, error: &Broken) {
        tracing::warn!(%error, "an answer to GET /metrics broke off before its end");
    }
}
