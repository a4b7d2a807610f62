//! `POST /v1/replay/rule`: the request contains a rule and captures, and the answer lists the
//! actions that the rule would have taken.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use serde::Deserialize;
use twinprobe_access::{Principal, RecordNotes};
use twinprobe_api::RuleTrial;

use crate::api::error::ProblemAnswer;
use crate::api::extract::Query;
use crate::api::replay::parts::{self, RULE, ReplayParts};
use crate::api::state::Api;
use crate::engine::error::EngineError;
use crate::rules::probes;
use crate::rules::trial::TriedRule;

/// The length of windows if neither the request nor the configuration has a length.
const INTERVAL: &str = "1s";

#[derive(Debug, Deserialize)]
pub struct TrialQuery {
    /// The length of the windows.
    interval: Option<String>,
    /// The probe that sees the packets, if it differs from the watched one.
    probe: Option<String>,
}

/// Answers `POST /v1/replay/rule`.
pub async fn replay(
    State(api): State<Api>,
    Extension(principal): Extension<Principal>,
    Extension(notes): Extension<RecordNotes>,
    Query(query): Query<TrialQuery>,
    headers: HeaderMap,
    request: Body,
) -> Result<Json<RuleTrial>, ProblemAnswer> {
    let place = Arc::new(
        api.engine
            .readings
            .replays
            .take()
            .await
            .map_err(EngineError::from)?,
    );
    let ReplayParts {
        config,
        rule,
        captures,
    } = parts::read(&api, &notes, &headers, request, RULE).await?;
    let rule = rule.ok_or_else(|| parts::missing(RULE))?;
    let name = query.probe.unwrap_or_else(|| rule.watch.clone());
    let (mut config, _held) = match config {
        Some((config, held)) => (config, Some(held)),
        None => (probes::known(&api.engine, &name)?, None),
    };
    let window = config.window.get_or_insert_default();
    window.interval = query
        .interval
        .or_else(|| window.interval.take())
        .or_else(|| Some(INTERVAL.to_owned()));
    notes.set(&name, &config);
    let tried = TriedRule {
        rule,
        probe: name,
        config,
    };
    Ok(Json(
        tried.run(&api.engine, &principal, captures, place).await?,
    ))
}
