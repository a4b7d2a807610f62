//! A request's path, query and body. Values that can't be parsed are a [`Problem`]; bodies are JSON of a limited size.

use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, HttpBody as _};
use axum::extract::{self, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;

use crate::api::error::Problem;

/// The parameters of the path.
pub struct Path<T>(pub T);

/// The parameters after the `?`.
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = extract::Path::from_request_parts(parts, state).await;
        read.map(|extract::Path(read)| Self(read))
            .map_err(|error| Problem::new(error.status(), error.body_text()))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = extract::Query::from_request_parts(parts, state).await;
        read.map(|extract::Query(read)| Self(read))
            .map_err(|error| Problem::new(error.status(), error.body_text()))
    }
}

/// The limit of a body in bytes. A configuration holds at most two sources of 1 MiB each, plus escapes.
const MAX_BODY: usize = 2560 << 10;

/// The error of a body that takes longer than this time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the body took longer than {} s (--body-timeout)", .0.as_secs())]
pub struct TooSlow(pub Duration);

/// Reads a request's body. Refuses another type than JSON with 415, a larger body than [`MAX_BODY`] with 413, and one
/// that is [`TooSlow`] with 408. The server deals with the rest of a body that is refused.
pub async fn read_body(headers: &HeaderMap, mut body: Body) -> Result<Vec<u8>, Problem> {
    check_type(headers)?;
    let mut bytes = Vec::new();
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(too_large());
    }
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| unreadable(&error.into_inner()))?.into_data() else { continue };
        if bytes.len() + data.len() > MAX_BODY {
            return Err(too_large());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

fn too_large() -> Problem {
    let detail = format!("the body has more than {MAX_BODY} bytes; a source may have 1 MiB");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
}

fn unreadable(error: &BoxError) -> Problem {
    let status = if error.is::<TooSlow>() { StatusCode::REQUEST_TIMEOUT } else { StatusCode::BAD_REQUEST };
    Problem::new(status, format!("the body could not be read: {error}"))
}

/// Refuses other types than JSON. A request without a type counts as JSON.
fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") || essence.is_empty() {
        return Ok(());
    }
    let detail = format!("the body is {essence}; send application/json");
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
}
