//! Handler of `/v1/names`.

use axum::Json;
use axum::extract::State;
use twinprobe_api::NameList;

use crate::api::error::ProblemAnswer;
use crate::api::extract::Query;
use crate::api::state::Api;
use crate::engine::error::EngineError;
use crate::names::book::ClusterNames;
use crate::names::question::NameQuestion;

/// Answers `GET /v1/names`.
pub async fn get(
    State(api): State<Api>,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Result<Json<NameList>, ProblemAnswer> {
    let question = NameQuestion::parse(pairs).map_err(EngineError::Query)?;
    let cluster = match api.names.wants_pods(&question) {
        true => {
            let pods = api.engine.list_pods().await?.pods;
            ClusterNames {
                pods,
                services: api.engine.deployer.pods.services(),
            }
        }
        false => ClusterNames::default(),
    };
    Ok(Json(api.names.answer(question, &cluster).await))
}
