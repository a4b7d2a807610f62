//! Handlers below `/v1/probes` and of `/v1/validate`.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use twinprobe_client::{ProbeList, parse_document};

use crate::api::error::Problem;
use crate::api::extract::{Path, Query, read_body};
use crate::api::negotiate;
use crate::api::state::Api;
use crate::api::windows::{FormatQuery, document};
use crate::config::validate::probe::check_name;
use crate::engine::engine::Deployed;
use crate::engine::error::EngineError;

type Answer<T> = Result<T, Problem>;

/// Answers `PUT /v1/probes/{name}`.
pub async fn put(
    State(api): State<Api>,
    Path(name): Path<String>,
    headers: HeaderMap,
    request: Body,
) -> Answer<Response> {
    let document = parse_document(&read_body(&headers, request).await?)?;
    check_name(&name, &document).map_err(EngineError::Rejected)?;
    let (deployed, status) = api.engine.deploy(&name, document, None).await?;
    let code = match deployed {
        Deployed::Created => StatusCode::CREATED,
        Deployed::Replaced => StatusCode::OK,
    };
    Ok((code, [(header::LOCATION, format!("/v1/probes/{name}"))], Json(status)).into_response())
}

/// Answers `GET /v1/probes/{name}`.
pub async fn get(State(api): State<Api>, Path(name): Path<String>) -> Answer<Response> {
    Ok(Json(api.engine.get(&name)?.status()).into_response())
}

/// Answers `GET /v1/probes`. The list has no sources, which may be large and which viewers may not see.
pub async fn list(State(api): State<Api>) -> Response {
    let probes = api.engine.list();
    let probes = probes.iter().map(|probe| probe.status().without_sources()).collect();
    Json(ProbeList { probes }).into_response()
}

/// Answers `DELETE /v1/probes/{name}`.
pub async fn delete(State(api): State<Api>, Path(name): Path<String>) -> Answer<StatusCode> {
    api.engine.delete(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Answers `POST /v1/validate`.
pub async fn validate(State(api): State<Api>, headers: HeaderMap, request: Body) -> Answer<Response> {
    let document = parse_document(&read_body(&headers, request).await?)?;
    let name = document.name.clone().unwrap_or_else(|| "unnamed".to_owned());
    Ok(Json(api.engine.validate(&name, &document).await?).into_response())
}

/// Answers `GET /v1/probes/{name}/metrics`.
pub async fn metrics(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(query): Query<FormatQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    // An impossible format is refused before anything is read and reset.
    let allowed = negotiate::allowed(&headers, query.format.as_deref())?;
    document(api.engine.read(&name).await?, &allowed).await
}
