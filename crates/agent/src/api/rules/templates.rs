//! Handlers below `/v1/templates`.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use twinprobe_access::RecordNotes;
use twinprobe_api::{TemplateList, TemplateStatus};

use crate::api::error::ApiResult;
use crate::api::extract::{Path, read_config};
use crate::api::probes::{OUTCOME, conditions};
use crate::api::rules::rules::answer;
use crate::api::state::Api;
use crate::engine::conditions::tag;
use crate::engine::deploy::cause::ChangeAuthor;

/// Answers `GET /v1/templates`.
pub async fn list(State(api): State<Api>) -> ApiResult<Json<TemplateList>> {
    Ok(Json(TemplateList {
        templates: api.rules.templates().await?,
    }))
}

/// Answers `GET /v1/templates/{name}`.
pub async fn get(State(api): State<Api>, Path(name): Path<String>) -> ApiResult<Response> {
    Ok(tagged(api.rules.template(&name).await?).into_response())
}

/// Answers `PUT /v1/templates/{name}`.
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
    let (outcome, status) = api
        .rules
        .put_template(&name, document, &author, &conditions(&headers))
        .await?;
    let (code, word) = answer(outcome);
    let location = [(header::LOCATION, format!("/v1/templates/{name}"))];
    Ok((code, location, [(OUTCOME, word)], tagged(status)).into_response())
}

/// Answers `DELETE /v1/templates/{name}`.
pub async fn delete(
    State(api): State<Api>,
    Path(name): Path<String>,
    _: ChangeAuthor,
    headers: HeaderMap,
) -> ApiResult<StatusCode> {
    api.rules
        .delete_template(&name, &conditions(&headers))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

fn tagged(status: TemplateStatus) -> impl IntoResponse {
    (
        [(header::ETAG, tag(status.revision, &status.created))],
        Json(status),
    )
}
