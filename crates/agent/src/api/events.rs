//! `GET /v1/probes/{name}/events`: a response that stays open and grows as programs write events.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Bytes, Frame};
use serde::Deserialize;

use super::error::Problem;
use super::{Api, negotiate};
use crate::engine::{EventStream, Framing};

const NDJSON: &str = "application/x-ndjson";
const SSE: &str = "text/event-stream";

#[derive(Debug, Deserialize)]
pub(super) struct EventsQuery {
    metric: Option<String>,
}

pub(super) async fn events(
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
    // An intermediary that waits for the end of this answer waits for ever.
    let headers = [(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::new(StreamBody(stream))).into_response())
}

fn framing(headers: &HeaderMap) -> Result<Framing, Problem> {
    let accept: Vec<&str> =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    by_accept(&accept.join(",")).ok_or_else(|| {
        let detail = format!("nothing in Accept can be had; possible are {NDJSON}, {SSE}");
        Problem::new(StatusCode::NOT_ACCEPTABLE, detail)
    })
}

/// Lines, unless the other is asked for or preferred.
fn by_accept(accept: &str) -> Option<Framing> {
    if accept.trim().is_empty() {
        return Some(Framing::Ndjson);
    }
    let ranges: Vec<(String, f32)> = accept.split(',').filter_map(negotiate::parse_range).collect();
    let quality = |media_type: &str, group: &str| {
        let of = |wanted: &str| ranges.iter().find(|(range, _)| range == wanted).map(|(_, quality)| *quality);
        of(media_type).or_else(|| of(group)).or_else(|| of("*/*")).unwrap_or(0.0)
    };
    match (quality(NDJSON, "application/*"), quality(SSE, "text/*")) {
        (lines, sse) if lines > 0.0 && lines >= sse => Some(Framing::Ndjson),
        (_, sse) if sse > 0.0 => Some(Framing::Sse),
        _ => None,
    }
}

/// The body of the answer.
struct StreamBody(EventStream);

impl hyper::body::Body for StreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_next(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
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
}
