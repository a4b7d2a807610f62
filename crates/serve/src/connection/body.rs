//! Bodies of requests and answers, on their way through a connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Sleep, timeout};

use crate::connection::progress::ConnectionProgress;

/// The error of a body that takes longer than this time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the body took longer than {} s (--body-timeout)", .0.as_secs())]
pub struct TooSlow(pub Duration);

/// The number of bytes of a refused body that are read and dropped: a client that is still sending
/// when the connection closes would not see the answer.
const DRAIN: usize = 64 << 20;
/// The longest total time for reading such a body.
const DRAIN_TIME: Duration = Duration::from_secs(10);
/// The longest pause between two parts of such a body.
const DRAIN_PAUSE: Duration = Duration::from_millis(500);

/// The body of a request while its handler reads it. The bytes that the handler does not read are
/// in [`Rest`] afterwards.
#[derive(Debug)]
pub struct Upload {
    body: Option<Incoming>,
    /// True if the client sends the body without a request for it (`Expect: 100-continue`), or
    /// after that request.
    is_sent: bool,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    rest: Rest,
}

/// The part of a body that the handler has left unread.
#[derive(Clone, Debug, Default)]
pub struct Rest(Arc<Mutex<Option<Incoming>>>);

/// The body of an answer. The request ends with this body.
#[derive(Debug)]
pub struct Answered {
    pub body: Body,
    pub progress: Arc<ConnectionProgress>,
}

impl Upload {
    /// Makes a body that fails with [`TooSlow`] if it takes longer than `limit`.
    pub fn new(body: Incoming, is_sent: bool, limit: Duration, rest: Rest) -> Self {
        Self {
            body: Some(body),
            is_sent,
            limit,
            timer: Box::pin(tokio::time::sleep(limit)),
            rest,
        }
    }
}

impl hyper::body::Body for Upload {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.is_sent = true;
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        self.timer
            .as_mut()
            .poll(context)
            .map(|()| Some(Err(TooSlow(self.limit).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body
            .as_ref()
            .is_none_or(hyper::body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map(hyper::body::Body::size_hint)
            .unwrap_or_default()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        *self.rest.0.lock() = self.body.take().filter(|_| self.is_sent);
    }
}

impl Rest {
    /// Reads and drops data in transit, within limits. Meanwhile the connection may be ended to
    /// make room for others, because a client needs no credential to send a body slowly.
    pub async fn drain(&self, progress: &ConnectionProgress) {
        let Some(mut body) = self.0.lock().take() else {
            return;
        };
        progress.rest();
        let read = async {
            let mut left = DRAIN;
            while let Ok(Some(Ok(frame))) = timeout(DRAIN_PAUSE, body.frame()).await {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                let Some(rest) = left.checked_sub(bytes) else {
                    break;
                };
                left = rest;
            }
        };
        let _ = timeout(DRAIN_TIME, read).await;
        progress.begin();
    }
}

impl hyper::body::Body for Answered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.progress.end();
    }
}
