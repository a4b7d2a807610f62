//! The documents of many windows in one answer.

use std::io::BufRead as _;

use reqwest::{Method, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use twinprobe_ebpf_common::window::Listing;
use twinprobe_ebpf_common::window::shape::WindowShape;

use crate::client::Client;
use crate::error::ClientError;

/// The bytes of memory that the lines of an answer reuse.
const KEPT: usize = 1 << 20;

/// A list of windows, and the lines of their documents as the daemon renders them.
#[derive(Debug)]
pub struct WindowDocuments {
    call: String,
    response: Response,
    /// The windows; the daemon lists as many as the answer has.
    pub listing: Listing,
    /// The received part of the answer, and the place of the first unread byte.
    buffer: Vec<u8>,
    at: usize,
    most: usize,
}

/// The next line of an answer.
#[derive(Debug)]
pub enum WindowLine {
    /// The shape of the documents that follow.
    Shape(WindowShape),
    /// The document of the next window of the list, as a request for that window gives it in JSON.
    Document(Vec<u8>),
    /// The next window of the list was removed.
    Removed,
}

#[derive(Deserialize)]
struct ShapeLine {
    shape: WindowShape,
}

impl Client {
    /// `GET /v1/probes/{name}/windows?documents=true&shape=true`: at most `limit` windows after
    /// `after`. A daemon that does not know the request refuses it with 400.
    pub async fn documents(
        &self,
        name: &str,
        after: u64,
        limit: usize,
    ) -> Result<WindowDocuments, ClientError> {
        let request = self.probe(Method::GET, name, ["windows"], "application/x-ndjson")?;
        let request = request.query(&[("after", after), ("limit", limit as u64)]);
        let request = request.query(&[("documents", true), ("shape", true)]);
        let (call, response) = self.transport.send(request).await?;
        let most = self.transport.most;
        let (buffer, listing) = (Vec::new(), Listing::default());
        let mut documents = WindowDocuments {
            call,
            response,
            listing,
            buffer,
            at: 0,
            most,
        };
        let first = documents.line().await?.unwrap_or_default();
        documents.listing = documents.parsed(&first)?;
        Ok(documents)
    }
}

impl WindowDocuments {
    /// Waits for the next line; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<WindowLine>, ClientError> {
        let Some(line) = self.line().await? else {
            return Ok(None);
        };
        Ok(Some(if line == b"null" {
            WindowLine::Removed
        } else if line.starts_with(br#"{"shape":"#) {
            WindowLine::Shape(self.parsed::<ShapeLine>(&line)?.shape)
        } else {
            WindowLine::Document(line)
        }))
    }

    fn parsed<T: DeserializeOwned>(&self, line: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(line).map_err(|source| ClientError::Content {
            call: self.call.clone(),
            source,
        })
    }

    async fn line(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        let mut searched = self.at;
        loop {
            let mut rest = &self.buffer[searched..];
            // Reading from memory does not fail.
            let end = searched + rest.skip_until(b'\n').unwrap_or_default();
            if end > self.at && self.buffer[end - 1] == b'\n' {
                let line = self.buffer[self.at..end - 1].to_vec();
                self.at = end;
                return Ok(Some(line));
            }
            // Only the beginning of a line is left.
            self.buffer.drain(..self.at);
            self.buffer.shrink_to(KEPT);
            (self.at, searched) = (0, self.buffer.len());
            if searched > self.most {
                return Err(ClientError::TooLarge {
                    call: self.call.clone(),
                    most: self.most,
                });
            }
            let chunk = self.response.chunk().await;
            match chunk.map_err(|error| ClientError::exchange(&self.call, error))? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }
}
