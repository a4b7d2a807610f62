//! `GET /v1/probes/{name}/events`: a response that stays open and grows as programs write events.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Bytes, Frame};
use serde::Deserialize;
use tokio::time::{Instant, Sleep};

use crate::api::documents::negotiate;
use crate::api::error::Problem;
use crate::api::extract::{Path, Query};
use crate::api::state::Api;
use crate::engine::events::framing::Framing;

const NDJSON: &str = "application/x-ndjson";
const SSE: &str = "text/event-stream";
/// A comment of an event stream, which every client skips. Lines of JSON have no such filler.
const COMMENT: &[u8] = b": keep-alive\n\n";
/// The longest time for which an event stream sends nothing. Proxies close a connection that is silent for a minute.
const SILENCE: Duration = Duration::from_secs(15);

#[derive(Debug, Deserialize)]
pub struct EventsQuery {
    metric: Option<String>,
}

/// Answers `GET /v1/probes/{name}/events`.
pub async fn events(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let framing = framing(&headers)?;
    let stream = api.engine.stream(&name, query.metric.as_deref(), framing).await?;
    let media_type = match framing {
        Framing::Ndjson => NDJSON,
        Framing::Sse => SSE,
    };
    // A proxy that caches would wait for the end of this answer, which never comes.
    let headers = [(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, "no-store")];
    let keep_alive = (framing == Framing::Sse).then_some(SILENCE);
    let body = StreamBody::new(move |context: &mut Context<'_>| stream.poll_next(context), keep_alive);
    Ok((headers, Body::new(body)).into_response())
}

fn framing(headers: &HeaderMap) -> Result<Framing, Problem> {
    let accept = negotiate::accept(headers).unwrap_or_default();
    by_accept(&accept).ok_or_else(|| negotiate::not_acceptable(&[NDJSON, SSE]))
}

/// Chooses lines of JSON, unless the client asks only for an event stream or prefers one.
fn by_accept(accept: &str) -> Option<Framing> {
    if accept.trim().is_empty() {
        return Some(Framing::Ndjson);
    }
    let ranges = negotiate::parse(accept);
    let anything = negotiate::quality(&ranges, "*/*").unwrap_or(0.0);
    let quality = |media_type| negotiate::quality(&ranges, media_type).unwrap_or(anything);
    match (quality(NDJSON), quality(SSE)) {
        (lines, sse) if lines > 0.0 && lines >= sse => Some(Framing::Ndjson),
        (_, sse) if sse > 0.0 => Some(Framing::Sse),
        _ => None,
    }
}

/// The body of the answer: the bytes that `next` yields, and a comment whenever `next` has yielded nothing for too
/// long.
struct StreamBody<F> {
    next: F,
    keep_alive: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl<F: FnMut(&mut Context<'_>) -> Poll<Option<Bytes>>> StreamBody<F> {
    fn new(next: F, silence: Option<Duration>) -> Self {
        Self { next, keep_alive: silence.map(|silence| (silence, Box::pin(tokio::time::sleep(silence)))) }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let next = (self.next)(context);
        let Some((silence, timer)) = &mut self.keep_alive else { return next };
        let next = match next {
            Poll::Pending => timer.as_mut().poll(context).map(|()| Some(Bytes::from_static(COMMENT))),
            ready => ready,
        };
        if next.is_ready() {
            timer.as_mut().reset(Instant::now() + *silence);
        }
        next
    }
}

impl<F: FnMut(&mut Context<'_>) -> Poll<Option<Bytes>> + Unpin> hyper::body::Body for StreamBody<F> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.poll_next(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_unless_the_other_is_preferred() {
        let (lines, sse) = (Some(Framing::Ndjson), Some(Framing::Sse));
        for (accept, expected) in [
            ("", lines),
            ("*/*", lines),
            ("application/x-ndjson", lines),
            ("text/event-stream", sse),
            ("text/event-stream, */*;q=0.5", sse),
            ("text/event-stream;q=0.1, application/*", lines),
            ("text/*", sse),
            ("application/json", None),
            ("application/x-ndjson;q=0", None),
        ] {
            assert_eq!(by_accept(accept), expected, "{accept}");
        }
    }

    /// Returns what a body sends within half a second if `events` come at once and nothing comes after them.
    async fn parts(events: &[&'static [u8]], silence: Option<Duration>) -> Vec<Bytes> {
        let mut events = events.iter();
        let next = move |_: &mut Context<'_>| {
            events.next().map_or(Poll::Pending, |event| Poll::Ready(Some(Bytes::from_static(event))))
        };
        let (mut body, mut parts) = (StreamBody::new(next, silence), Vec::new());
        let read = async {
            while let Some(part) = std::future::poll_fn(|context| body.poll_next(context)).await {
                parts.push(part);
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(500), read).await;
        parts
    }

    #[tokio::test]
    async fn silent_streams_have_comments_where_that_is_asked_for() {
        let sse = parts(&[b"data: 1\n\n", b"data: 2\n\n"], Some(Duration::from_millis(100))).await;
        assert_eq!(sse[..3], [&b"data: 1\n\n"[..], b"data: 2\n\n", COMMENT]);
        // Comments repeat at the interval, not at every poll.
        assert!((4..=7).contains(&sse.len()), "{sse:?}");
        assert_eq!(parts(&[b"{}\n"], None).await, [&b"{}\n"[..]]);
    }
}
