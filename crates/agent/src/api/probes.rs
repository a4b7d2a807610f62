//! Handlers below `/v1/probes` and of `/v1/validate`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use tokio::task::spawn_blocking;
use twinprobe_api::{
    ConfigDocument, HistoryList, Object, ProbeList, ProbeStatus, RevisionList, Rollback,
};

use crate::api::documents::negotiate;
use crate::api::documents::top::TopQuery;
use crate::api::error::{ApiResult, ProblemAnswer};
use crate::api::extract::{Path, Query, Syntax, read_body, read_config};
use crate::api::state::Api;
use crate::api::windows::document;
use crate::engine::conditions::{Conditions, tag};
use crate::engine::deploy::cause::{ChangeAuthor, Deployed};
use crate::engine::error::EngineError;
use twinprobe_access::Principal;
use twinprobe_access::RecordNotes;
use twinprobe_access::Role;
use twinprobe_config::check_name;

/// The limit in bytes of the body that names a revision.
const ROLLBACK_LIMIT: usize = 4 << 10;

/// The header that tells the outcome of a PUT.
pub const OUTCOME: HeaderName = HeaderName::from_static("twinprobe-outcome");

/// Answers `PUT /v1/probes/{name}`.
pub async fn put(
    State(api): State<Api>,
    Path(name): Path<String>,
    author: ChangeAuthor,
    Extension(notes): Extension<RecordNotes>,
    headers: HeaderMap,
    request: Body,
) -> ApiResult<Response> {
    let (document, _held) = read_config(&headers, request).await?;
    notes.set(&name, &document);
    check_name(&name, &document).map_err(EngineError::Rejected)?;
    let when = conditions(&headers);
    let (deployed, status) = api.engine.put(&name, document, author, &when).await?;
    let (code, outcome) = match deployed {
        Deployed::Created => (StatusCode::CREATED, "created"),
        Deployed::Replaced => (StatusCode::OK, "replaced"),
        Deployed::Unchanged => (StatusCode::OK, "unchanged"),
    };
    let location = [(header::LOCATION, format!("/v1/probes/{name}"))];
    Ok((code, location, [(OUTCOME, outcome)], tagged(status)).into_response())
}

/// The query of one probe.
#[derive(Debug, Deserialize)]
pub struct ProbeQuery {
    revision: Option<bool>,
    config: Option<bool>,
}

/// Answers `GET /v1/probes/{name}`. Only clients that may deploy sources see the sources.
pub async fn get(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(query): Query<ProbeQuery>,
    Extension(principal): Extension<Principal>,
) -> ApiResult<Response> {
    let probe = api.engine.registry.get(&name)?;
    let mut status = probe.status_without_config();
    if query.config != Some(false) {
        status.config = Some(probe.stored.config.clone());
    }
    if query.revision == Some(true) {
        status.windows.revision = probe.revision_windows();
    }
    status.windows.last_reads = api.engine.readings.last(&name, &status.created);
    let shown = if principal.need(Role::Operator).is_ok() {
        status
    } else {
        status.without_secrets()
    };
    Ok(tagged(shown).into_response())
}

/// Returns a status, with the tag that a later change can name in `If-Match`.
pub fn tagged(status: ProbeStatus) -> impl IntoResponse {
    (
        [(header::ETAG, tag(status.revision, &status.created))],
        Json(status),
    )
}

/// Returns the conditions of a change. A condition in several header fields is one list.
pub fn conditions(headers: &HeaderMap) -> Conditions {
    let list = |name: HeaderName| {
        let lines: Vec<_> = headers
            .get_all(name)
            .iter()
            .map(|line| String::from_utf8_lossy(line.as_bytes()))
            .collect();
        (!lines.is_empty()).then(|| lines.join(","))
    };
    Conditions {
        if_match: list(header::IF_MATCH),
        if_none_match: list(header::IF_NONE_MATCH),
    }
}

/// The query of a list.
#[derive(Debug, Deserialize)]
pub struct ProbeListQuery {
    traffic: Option<bool>,
}

/// Answers `GET /v1/probes`. The list has no sources, which may be large.
pub async fn list(
    State(api): State<Api>,
    Query(query): Query<ProbeListQuery>,
    Extension(principal): Extension<Principal>,
) -> ApiResult<Response> {
    let sees_all = principal.need(Role::Operator).is_ok();
    let engine = Arc::clone(&api.engine);
    let traffic = match query.traffic {
        Some(true) => Some(
            spawn_blocking(move || engine.traffic())
                .await
                .map_err(EngineError::from)?,
        ),
        _ => None,
    };
    let probes = api.engine.registry.list();
    let shown = probes.iter().map(|probe| probe.status());
    let probes = match sees_all {
        true => shown.map(ProbeStatus::without_sources).collect(),
        false => shown.map(ProbeStatus::without_secrets).collect(),
    };
    let mut list = ProbeList {
        node: String::new(),
        version: String::new(),
        traffic,
        probes,
    };
    if list.traffic.is_some() {
        (list.node, list.version) = (
            api.engine.node.clone(),
            env!("CARGO_PKG_VERSION").to_owned(),
        );
    }
    Ok(Json(list).into_response())
}

