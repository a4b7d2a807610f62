//! `GET /v1/probes/{name}/events`: an answer that stays open, and to which the events of programs
//! are added.

use std::task::Context;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use crate::api::documents::negotiate;
use crate::api::error::ProblemAnswer;
use crate::api::extract::{Path, Query};
use crate::api::state::Api;
use crate::api::streams::body::{SILENCE, StreamBody};
use crate::engine::error::EngineError;
use crate::engine::events::framing::Framing;
use twinprobe_access::Principal;

const NDJSON: &str = "application/x-ndjson";
const SSE: &str = "text/event-stream";
#[derive(Debug, Deserialize)]
pub struct EventsQuery {
    metric: Option<String>,
}

/// Answers `GET /v1/probes/{name}/events`.
pub async fn events(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(query): Query<EventsQuery>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
) -> Result<Response, ProblemAnswer> {
    let framing = framing(&headers)?;
    let place = api
        .engine
        .streaming
        .places
        .take(&principal.who)
        .map_err(EngineError::from)?;
    let stream = api
        .engine
        .stream(&name, query.metric.as_deref(), framing)
        .await?;
    let media_type = match framing {
        Framing::Ndjson => NDJSON,
        Framing::Sse => SSE,
    };
    // A proxy that caches would wait for the end of this answer, which never comes.
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CACHE_CONTROL, "no-store"),
    ];
    let keep_alive = (framing == Framing::Sse).then_some(SILENCE);
    let next = move |context: &mut Context<'_>| {
        let _held = &place;
        stream.poll_next(context)
    };
    let body = StreamBody::new(next, keep_alive);
    Ok((headers, Body::new(body)).into_response())
}

fn framing(headers: &HeaderMap) -> Result<Framing, ProblemAnswer> {
    let accept = negotiate::accept(headers).unwrap_or_default();
    by_accept(&accept).ok_or_else(|| negotiate::not_acceptable(&[NDJSON, SSE]))
}

/// Chooses lines of JSON, unless the client asks only for an event stream or prefers one.
fn by_accept(accept: &str) -> Option<Framing> {
    if accept.trim().is_empty() {
        return Some(Framing::Ndjson);
    }
    let ranges = negotiate::parse(accept);
    let quality = |media_type| negotiate::quality(&ranges, media_type);
    match (quality(NDJSON), quality(SSE)) {
        (lines, sse) if lines > 0.0 && lines >= sse => Some(Framing::Ndjson),
        (_, sse) if sse > 0.0 => Some(Framing::Sse),
        _ => None,
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
