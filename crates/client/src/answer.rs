//! Answers with a status of success: of a known type, or a stream.

use std::marker::PhantomData;
use std::time::Duration;

use reqwest::{Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ClientError;
use crate::transport::body;

/// A whole answer: its bytes, which hold a `T` in JSON.
#[derive(Debug)]
pub struct Answer<T> {
    call: String,
    pub status: StatusCode,
    /// True if the daemon has found nothing to change (`Twinprobe-Outcome: unchanged`).
    pub is_unchanged: bool,
    /// The time for which a replay's programs have run, of the header `Server-Timing`.
    pub ran: Option<Duration>,
    /// The digest of the shape of a window's document, if the request asked for it
    /// (`Twinprobe-Shape`).
    pub shape: Option<String>,
    /// The tag of the version that the answer shows (`ETag`).
    pub etag: Option<String>,
    /// The bytes as the daemon sent them.
    pub body: Vec<u8>,
    content: PhantomData<fn() -> T>,
}

impl<T> Answer<T> {
    /// Reads `response` to its end, at most `most` bytes; `call` is its method and path, for
    /// errors.
    pub(crate) async fn receive(
        call: String,
        response: Response,
        most: usize,
    ) -> Result<Self, ClientError> {
        let status = response.status();
        let timing = response
            .headers()
            .get("server-timing")
            .and_then(|timing| timing.to_str().ok());
        let milliseconds =
            timing.and_then(|timing| timing.strip_prefix("run;dur=")?.parse::<f64>().ok());
        let ran = milliseconds.and_then(|time| Duration::try_from_secs_f64(time / 1e3).ok());
        let is_unchanged = response
            .headers()
            .get("twinprobe-outcome")
            .is_some_and(|outcome| outcome == "unchanged");
        let text = |name: &str| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
        let (shape, etag) = (text("twinprobe-shape"), text("etag"));
        let body = body(&call, response, most).await?;
        Ok(Self {
            call,
            status,
            is_unchanged,
            ran,
            shape,
            etag,
            body,
            content: PhantomData,
        })
    }

    /// Returns the body as JSON, with the fields that this version does not know.
    pub fn json(&self) -> Result<Value, ClientError> {
        self.parse()
    }

    /// Returns the result of `parse` for the body.
    pub fn parsed<D>(
        &self,
        parse: impl FnOnce(&[u8]) -> serde_json::Result<D>,
    ) -> Result<D, ClientError> {
        parse(&self.body).map_err(|source| ClientError::Content {
            call: self.call.clone(),
            source,
        })
    }

    fn parse<D: DeserializeOwned>(&self) -> Result<D, ClientError> {
        self.parsed(|body| serde_json::from_slice(body))
    }
}

impl<T: DeserializeOwned> Answer<T> {
    /// Returns the content of the body; [`ClientError::Content`] if the body holds no `T`.
    pub fn read(&self) -> Result<T, ClientError> {
        self.parse()
    }
}

/// An answer that continues until the probe is deleted or replaced, or the daemon stops.
#[derive(Debug)]
pub struct EventStream {
    pub(crate) call: String,
    pub(crate) response: Response,
}

impl EventStream {
    /// Waits for the next piece: some lines. The last line may continue in the piece after. `None`
    /// at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        let piece = self
            .response
            .chunk()
            .await
            .map_err(|error| ClientError::exchange(&self.call, error))?;
        Ok(piece.map(Vec::from))
    }
}
