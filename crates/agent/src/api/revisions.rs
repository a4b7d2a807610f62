//! Handlers for a probe's earlier configurations.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use twinprobe_client::{RevisionList, Rollback};

use crate::api::error::Problem;
use crate::api::extract::{Path, read_body};
use crate::api::state::Api;

/// Answers `GET /v1/probes/{name}/revisions`.
pub async fn list(State(api): State<Api>, Path(name): Path<String>) -> Result<Response, Problem> {
    Ok(Json(RevisionList { revisions: api.engine.revisions(&name).await? }).into_response())
}

/// Deploys the revision that the body names, the one before the present one if the body is empty.
pub async fn roll_back(
    State(api): State<Api>,
    Path(name): Path<String>,
    headers: HeaderMap,
    request: Body,
) -> Result<Response, Problem> {
    let bytes = read_body(&headers, request).await?;
    let wanted = if bytes.iter().all(u8::is_ascii_whitespace) {
        Rollback::default()
    } else {
        serde_json::from_slice(&bytes).map_err(|error| {
            let detail = format!("the body is not {{\"revision\": NUMBER}}: {error}");
            Problem::new(StatusCode::BAD_REQUEST, detail)
        })?
    };
    let (_, status) = api.engine.roll_back(&name, wanted.revision).await?;
    Ok(Json(status).into_response())
}
