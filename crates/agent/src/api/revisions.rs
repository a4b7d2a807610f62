//! Handlers for a probe's earlier configurations.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use twinprobe_client::{ConfigDocument, Object, RevisionList, Rollback};

use crate::access::audit::Notes;
use crate::access::principal::Principal;
use crate::api::error::Problem;
use crate::api::extract::{Path, Syntax, read_body};
use crate::api::probes::{conditions, tagged};
use crate::api::state::Api;

/// Answers `GET /v1/probes/{name}/revisions`.
pub async fn list(State(api): State<Api>, Path(name): Path<String>) -> Result<Response, Problem> {
    Ok(Json(RevisionList { revisions: api.engine.revisions(&name).await? }).into_response())
}

/// Deploys the revision that the body names, the one before the present one if the body is empty.
pub async fn roll_back(
    State(api): State<Api>,
    Path(name): Path<String>,
    Extension(principal): Extension<Principal>,
    Extension(notes): Extension<Notes>,
    headers: HeaderMap,
    request: Body,
) -> Result<Response, Problem> {
    let bytes = read_body(request).await?;
    let wanted = if bytes.iter().all(u8::is_ascii_whitespace) {
        Rollback::default()
    } else {
        let parsed: Result<Object<Rollback>, String> = match Syntax::of(&headers) {
            Ok(Syntax::Yaml) => yaml_serde::from_slice(&bytes).map_err(|error| error.to_string()),
            _ => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
        };
        parsed
            .map_err(|error| {
                let detail = format!("the body is not {{\"revision\": NUMBER}}: {error}");
                Problem::new(StatusCode::BAD_REQUEST, detail)
            })?
            .0
    };
    let (when, seen) = (conditions(&headers), |config: &ConfigDocument| notes.set(&name, config));
    let (_, status) = api.engine.roll_back(&name, wanted.revision, &principal, &when, seen).await?;
    Ok(tagged(status).into_response())
}
