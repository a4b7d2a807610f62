//! The documents of many windows in one answer: a list, and then a line of JSON for each window in
//! it. A separate request for each window would cost more than the rendering of small documents.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, stream};
use hyper::body::Bytes;
use twinprobe_ebpf_common::Format;
use twinprobe_ebpf_common::window::Listing;

use crate::api::documents::document::{self, OneDocument};
use crate::api::documents::negotiate::accepted;
use crate::api::documents::pieces::{CHUNK, SentPieces};
use crate::api::documents::rendering::Rendering;
use crate::api::error::ProblemAnswer;
use crate::engine::engine::Engine;
use crate::engine::error::{Broken, EngineError};
use crate::engine::window::collect::{RunWindow, WindowRun};

const NDJSON: &str = "application/x-ndjson";

/// Refuses a request that does not take lines of JSON.
pub fn check(headers: &HeaderMap) -> Result<(), ProblemAnswer> {
    accepted(headers, &[(NDJSON, ())]).map(drop)
}

/// The lines of an unfinished answer: a list, and for each window of it the document, or `null` if
/// the window was removed. Only the part that is being written is in memory. A slow client delays
/// only its own answer.
struct WindowLines {
    run: WindowRun,
    /// True if the shape of a document is sent before the document whenever it differs from the
    /// last sent shape.
    with_shapes: bool,
    engine: Arc<Engine>,
    /// The number of the window whose document is being written.
    current: Option<(u64, Rendering<OneDocument>)>,
    out: Vec<u8>,
    sent: SentPieces,
    /// The windows whose documents have ended in the last piece.
    written: Vec<u64>,
}

/// Begins the answer. An unreadable first window leads to an error status and not to an answer that
/// breaks off.
pub async fn answer(
    listing: &Listing,
    run: WindowRun,
    with_shapes: bool,
    engine: Arc<Engine>,
) -> Result<Response, EngineError> {
    let (sent, out) = (SentPieces::default(), Vec::with_capacity(CHUNK));
    let mut lines = WindowLines {
        run,
        with_shapes,
        engine,
        current: None,
        out,
        sent,
        written: Vec::new(),
    };
    lines.json(listing);
    lines.out.push(b'\n');
    lines.begin_next().await?;
    let body = Body::from_stream(lines.into_stream());
    Ok(([(header::CONTENT_TYPE, NDJSON)], body).into_response())
}

impl WindowLines {
    fn json(&mut self, value: &impl serde::Serialize) {
        // Writing to a Vec does not fail.
        let _ = serde_json::to_writer(&mut self.out, value);
    }

    fn into_stream(self) -> impl Stream<Item = Result<Bytes, Broken>> {
        stream::try_unfold(self, |mut lines| async {
            let piece = lines.piece().await.inspect_err(|error| {
                tracing::warn!(%error, "an answer with several windows broke off before its end");
            })?;
            Ok(piece.map(|piece| (piece, lines)))
        })
    }

    /// Returns the next piece, `None` at the end.
    async fn piece(&mut self) -> Result<Option<Bytes>, Broken> {
        for seq in self.written.drain(..) {
            self.run.taken(seq);
        }
        while self.out.len() < CHUNK {
            if let Some((seq, document)) = &mut self.current {
                if document.append_to(&mut self.out).await? {
                    self.out.push(b'\n');
                    self.written.push(*seq);
                    self.current = None;
                }
            } else if !self
                .begin_next()
                .await
                .map_err(|error| Broken(error.to_string()))?
            {
                break;
            }
        }
        Ok((!self.out.is_empty()).then(|| self.sent.take(&mut self.out)))
    }

    /// Begins the document of the next window. Returns false after the last one.
    async fn begin_next(&mut self) -> Result<bool, EngineError> {
        let Some(RunWindow {
            seq,
            delivery,
            is_alike,
        }) = self.run.next().await?
        else {
            return Ok(false);
        };
        let Some(delivery) = delivery else {
            self.out.extend_from_slice(b"null\n");
            return Ok(true);
        };
        if self.with_shapes && !is_alike {
            self.out.extend_from_slice(b"{\"shape\":");
            self.json(&delivery.shape(self.engine.deployer.pods.has_owners()));
            self.out.extend_from_slice(b"}\n");
        }
        self.current = Some((
            seq,
            document::begin(delivery, Format::Json, &self.engine.deployer).await?,
        ));
        Ok(true)
    }
}