/// Answers `DELETE /v1/probes/{name}`.
pub async fn delete(
    State(api): State<Api>,
    Path(name): Path<String>,
    author: ChangeAuthor,
    headers: HeaderMap,
) -> ApiResult<StatusCode> {
    api.engine
        .delete(&name, author, &conditions(&headers))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Answers `POST /v1/validate`.
pub async fn validate(
    State(api): State<Api>,
    Extension(principal): Extension<Principal>,
    Extension(notes): Extension<RecordNotes>,
    headers: HeaderMap,
    request: Body,
) -> ApiResult<Response> {
    let (document, _held) = read_config(&headers, request).await?;
    let name = document
        .name
        .clone()
        .unwrap_or_else(|| "unnamed".to_owned());
    notes.set(&name, &document);
    Ok(Json(api.engine.validate(&name, &document, &principal).await?).into_response())
}

/// The query of a reading.
#[derive(Debug, Deserialize)]
pub struct MetricsQuery {
    format: Option<String>,
    /// True if the client only wants to see the counts of the open window so far.
    #[serde(default)]
    peek: bool,
    top: Option<usize>,
    by: Option<String>,
}

/// Answers `GET /v1/probes/{name}/metrics`.
pub async fn metrics(
    State(api): State<Api>,
    Path(name): Path<String>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<MetricsQuery>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    // An impossible format is refused before anything is read and reset.
    let allowed = negotiate::allowed(&headers, query.format.as_deref())?;
    let top = TopQuery {
        top: query.top,
        by: query.by,
    };
    top.check()?;
    if query.peek {
        let delivery = api.engine.peek(&name).await?;
        return document(api, delivery, &allowed, &top).await;
    }
    let delivery = api.engine.read(&name).await?;
    let is_known = |name: &str| api.engine.registry.get(name).is_ok();
    api.engine
        .readings
        .note(&delivery, principal.who.to_string(), is_known);
    document(api, delivery, &allowed, &top).await
}

/// Answers `GET /v1/probes/{name}/revisions`.
pub async fn revisions(State(api): State<Api>, Path(name): Path<String>) -> ApiResult<Response> {
    Ok(Json(RevisionList {
        revisions: api.engine.revisions(&name).await?,
    })
    .into_response())
}

/// Answers `GET /v1/probes/{name}/history`.
pub async fn history(State(api): State<Api>, Path(name): Path<String>) -> ApiResult<Response> {
    Ok(Json(HistoryList {
        history: api.engine.history(Some(name)).await?,
    })
    .into_response())
}

/// Answers `GET /v1/history`.
pub async fn whole_history(State(api): State<Api>) -> ApiResult<Response> {
    Ok(Json(HistoryList {
        history: api.engine.history(None).await?,
    })
    .into_response())
}

/// Deploys the revision that the body names. Without a body, deploys the revision before the
/// present one.
pub async fn roll_back(
    State(api): State<Api>,
    Path(name): Path<String>,
    author: ChangeAuthor,
    Extension(notes): Extension<RecordNotes>,
    headers: HeaderMap,
    request: Body,
) -> ApiResult<Response> {
    let wanted = read_rollback(&headers, request).await?;
    let (when, seen) = (conditions(&headers), |config: &ConfigDocument| {
        notes.set(&name, config);
    });
    let (_, status) = api
        .engine
        .roll_back(&name, wanted.revision, author, &when, seen)
        .await?;
    Ok(tagged(status).into_response())
}

/// Puts a mark into the audit log: the record of the request has the text.
pub async fn mark(
    State(api): State<Api>,
    Path(name): Path<String>,
    author: ChangeAuthor,
) -> ApiResult<StatusCode> {
    api.engine.registry.get(&name)?;
    let Some(text) = author.message.filter(|text| !text.is_empty()) else {
        let detail = "a mark has no text; give the text as `message` in the query";
        return Err(ProblemAnswer::new(StatusCode::BAD_REQUEST, detail));
    };
    tracing::info!(probe = name, by = %author.principal.who, text, "a client marks a probe");
    Ok(StatusCode::NO_CONTENT)
}

/// Reads a body that names a revision. An empty body names none.
pub async fn read_rollback(headers: &HeaderMap, request: Body) -> ApiResult<Rollback> {
    let (bytes, _held) = read_body(request).await?;
    let bytes = bytes.trim_ascii();
    if bytes.is_empty() {
        return Ok(Rollback::default());
    }
    if bytes.len() > ROLLBACK_LIMIT {
        let detail =
            format!("the body has more than {ROLLBACK_LIMIT} bytes; send {{\"revision\": NUMBER}}");
        return Err(ProblemAnswer::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
    }
    let parsed: Result<Object<Rollback>, String> = match Syntax::of(headers) {
        Ok(Syntax::Yaml) => yaml_serde::from_slice(bytes).map_err(|error| error.to_string()),
        _ => serde_json::from_slice(bytes).map_err(|error| error.to_string()),
    };
    let Object(wanted) = parsed.map_err(|error| {
        let detail = format!("the body is not {{\"revision\": NUMBER}}: {error}");
        ProblemAnswer::new(StatusCode::BAD_REQUEST, detail)
    })?;
    Ok(wanted)
}
