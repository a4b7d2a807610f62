//! The path, the query and the body of a request. Values that can't be parsed become a
//! [`ProblemAnswer`]. Bodies are JSON or YAML of a limited size.

use std::error::Error;

use axum::body::{Body, HttpBody as _};
use axum::extract::{self, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::spawn_blocking;
use twinprobe_api::{ConfigDocument, parse_document, parse_yaml};

use crate::api::error::ProblemAnswer;
use crate::engine::deploy::cause::ChangeAuthor;
use crate::engine::error::EngineError;
use twinprobe_access::{Peer, Principal, RecordNotes, Refusal};
use twinprobe_serve::TooSlow;

/// The parameters of the path.
pub struct Path<T>(pub T);

/// The parameters after the `?` of a path.
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = ProblemAnswer;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemAnswer> {
        let read = extract::Path::from_request_parts(parts, state).await;
        read.map(|extract::Path(read)| Self(read))
            .map_err(|error| ProblemAnswer::new(error.status(), error.body_text()))
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = ProblemAnswer;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemAnswer> {
        let read = extract::Query::from_request_parts(parts, state).await;
        read.map(|extract::Query(read)| Self(read))
            .map_err(|error| ProblemAnswer::new(error.status(), error.body_text()))
    }
}

/// The largest number of characters of a reason.
const MESSAGE_LIMIT: usize = 1024;

/// The query of a change.
#[derive(Debug, Deserialize)]
struct ChangeQuery {
    message: Option<String>,
}

/// The author of a change: the client, its address, and its reason, which the record notes.
impl<S: Send + Sync> FromRequestParts<S> for ChangeAuthor {
    type Rejection = ProblemAnswer;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemAnswer> {
        let Query(ChangeQuery { message }) = Query::from_request_parts(parts, state).await?;
        if message
            .as_ref()
            .is_some_and(|message| message.chars().count() > MESSAGE_LIMIT)
        {
            let detail = format!(
                "the message has more than {MESSAGE_LIMIT} characters; write a shorter one"
            );
            return Err(ProblemAnswer::new(StatusCode::BAD_REQUEST, detail));
        }
        let (principal, peer) = (
            parts.extensions.get::<Principal>(),
            parts.extensions.get::<Peer>(),
        );
        let (Some(principal), Some(peer)) = (principal, peer) else {
            return Err(ProblemAnswer::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the client is not known",
            ));
        };
        if let (Some(message), Some(notes)) = (&message, parts.extensions.get::<RecordNotes>()) {
            notes.explain(message);
        }
        Ok(Self {
            principal: principal.clone(),
            from: peer.origin.shown(),
            message,
        })
    }
}

/// The limit of a body in bytes. A configuration has at most two sources of 1 MiB each, and escapes
/// make it longer.
pub const MAX_BODY: usize = 2560 << 10;

/// The limit of the bodies of all requests together, in bytes: some dozen bodies of the largest
/// size. A client may send a body slowly, and a request may wait for its turn.
const ALL_BODIES: usize = 128 << 20;
static ROOM: Semaphore = Semaphore::const_new(ALL_BODIES);

/// The share of [`ALL_BODIES`] that a request has until it is answered.
#[derive(Debug, Default)]
pub struct BodyShare(Option<SemaphorePermit<'static>>);

impl BodyShare {
    /// Takes room for some more bytes.
    pub fn add(&mut self, bytes: usize) -> Result<(), ProblemAnswer> {
        let taken = u32::try_from(bytes)
            .ok()
            .and_then(|bytes| ROOM.try_acquire_many(bytes).ok());
        let taken = taken.ok_or_else(|| {
            let detail =
                format!("requests that are under way have bodies of {ALL_BODIES} bytes, which is the limit; try again later");
            ProblemAnswer::busy(detail)
        })?;
        match &mut self.0 {
            Some(held) => held.merge(taken),
            none => *none = Some(taken),
        }
        Ok(())
    }
}

/// The syntax of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    Json,
    Yaml,
}

/// The media types of bodies. Pages of other servers can't send these types without a preflight
/// request.
const TYPES: [(&str, Syntax); 5] = [
    ("application/json", Syntax::Json),
    ("application/yaml", Syntax::Yaml),
    ("application/x-yaml", Syntax::Yaml),
    ("text/yaml", Syntax::Yaml),
    ("text/x-yaml", Syntax::Yaml),
];

impl Syntax {
    /// Returns the syntax that `Content-Type` names.
    pub fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        let mut given = headers
            .get_all(header::CONTENT_TYPE)
            .iter()
            .map(|value| value.to_str().unwrap_or_default());
        let (value, others) = (given.next().unwrap_or_default(), given.count());
        let essence = value.split(';').next().unwrap_or_default().trim();
        let known = TYPES
            .iter()
            .find(|(name, _)| others == 0 && essence.eq_ignore_ascii_case(name));
        known.map(|(_, syntax)| *syntax).ok_or_else(|| {
            Refusal::MediaType(if essence.is_empty() {
                "of no type".to_owned()
            } else {
                essence.to_owned()
            })
        })
    }
}

/// Reads a body that is a configuration.
pub async fn read_config(
    headers: &HeaderMap,
    body: Body,
) -> Result<(ConfigDocument, BodyShare), ProblemAnswer> {
    let (bytes, held) = read_body(body).await?;
    // The guard has already refused a body without a type. A request without a body counts as an
    // empty document.
    Ok((
        parse_config(Syntax::of(headers).unwrap_or(Syntax::Json), bytes).await?,
        held,
    ))
}

/// The number of bodies that are parsed at once. Parsing takes at most some tenths of a second, and
/// the others wait.
static PARSERS: Semaphore = Semaphore::const_new(2);

/// Parses a configuration on another thread, so that the threads which answer requests stay free.
pub async fn parse_config(syntax: Syntax, bytes: Vec<u8>) -> Result<ConfigDocument, ProblemAnswer> {
    // The semaphore is never closed. The work holds the place, because it continues after a client
    // hangs up.
    let place = PARSERS.acquire().await;
    let parsed = spawn_blocking(move || {
        let _place = place;
        match syntax {
            Syntax::Json => parse_document(&bytes),
            Syntax::Yaml => parse_yaml(&bytes),
        }
    });
    Ok(parsed.await.map_err(EngineError::from)??)
}

/// Reads a request's body. Refuses it with 413 if it is larger than [`MAX_BODY`], with 408 if it is
/// [`TooSlow`], and with 429 if there is no room for it. The server reads or drops the rest of a
/// refused body.
pub async fn read_body(mut body: Body) -> Result<(Vec<u8>, BodyShare), ProblemAnswer> {
    let (mut bytes, mut held) = (Vec::new(), BodyShare::default());
    if body.size_hint().lower() > MAX_BODY as u64 {
        return Err(too_large());
    }
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame
            .map_err(|error| unreadable(&*error.into_inner()))?
            .into_data()
        else {
            continue;
        };
        if bytes.len() + data.len() > MAX_BODY {
            return Err(too_large());
        }
        held.add(data.len())?;
        bytes.extend_from_slice(&data);
    }
    Ok((bytes, held))
}

pub fn too_large() -> ProblemAnswer {
    let detail = format!("the body has more than {MAX_BODY} bytes; a source may have 1 MiB");
    ProblemAnswer::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
}

pub fn unreadable(error: &(dyn Error + 'static)) -> ProblemAnswer {
    let status = if error.is::<TooSlow>() {
        StatusCode::REQUEST_TIMEOUT
    } else {
        StatusCode::BAD_REQUEST
    };
    ProblemAnswer::new(status, format!("the body could not be read: {error}"))
}
