//! `POST /v1/replay`: the request contains a configuration and captures, and the answer is the
//! document of a window over their packets.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use twinprobe_access::{Principal, RecordNotes};

use crate::api::documents::negotiate;
use crate::api::documents::top::TopQuery;
use crate::api::error::ProblemAnswer;
use crate::api::extract::Query;
use crate::api::replay::parts::{self, CONFIG, ReplayParts};
use crate::api::state::Api;
use crate::api::windows::{FormatQuery, document};
use crate::engine::error::EngineError;

/// Answers `POST /v1/replay`.
pub async fn replay(
    State(api): State<Api>,
    Extension(principal): Extension<Principal>,
    Extension(notes): Extension<RecordNotes>,
    Query(query): Query<FormatQuery>,
    headers: HeaderMap,
    request: Body,
) -> Result<Response, ProblemAnswer> {
    let allowed = negotiate::allowed(&headers, query.format.as_deref())?;
    // The work holds the place, because it may continue for a moment after the client has hung up.
    let place = Arc::new(
        api.engine
            .readings
            .replays
            .take()
            .await
            .map_err(EngineError::from)?,
    );
    let ReplayParts {
        config, captures, ..
    } = parts::read(&api, &notes, &headers, request, CONFIG).await?;
    let (config, _held) = config.ok_or_else(|| parts::missing(CONFIG))?;
    let name = parts::probe_name(&config);
    let delivery = api
        .engine
        .replay(&name, config, &principal, captures, place)
        .await?;
    let ran = delivery
        .replay()
        .map(|replay| replay.ran)
        .unwrap_or_default();
    let timing = format!("run;dur={:.6}", 1e3 * ran.as_secs_f64());
    Ok((
        [("server-timing", timing)],
        document(api, delivery, &allowed, &TopQuery::default()).await?,
    )
        .into_response())
}
