//! Handlers below `/v1/rules`.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use twinprobe_api::{
    RuleDocument, RuleList, RuleRevisionList, RuleStatus, parse_any_json, parse_any_yaml,
};

use crate::api::error::{ApiResult, ProblemAnswer};
use crate::api::extract::{Path, Syntax, read_body};
use crate::api::probes::{OUTCOME, conditions, read_rollback};
use crate::api::state::Api;
use crate::engine::conditions::tag;
use crate::engine::deploy::cause::ChangeAuthor;
use crate::rules::book::PutOutcome;

/// The limit of a rule in bytes: an inline configuration may have a source.
const LIMIT: usize = 1 << 20;

/// Refuses a rule of more bytes than are allowed.
pub fn check_size(bytes: usize) -> ApiResult<()> {
    if bytes > LIMIT {
        let detail = format!("the rule has more than {LIMIT} bytes");
        return Err(ProblemAnswer::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
    }
    Ok(())
}

/// Answers `GET /v1/rules`.
pub async fn list(State(api): State<Api>) -> Json<RuleList> {
    Json(RuleList {
        rules: api.rules.list(),
    })
}

/// Answers `GET /v1/rules/{name}`.
pub async fn get(State(api): State<Api>, Path(name): Path<String>) -> ApiResult<Response> {
    Ok(tagged(api.rules.get(&name)?).into_response())
}

/// Answers `PUT /v1/rules/{name}`.
pub async fn put(
    State(api): State<Api>,
    Path(name): Path<String>,
    author: ChangeAuthor,
    headers: HeaderMap,
    request: Body,
) -> ApiResult<Response> {
    let (bytes, _held) = read_body(request).await?;
    check_size(bytes.len())?;
    let document: RuleDocument = match Syntax::of(&headers) {
        Ok(Syntax::Yaml) => parse_any_yaml(&bytes)?,
        _ => parse_any_json(&bytes)?,
    };
    let (outcome, status) = api
        .rules
        .put(&name, document, author, &conditions(&headers))
        .await?;
    let (code, word) = answer(outcome);
    let location = [(header::LOCATION, format!("/v1/rules/{name}"))];
    Ok((code, location, [(OUTCOME, word)], tagged(status)).into_response())
}

/// Returns the status of the answer to a PUT, and the word for its outcome.
pub const fn answer(outcome: PutOutcome) -> (StatusCode, &'static str) {
    match outcome {
        PutOutcome::Created => (StatusCode::CREATED, "created"),
        PutOutcome::Replaced => (StatusCode::OK, "replaced"),
        PutOutcome::Unchanged => (StatusCode::OK, "unchanged"),
    }
}

/// Answers `DELETE /v1/rules/{name}`.
pub async fn delete(
    State(api): State<Api>,
    Path(name): Path<String>,
    _: ChangeAuthor,
    headers: HeaderMap,
) -> ApiResult<StatusCode> {
    api.rules.delete(&name, &conditions(&headers)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Answers `GET /v1/rules/{name}/revisions`.
pub async fn revisions(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> ApiResult<Json<RuleRevisionList>> {
    Ok(Json(RuleRevisionList {
        revisions: api.rules.revisions(&name).await?,
    }))
}

/// Puts the revision that the body names. Without a body, puts the revision before the present one.
pub async fn roll_back(
    State(api): State<Api>,
    Path(name): Path<String>,
    author: ChangeAuthor,
    headers: HeaderMap,
    request: Body,
) -> ApiResult<Response> {
    let wanted = read_rollback(&headers, request).await?;
    let status = api
        .rules
        .roll_back(&name, wanted.revision, author, &conditions(&headers))
        .await?;
    Ok(tagged(status).into_response())
}

fn tagged(status: RuleStatus) -> impl IntoResponse {
    (
        [(header::ETAG, tag(status.revision, &status.created))],
        Json(status),
    )
}
