//! Extractors for a request's path and query; values that can't be parsed are a [`Problem`].

use axum::extract::{self, FromRequestParts};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::error::Problem;

/// The parameters of the path.
pub(super) struct Path<T>(pub T);

/// The parameters after the `?`.
pub(super) struct Query<T>(pub T);

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
