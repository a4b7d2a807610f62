//! Handlers below `/v1/nodes`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use tokio::task::spawn_blocking;

use crate::api::error::{ApiResult, ProblemAnswer};
use crate::api::extract::Query;
use crate::api::state::Api;
use crate::engine::error::EngineError;
use crate::nodes::book::NodeBook;
use crate::nodes::query::{NodeChartQuery, NodeWindowQuery, QueryPairs};

/// Answers `GET /v1/nodes`.
pub async fn list(State(api): State<Api>) -> ApiResult<Response> {
    json(book(&api)?.list().await).await
}

/// Answers `GET /v1/nodes/series`.
pub async fn series(
    State(api): State<Api>,
    Query(pairs): Query<QueryPairs>,
) -> ApiResult<Response> {
    let book = book(&api)?;
    let query = NodeChartQuery::parse(pairs, &book.nodes).map_err(EngineError::Query)?;
    json(book.charts(query).await).await
}

/// Answers `GET /v1/nodes/windows`.
pub async fn windows(
    State(api): State<Api>,
    Query(pairs): Query<QueryPairs>,
) -> ApiResult<Response> {
    let book = book(&api)?;
    let query = NodeWindowQuery::parse(pairs, &book.nodes).map_err(EngineError::Query)?;
    json(book.windows(query).await).await
}

fn book(api: &Api) -> ApiResult<Arc<NodeBook>> {
    api.nodes.as_ref().map(|file| file.book()).ok_or_else(|| {
        let detail = "this daemon knows no other nodes; serve --nodes FILE names some";
        ProblemAnswer::new(StatusCode::NOT_FOUND, detail)
    })
}

/// Serializes an answer, which may have some MiB of numbers.
async fn json(answer: impl Serialize + Send + 'static) -> ApiResult<Response> {
    let body = spawn_blocking(move || serde_json::to_vec(&answer).unwrap_or_default()).await;
    let body = body.map_err(EngineError::from)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}
