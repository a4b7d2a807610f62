//! `GET /v1/changes`: the changes of probes and windows, as they happen.

use std::task::Context;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::Stream as _;
use serde::Deserialize;

use crate::api::error::ProblemAnswer;
use crate::api::extract::Query;
use crate::api::state::Api;
use crate::api::streams::body::{SILENCE, StreamBody};
use crate::engine::error::EngineError;
use crate::engine::events::changes::ConsoleReach;
use twinprobe_access::Principal;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangesQuery {
    probe: Option<String>,
}

/// Answers `GET /v1/changes`.
pub async fn changes(
    State(api): State<Api>,
    Query(query): Query<ChangesQuery>,
    Extension(principal): Extension<Principal>,
) -> Result<Response, ProblemAnswer> {
    if let Some(name) = &query.probe {
        api.engine.registry.get(name)?;
    }
    let place = api
        .engine
        .streaming
        .places
        .take(&principal.who)
        .map_err(EngineError::from)?;
    let reach = ConsoleReach {
        history: api.history.as_ref().map(|source| source.server.to_string()),
        nodes: api.nodes.as_ref().map(|file| file.book().nodes.len()),
    };
    let mut changes = Box::pin(api.engine.follow_changes(&principal, query.probe, reach));
    let next = move |context: &mut Context<'_>| {
        let _held = &place;
        changes.as_mut().poll_next(context)
    };
    let body = StreamBody::new(next, Some(SILENCE));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((headers, Body::new(body)).into_response())
}
