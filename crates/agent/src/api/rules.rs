//! Handlers below `/v1/rules`.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use twinprobe_access::Principal;
use twinprobe_api::{RuleDocument, RuleList, RuleStatus, parse_any_json, parse_any_yaml};

use crate::api::error::ProblemAnswer;
use crate::api::extract::{Path, Syntax, read_body};
use crate::api::probes::{OUTCOME, conditions};
use crate::api::state::Api;
use crate::engine::conditions::tag;
use crate::engine::deploy::cause::ChangeAuthor;
use crate::rules::book::PutOutcome;

type Answer<T> = Result<T, ProblemAnswer>;

/// The limit of a rule in bytes: an inline configuration may have a source.
const LIMIT: usize = 1 << 20;

/// Refuses a rule of more bytes than are allowed.
pub fn check_size(bytes: usize) -> Answer<()> {
    if bytes > LIMIT {
        let detail = format!("the rule has more than {LIMIT} bytes");
        return Err(ProblemAnswer::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
    }
    Ok(())
}

/// Answers `GET /v1/rules`.
pub async fn list(State(api): State<Api>) -> Json<RuleList> {
    Json(RuleList { rules: api.rules.list() })
}

/// Answers `GET /v1/rules/{name}`.
pub async fn get(State(api): State<Api>, Path(name): Path<String>) -> Answer<Response> {
    Ok(tagged(api.rules.get(&name)?).into_response())
}

/// Answers `PUT /v1/rules/{name}`.
pub async fn put(
    State(api): State<Api>,
    Path(name): Path<String>,
    Extension(principal): Extension<Principal>,
    // Reads the reason, which the audit log notes.
    _: ChangeAuthor,
    headers: HeaderMap,
    request: Body,
) -> Answer<Response> {
    let (bytes, _held) = read_body(request).await?;
    check_size(bytes.len())?;
    let document: RuleDocument = match Syntax::of(&headers) {
        Ok(Syntax::Yaml) => parse_any_yaml(&bytes)?,
        _ => parse_any_json(&bytes)?,
    };
    let (outcome, status) = api.rules.put(&name, document, &principal, &conditions(&headers)).await?;
    let (code, word) = match outcome {
        PutOutcome::Created => (StatusCode::CREATED, "created"),
        PutOutcome::Replaced => (StatusCode::OK, "replaced"),
        PutOutcome::Unchanged => (StatusCode::OK, "unchanged"),
    };
    let location = [(header::LOCATION, format!("/v1/rules/{name}"))];
    Ok((code, location, [(OUTCOME, word)], tagged(status)).into_response())
}

/// Answers `DELETE /v1/rules/{name}`.
pub async fn delete(
    State(api): State<Api>,
    Path(name): Path<String>,
    _: ChangeAuthor,
    headers: HeaderMap,
) -> Answer<StatusCode> {
    api.rules.delete(&name, &conditions(&headers)).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn tagged(status: RuleStatus) -> impl IntoResponse {
    ([(header::ETAG, tag(status.revision, &status.created))], Json(status))
}
