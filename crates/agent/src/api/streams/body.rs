//! The body of an answer that stays open.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Bytes, Frame};
use tokio::time::{Instant, Sleep};

/// A comment of an event stream, which every client skips. Lines of JSON have no such filler.
const COMMENT: &[u8] = b": keep-alive\n\n";
/// The longest time for which an event stream sends nothing. Proxies close a connection that has
/// sent nothing for a minute.
pub const SILENCE: Duration = Duration::from_secs(15);

/// The body of the answer: the bytes that `next` yields, and a comment whenever `next` has yielded
/// nothing for too long.
pub struct StreamBody<F> {
    next: F,
    keep_alive: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl<F: FnMut(&mut Context<'_>) -> Poll<Option<Bytes>>> StreamBody<F> {
    pub fn new(next: F, silence: Option<Duration>) -> Self {
        Self {
            next,
            keep_alive: silence.map(|silence| (silence, Box::pin(tokio::time::sleep(silence)))),
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let next = (self.next)(context);
        let Some((silence, timer)) = &mut self.keep_alive else {
            return next;
        };
        let next = match next {
            Poll::Pending => timer
                .as_mut()
                .poll(context)
                .map(|()| Some(Bytes::from_static(COMMENT))),
            ready => ready,
        };
        if next.is_ready() {
            timer.as_mut().reset(Instant::now() + *silence);
        }
        next
    }
}

impl<F: FnMut(&mut Context<'_>) -> Poll<Option<Bytes>> + Unpin> hyper::body::Body
    for StreamBody<F>
{
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.poll_next(context)
            .map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the output of a body within half a second, if `events` are available immediately and
    /// no other events follow.
    async fn parts(events: &[&'static [u8]], silence: Option<Duration>) -> Vec<Bytes> {
        let mut events = events.iter();
        let next = move |_: &mut Context<'_>| {
            events.next().map_or(Poll::Pending, |event| {
                Poll::Ready(Some(Bytes::from_static(event)))
            })
        };
        let (mut body, mut parts) = (StreamBody::new(next, silence), Vec::new());
        let read = async {
            while let Some(part) = std::future::poll_fn(|context| body.poll_next(context)).await {
                parts.push(part);
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(500), read).await;
        parts
    }

    #[tokio::test(start_paused = true)]
    async fn silent_streams_have_comments_where_that_is_asked_for() {
        let sse = parts(
            &[b"data: 1\n\n", b"data: 2\n\n"],
            Some(Duration::from_millis(100)),
        )
        .await;
        assert_eq!(sse[..3], [&b"data: 1\n\n"[..], b"data: 2\n\n", COMMENT]);
        // Comments repeat at the interval, not at every poll.
        assert!((4..=7).contains(&sse.len()), "{sse:?}");
        assert_eq!(parts(&[b"{}\n"], None).await, [&b"{}\n"[..]]);
    }
}
