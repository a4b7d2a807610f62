//! Handlers of `/v1/pods`.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;
use tokio::task::spawn_blocking;
use twinprobe_api::{Object, PodList, PodTable, parse_any_json, parse_any_yaml};
use twinprobe_config::check_pods;

use crate::api::error::ProblemAnswer;
use crate::api::extract::{Syntax, read_body};
use crate::api::state::Api;
use crate::engine::error::EngineError;

/// The limit of a table of pods in bytes.
const LIMIT: usize = 4 << 20;

/// Answers `GET /v1/pods`.
pub async fn get(State(api): State<Api>) -> Result<Json<PodList>, ProblemAnswer> {
    Ok(Json(api.engine.list_pods().await?))
}

/// Answers `PUT /v1/pods`.
pub async fn put(
    State(api): State<Api>,
    headers: HeaderMap,
    request: Body,
) -> Result<Json<PodList>, ProblemAnswer> {
    let (bytes, _held) = read_body(request).await?;
    if bytes.len() > LIMIT {
        let detail = format!("the table has more than {LIMIT} bytes");
        return Err(ProblemAnswer::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
    }
    let syntax = Syntax::of(&headers).unwrap_or(Syntax::Json);
    let parsed = spawn_blocking(move || match syntax {
        Syntax::Json => parse_any_json(&bytes),
        // YAML may read a word such as `null` or `1` as a text, which JSON never does. So the table
        // is parsed again as JSON.
        Syntax::Yaml => parse_any_yaml::<Value>(&bytes)
            .and_then(|document| parse_any_json(document.to_string().as_bytes())),
    });
    let Object(table): Object<PodTable> = parsed.await.map_err(EngineError::from)??;
    check_pods(&table).map_err(EngineError::Rejected)?;
    Ok(Json(api.engine.put_pods(table).await?))
}
