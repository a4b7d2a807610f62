//! Handlers of `/v1/probes/{name}/maps/{map}/entries`.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use tokio::task::spawn_blocking;
use twinprobe_access::RecordNotes;
use twinprobe_api::{parse_entries, parse_entries_yaml};

use crate::api::error::ProblemAnswer;
use crate::api::extract::{Path, Syntax, read_body};
use crate::api::probes::conditions;
use crate::api::state::Api;
use crate::engine::conditions::tag;
use crate::engine::deploy::cause::ChangeAuthor;
use crate::engine::error::EngineError;

/// Answers `GET /v1/probes/{name}/maps/{map}/entries`.
pub async fn get(
    State(api): State<Api>,
    Path((name, map)): Path<(String, String)>,
) -> Result<Response, ProblemAnswer> {
    Ok(Json(api.engine.entries(&name, &map)?).into_response())
}

/// Answers `PUT /v1/probes/{name}/maps/{map}/entries`.
pub async fn put(
    State(api): State<Api>,
    Path((name, map)): Path<(String, String)>,
    author: ChangeAuthor,
    Extension(notes): Extension<RecordNotes>,
    headers: HeaderMap,
    request: Body,
) -> Result<Response, ProblemAnswer> {
    let (bytes, _held) = read_body(request).await?;
    if let Ok(probe) = api.engine.registry.get(&name) {
        notes.set(&name, &probe.stored.config);
    }
    let syntax = Syntax::of(&headers).unwrap_or(Syntax::Json);
    let parsed = spawn_blocking(move || match syntax {
        Syntax::Json => parse_entries(&bytes),
        Syntax::Yaml => parse_entries_yaml(&bytes),
    });
    let entries = parsed.await.map_err(EngineError::from)??;
    let when = conditions(&headers);
    let (answer, status) = api
        .engine
        .put_entries(&name, &map, entries, author, &when)
        .await?;
    Ok((
        [(header::ETAG, tag(status.revision, &status.created))],
        Json(answer),
    )
        .into_response())
}
