//! Handlers below `/v1/probes/{name}/windows`.

use std::num::NonZeroU64;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use twinprobe_ebpf_common::Format;
use twinprobe_ebpf_common::window::shape::WindowShape;
use twinprobe_windows::ListBounds;

use crate::api::documents::document;
use crate::api::documents::negotiate;
use crate::api::documents::several;
use crate::api::documents::top::TopQuery;
use crate::api::error::{ApiResult, ProblemAnswer};
use crate::api::extract::{Path, Query};
use crate::api::state::Api;
use crate::engine::error::EngineError;
use crate::engine::series::query::ChartQuery;
use crate::engine::window::delivery::Delivery;

/// The header with the digest of a document's shape.
const SHAPE: &str = "twinprobe-shape";
/// The longest time in seconds that a client may wait for a window. Proxies close connections that
/// send nothing for longer.
const LONGEST_WAIT: f64 = 300.0;
/// The most windows that a request may ask for. It is also the default for a request for windows
/// with documents.
const MOST_WINDOWS: usize = 1_000;
const USUAL_WINDOWS: usize = 100;
/// The most bytes that the windows of one answer with documents take in the store. The first window
/// may have more.
const MOST_BYTES: u64 = 16 << 20;

#[derive(Debug, Deserialize)]
pub struct FormatQuery {
    pub format: Option<String>,
}

/// The parameters of a request for a single window.
#[derive(Debug, Deserialize)]
pub struct OneWindowQuery {
    format: Option<String>,
    /// True if the answer must name the shape of the document.
    shape: Option<bool>,
    top: Option<usize>,
    by: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    after: Option<u64>,
    wait: Option<f64>,
    collector: Option<String>,
    limit: Option<usize>,
    /// True if the documents of the windows follow the list.
    documents: Option<bool>,
    /// True if the shapes of the documents are sent before them.
    shape: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AckQuery {
    collector: Option<String>,
    instance: Option<String>,
}

/// Answers `POST /v1/probes/{name}/windows`: closes a window and returns it.
pub async fn close(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(query): Query<FormatQuery>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    // An impossible format is refused before anything is closed.
    let allowed = negotiate::allowed(&headers, query.format.as_deref())?;
    let delivery = api.engine.close(&name).await?;
    let location = format!(
        "/v1/probes/{name}/windows/{}",
        delivery.seq().unwrap_or_default()
    );
    let document = document(api, delivery, &allowed, &TopQuery::default()).await?;
    Ok((
        StatusCode::CREATED,
        [(header::LOCATION, location)],
        document,
    )
        .into_response())
}

/// Answers `GET /v1/probes/{name}/windows`. `wait` is in seconds.
pub async fn list(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(query): Query<ListQuery>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let ListQuery {
        after,
        wait,
        ref collector,
        documents,
        shape,
        ..
    } = query;
    let (wait, bounds) = (wait.unwrap_or(0.0), query.bounds()?);
    if !(0.0..=LONGEST_WAIT).contains(&wait) {
        return Err(impossible(format!(
            "wait={wait} is not a time to wait; use 0 to {LONGEST_WAIT} seconds"
        )));
    }
    let with_documents = documents.unwrap_or(false);
    if with_documents {
        several::check(&headers)?;
    }
    let wait = Duration::from_secs_f64(wait);
    let (listing, run) = api
        .engine
        .windows(&name, after, collector.as_deref(), wait, bounds)
        .await?;
    if !with_documents {
        return Ok(Json(listing).into_response());
    }
    Ok(several::answer(&listing, run, shape.unwrap_or(false), api.engine).await?)
}

impl ListQuery {
    /// Returns the bounds of the list. The bounds for documents are narrower, so that no answer
    /// takes long.
    fn bounds(&self) -> ApiResult<ListBounds> {
        if let Some(limit) = self.limit
            && !(1..=MOST_WINDOWS).contains(&limit)
        {
            return Err(impossible(format!(
                "limit={limit} is not a number of windows; use 1 to {MOST_WINDOWS}"
            )));
        }
        let usual = match self.documents {
            Some(true) => ListBounds {
                windows: USUAL_WINDOWS,
                bytes: MOST_BYTES,
            },
            _ => ListBounds::default(),
        };
        Ok(ListBounds {
            windows: self.limit.unwrap_or(usual.windows),
            ..usual
        })
    }
}

fn impossible(detail: String) -> ProblemAnswer {
    ProblemAnswer::new(StatusCode::BAD_REQUEST, detail)
}

/// Answers `GET /v1/probes/{name}/windows/{seq}`.
pub async fn get(
    State(api): State<Api>,
    Path((name, seq)): Path<(String, u64)>,
    Query(query): Query<OneWindowQuery>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let OneWindowQuery {
        format,
        shape,
        top,
        by,
    } = query;
    let allowed = negotiate::allowed(&headers, format.as_deref())?;
    let top = TopQuery { top, by };
    top.check()?;
    let delivery = api.engine.window(&name, seq).await?;
    let has_owners = api.engine.deployer.pods.has_owners();
    let shape = shape
        .unwrap_or(false)
        .then(|| [(SHAPE, delivery.shape(has_owners).digest)]);
    Ok((shape, document(api, delivery, &allowed, &top).await?).into_response())
}

/// Answers `GET /v1/probes/{name}/windows/{seq}/shape`.
pub async fn shape(
    State(api): State<Api>,
    Path((name, seq)): Path<(String, u64)>,
) -> ApiResult<Json<WindowShape>> {
    let has_owners = api.engine.deployer.pods.has_owners();
    Ok(Json(api.engine.window(&name, seq).await?.shape(has_owners)))
}

/// Answers `DELETE /v1/probes/{name}/windows/{seq}`: acknowledges this window and all before it.
pub async fn acknowledge(
    State(api): State<Api>,
    Path((name, seq)): Path<(String, NonZeroU64)>,
    Query(AckQuery {
        collector,
        instance,
    }): Query<AckQuery>,
) -> ApiResult<StatusCode> {
    api.engine
        .acknowledge(&name, seq.get(), collector, instance.as_deref())
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Answers `GET /v1/probes/{name}/series`.
pub async fn series(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(pairs): Query<Vec<(String, String)>>,
) -> ApiResult<Response> {
    let query = ChartQuery::parse(pairs).map_err(EngineError::Query)?;
    Ok(Json(api.engine.chart(&name, query).await?).into_response())
}

/// Answers `GET /v1/probes/{name}/series/history`.
pub async fn history(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(pairs): Query<Vec<(String, String)>>,
) -> ApiResult<Response> {
    let Some(source) = &api.history else {
        let detail = "this daemon knows no server with its samples; serve --history names one";
        return Err(ProblemAnswer::new(StatusCode::NOT_FOUND, detail));
    };
    let query = ChartQuery::parse(pairs).map_err(EngineError::Query)?;
    Ok(Json(source.chart(&api.engine, &name, query).await?).into_response())
}

/// Returns an answer whose body is rendered while the client takes it. Uses the probe's own format
/// if that is allowed.
pub async fn document(
    api: Api,
    delivery: Delivery,
    allowed: &[Format],
    top: &TopQuery,
) -> ApiResult<Response> {
    let own = delivery.format;
    let format = if allowed.contains(&own) {
        own
    } else {
        allowed.first().copied().unwrap_or(own)
    };
    let delivery = top.choose(delivery, format).await?;
    let headers = [(header::CONTENT_TYPE, format.media_type())];
    let rendering = document::begin(delivery, format, &api.engine.deployer)
        .await
        .map_err(EngineError::from)?;
    Ok((headers, Body::from_stream(rendering.into_stream())).into_response())
}
