//! A request's path, query and body. Values that can't be parsed are a [`Problem`]; bodies are JSON of a limited size.

use axum::body::Body;
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
/// The number of bytes of a too large body that are read and dropped: a client that is still sending when the
/// connection closes would not see the answer.
const MAX_DRAIN: usize = 64 << 20;

/// Reads a request's body. Refuses a larger body than [`MAX_BODY`] with 413 and another type than JSON with 415.
pub async fn read_body(headers: &HeaderMap, body: Body) -> Result<Vec<u8>, Problem> {
    let mut body = body;
    let mut bytes = Vec::new();
    let mut total = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Problem::new(StatusCode::BAD_REQUEST, format!("the body could not be read: {error}"))
        })?;
        let Ok(data) = frame.into_data() else { continue };
        total += data.len();
        if total <= MAX_BODY {
            bytes.extend_from_slice(&data);
        } else if total > MAX_DRAIN {
            break;
        }
    }
    if total > MAX_BODY {
        let detail = format!("the body has more than {MAX_BODY} bytes; a source may have 1 MiB");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
    }
    check_type(headers)?;
    Ok(bytes)
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
