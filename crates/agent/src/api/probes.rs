//! Handlers below `/v1/probes` and of `/v1/validate`.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use twinprobe_client::{ConfigDocument, Object, ProbeList, ProbeStatus, RevisionList, Rollback};

use crate::api::documents::negotiate;
use crate::api::error::Problem;
use crate::api::extract::{Path, Query, Syntax, read_body, read_config};
use crate::api::state::Api;
use crate::api::windows::{FormatQuery, document};
use crate::engine::conditions::{Conditions, tag};
use crate::engine::deploy::cause::Deployed;
use crate::engine::error::EngineError;
use twinprobe_config::check_name;
use twinprobe_serve::Notes;
use twinprobe_serve::Principal;
use twinprobe_serve::Role;

type Answer<T> = Result<T, Problem>;

/// The largest number of characters of a reason.
const MESSAGE_LIMIT: usize = 1024;

/// The limit in bytes of the body that names a revision.
const ROLLBACK_LIMIT: usize = 4 << 10;

/// The header with what a PUT has come to.
const OUTCOME: HeaderName = HeaderName::from_static("twinprobe-outcome");

/// The query of a change.
#[derive(Debug, Deserialize)]
pub struct ChangeQuery {
    /// The sender's reason, for the list of revisions.
    message: Option<String>,
}

impl ChangeQuery {
    fn message(self) -> Answer<Option<String>> {
        if self.message.as_ref().is_some_and(|message| message.chars().count() > MESSAGE_LIMIT) {
            let detail = format!("the message has more than {MESSAGE_LIMIT} characters; write a shorter one");
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
        }
        Ok(self.message)
    }
}

/// Answers `PUT /v1/probes/{name}`.
pub async fn put(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(query): Query<ChangeQuery>,
    Extension(principal): Extension<Principal>,
    Extension(notes): Extension<Notes>,
    headers: HeaderMap,
    request: Body,
) -> Answer<Response> {
    let message = query.message()?;
    let (document, _held) = read_config(&headers, request).await?;
    notes.set(&name, &document);
    check_name(&name, &document).map_err(EngineError::Rejected)?;
    let when = conditions(&headers);
    let (deployed, status) = api.engine.put(&name, document, &principal, message, &when).await?;
    let (code, outcome) = match deployed {
        Deployed::Created => (StatusCode::CREATED, "created"),
        Deployed::Replaced => (StatusCode::OK, "replaced"),
        Deployed::Unchanged => (StatusCode::OK, "unchanged"),
    };
    let location = [(header::LOCATION, format!("/v1/probes/{name}"))];
    Ok((code, location, [(OUTCOME, outcome)], tagged(status)).into_response())
}

/// Answers `GET /v1/probes/{name}`. Sources are shown to those who may push some.
pub async fn get(
    State(api): State<Api>,
    Path(name): Path<String>,
    Extension(principal): Extension<Principal>,
) -> Answer<Response> {
    let status = api.engine.get(&name)?.status();
    let shown = if principal.need(Role::Operator).is_ok() { status } else { status.without_secrets() };
    Ok(tagged(shown).into_response())
}

/// A status with the tag that a later change can name in `If-Match`.
pub fn tagged(status: ProbeStatus) -> impl IntoResponse {
    ([(header::ETAG, tag(status.revision, &status.created))], Json(status))
}

/// The conditions of a change. A condition in several lines is one list.
pub fn conditions(headers: &HeaderMap) -> Conditions {
    let list = |name: HeaderName| {
        let lines: Vec<_> =
            headers.get_all(name).iter().map(|line| String::from_utf8_lossy(line.as_bytes())).collect();
        (!lines.is_empty()).then(|| lines.join(","))
    };
    Conditions { if_match: list(header::IF_MATCH), if_none_match: list(header::IF_NONE_MATCH) }
}

/// Answers `GET /v1/probes`. The list has no sources, which may be large.
pub async fn list(State(api): State<Api>, Extension(principal): Extension<Principal>) -> Response {
    let sees_all = principal.need(Role::Operator).is_ok();
    let probes = api.engine.list();
    let shown = probes.iter().map(|probe| probe.status());
    let probes = match sees_all {
        true => shown.map(ProbeStatus::without_sources).collect(),
        false => shown.map(ProbeStatus::without_secrets).collect(),
    };
    Json(ProbeList { probes }).into_response()
}

/// Answers `DELETE /v1/probes/{name}`.
pub async fn delete(
    State(api): State<Api>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Answer<StatusCode> {
    api.engine.delete(&name, &conditions(&headers)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Answers `POST /v1/validate`.
pub async fn validate(
    State(api): State<Api>,
    Extension(principal): Extension<Principal>,
    Extension(notes): Extension<Notes>,
    headers: HeaderMap,
    request: Body,
) -> Answer<Response> {
    let (document, _held) = read_config(&headers, request).await?;
    let name = document.name.clone().unwrap_or_else(|| "unnamed".to_owned());
    notes.set(&name, &document);
    Ok(Json(api.engine.validate(&name, &document, &principal).await?).into_response())
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
    let delivery = api.engine.read(&name).await?;
    document(api, delivery, &allowed).await
}

/// Answers `GET /v1/probes/{name}/revisions`.
pub async fn revisions(State(api): State<Api>, Path(name): Path<String>) -> Result<Response, Problem> {
    Ok(Json(RevisionList { revisions: api.engine.revisions(&name).await? }).into_response())
}

/// Deploys the revision that the body names, the one before the present one if the body is empty.
pub async fn roll_back(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(query): Query<ChangeQuery>,
    Extension(principal): Extension<Principal>,
    Extension(notes): Extension<Notes>,
    headers: HeaderMap,
    request: Body,
) -> Result<Response, Problem> {
    let message = query.message()?;
    let (bytes, _held) = read_body(request).await?;
    let bytes = bytes.trim_ascii();
    let wanted = if bytes.is_empty() {
        Rollback::default()
    } else if bytes.len() > ROLLBACK_LIMIT {
        let detail = format!("the body has more than {ROLLBACK_LIMIT} bytes; send {{\"revision\": NUMBER}}");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
    } else {
        let parsed: Result<Object<Rollback>, String> = match Syntax::of(&headers) {
            Ok(Syntax::Yaml) => yaml_serde::from_slice(bytes).map_err(|error| error.to_string()),
            _ => serde_json::from_slice(bytes).map_err(|error| error.to_string()),
        };
        parsed
            .map_err(|error| {
                let detail = format!("the body is not {{\"revision\": NUMBER}}: {error}");
                Problem::new(StatusCode::BAD_REQUEST, detail)
            })?
            .0
    };
    let (when, seen) = (conditions(&headers), |config: &ConfigDocument| notes.set(&name, config));
    let (_, status) = api.engine.roll_back(&name, wanted.revision, &principal, message, &when, seen).await?;
    Ok(tagged(status).into_response())
}
