//! `GET /metrics`: one page about the daemon and all probes. Only the rows being written are in memory: a table is gone
//! through again for each metric family that its rows belong to, and a map is read once.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, stream};
use hyper::body::Bytes;
use twinprobe_ebpf_common::Format;
use twinprobe_exporter::{PageEncoder, Plain};

use crate::api::documents::export::Current;
use crate::api::documents::negotiate::accepted;
use crate::api::documents::pieces::{CHUNK, SentPieces};
use crate::api::error::Problem;
use crate::api::state::Api;
use crate::engine::error::Broken;
use crate::engine::window::kept::Keeper;
use crate::engine::window::scrape::Scraped;
use crate::store::spool::Spools;

/// The formats of a page, the default first.
const FORMATS: [Format; 2] = [Format::OpenMetrics, Format::Prometheus];

/// Answers with the format that `Accept` prefers.
pub async fn scrape(State(api): State<Api>, headers: HeaderMap) -> Result<Response, Problem> {
    // An impossible format is refused before a window is closed.
    let format = accepted(&headers, &FORMATS)?.first().copied().unwrap_or(Format::OpenMetrics);
    let probes = api.engine.read_all().await;
    // The daemon's own metrics come after the readings, so that they count the windows that these closed.
    let own = api.engine.own_metrics().await?;
    let content_type = match format {
        Format::OpenMetrics => format!("{}; charset=utf-8", format.media_type()),
        other => other.media_type().to_owned(),
    };
    let body = Body::from_stream(ScrapeBody::new(format, probes, &own, api.engine.spools()).into_stream());
    Ok(([(header::CONTENT_TYPE, content_type)], body).into_response())
}

/// The page while it is sent. The readings count as delivered once the last piece has been taken; a page that is
/// dropped before that delivers none of them.
struct ScrapeBody {
    encoder: PageEncoder,
    /// The conversion of what the encoder writes, if the page is not OpenMetrics.
    plain: Option<Plain>,
    keeper: Keeper,
    probes: Vec<Scraped>,
    /// The probe and the metric's place in its document, by the encoder's number of the table.
    tables: Vec<(usize, usize)>,
    /// The table that is being written.
    current: Option<(usize, Current)>,
    /// The bytes that the connection has not taken yet.
    out: Vec<u8>,
    sent: SentPieces,
    /// True if nothing comes after `out`.
    complete: bool,
}

impl ScrapeBody {
    fn new(format: Format, probes: Vec<Scraped>, own: &str, spools: Spools) -> Self {
        let (mut encoder, mut tables, mut out) = (PageEncoder::new(), Vec::new(), Vec::new());
        for (probe, Scraped { delivery, .. }) in probes.iter().enumerate() {
            encoder.add_probe(&delivery.head(), delivery.skipped_before);
            for (place, part) in delivery.parts.iter().enumerate() {
                encoder.add_metric(part.direction, &part.metric, Arc::clone(&delivery.context));
                tables.push((probe, place));
            }
        }
        encoder.begin(own, &mut out);
        let mut plain = (format == Format::Prometheus).then(Plain::default);
        plain.iter_mut().for_each(|plain| plain.convert(0, &mut out));
        Self {
            encoder,
            plain,
            keeper: Keeper::new(spools),
            probes,
            tables,
            current: None,
            out,
            sent: SentPieces::default(),
            complete: false,
        }
    }

    /// Returns the pieces of the body. The page goes on with the other probes if one can't be read.
    fn into_stream(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::unfold(self, |mut page| async {
            let piece = page.piece().await?;
            Some((Ok(piece), page))
        })
    }

    /// Returns the next piece, `None` at the end.
    async fn piece(&mut self) -> Option<Bytes> {
        if self.complete {
            self.probes.iter().filter(|probe| !probe.broken).for_each(|probe| probe.delivery.complete());
            return None;
        }
        while self.out.len() < CHUNK && !self.complete {
            let start = self.out.len();
            self.write().await;
            self.plain.iter_mut().for_each(|plain| plain.convert(start, &mut self.out));
        }
        Some(self.sent.take(&mut self.out))
    }

    /// Writes some rows, or the lines between two tables.
    async fn write(&mut self) {
        if self.encoder.more(&mut self.out) {
            return;
        }
        if let Some((table, current)) = &mut self.current {
            if let Some(rows) = current.some_rows() {
                return self.encoder.rows(&rows, &mut self.out);
            }
            let (probe, place) = self.tables[*table];
            match current.advance(&mut self.probes[probe].delivery.parts[place], &mut self.keeper).await {
                Ok(true) => return,
                Ok(false) => self.current = None,
                Err(error) => {
                    let table = *table;
                    return self.give_up(table, &error);
                }
            }
        }
        let Some(table) = self.encoder.next_table(&mut self.out) else { return self.finish() };
        let (probe, place) = self.tables[table];
        let (part, again) = (&self.probes[probe].delivery.parts[place], self.encoder.asks_again());
        match Current::new(part, again, &mut self.keeper) {
            Ok(current) => self.current = Some((table, current)),
            Err(error) => self.give_up(table, &error),
        }
    }

    /// Abandons a probe's table that can't be read. The page keeps what it has of the probe; the next client gets the
    /// reading again.
    fn give_up(&mut self, table: usize, error: &Broken) {
        self.encoder.abandon();
        self.current = None;
        let probe = &mut self.probes[self.tables[table].0];
        tracing::warn!(probe = probe.delivery.probe, %error, "a part of the probe is left out of /metrics");
        if !std::mem::replace(&mut probe.broken, true) {
            probe.counters.read_failures.inc();
        }
    }

    fn finish(&mut self) {
        let skipped = self.encoder.finish(&mut self.out);
        for (probe, skipped) in self.probes.iter().zip(skipped) {
            probe.delivery.skipped(skipped);
        }
        self.complete = true;
    }
}
