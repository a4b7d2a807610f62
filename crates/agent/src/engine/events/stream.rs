//! The reading end of a stream of events.

use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::Bytes;

use crate::engine::events::client::{StreamPart, StreamWriter};
use crate::engine::events::event_metric::EventMetric;
use crate::engine::events::framing::lost_line;

/// The reading end of a stream. Dropping the value leaves the stream.
#[derive(Debug)]
pub struct StreamReader {
    pub client: Arc<StreamWriter>,
    pub sources: Vec<Arc<EventMetric>>,
}

impl StreamReader {
    /// Returns the next bytes to send, `None` at the end.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.client.state.lock();
        match self.client.pop(&mut state) {
            Some(StreamPart::Events(bytes)) => Poll::Ready(Some(bytes)),
            Some(StreamPart::Lost { labels, count }) => {
                let mut line = Vec::new();
                lost_line(self.client.framing, count, &labels, &mut line);
                Poll::Ready(Some(line.into()))
            }
            None if state.sources == 0 => Poll::Ready(None),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        let mut state = self.client.state.lock();
        state.gone = true;
        while self.client.pop(&mut state).is_some() {}
        drop(state);
        self.sources
            .iter()
            .for_each(|source| source.changed.notify_one());
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::engine::events::client::{Backlog, LIMIT, LIMIT_OF_ALL};
    use crate::engine::events::framing::Framing;

    fn drain(stream: &StreamReader) -> Vec<Vec<u8>> {
        let mut context = Context::from_waker(Waker::noop());
        std::iter::from_fn(|| match stream.poll_next(&mut context) {
            Poll::Ready(part) => part.map(|bytes| bytes.to_vec()),
            Poll::Pending => None,
        })
        .collect()
    }

    #[test]
    fn all_clients_have_a_limit_together_and_slow_ones_take_nothing_from_fast_ones() {
        let all = Backlog::default();
        let labels: Arc<str> = "".into();
        let batch = Bytes::from(vec![b'x'; 1 << 20]);
        let slow: Vec<StreamReader> = (0..8)
            .map(|_| {
                let client = StreamWriter::new(Framing::Ndjson, all.clone());
                client.state.lock().sources += 1;
                StreamReader {
                    client,
                    sources: Vec::new(),
                }
            })
            .collect();
        for _ in 0..32 {
            for stream in &slow {
                stream.client.push(Some(&batch), 1, &labels);
            }
        }
        let waiting = || {
            slow.iter()
                .map(|stream| stream.client.state.lock().bytes)
                .sum::<usize>()
        };
        assert_eq!(waiting(), LIMIT_OF_ALL);
        assert!(slow.iter().all(|stream| !stream.client.has_room()));
        // A client that takes each batch before the next one comes loses nothing.
        let client = StreamWriter::new(Framing::Ndjson, all);
        client.state.lock().sources += 1;
        let fast = StreamReader {
            client: Arc::clone(&client),
            sources: Vec::new(),
        };
        for _ in 0..8 {
            assert!(client.has_room());
            assert_eq!(client.push(Some(&batch), 1, &labels), 0);
            assert_eq!(drain(&fast).len(), 1);
        }
        // Connections that clients have left make room.
        drop(slow);
        for _ in 0..16 {
            assert_eq!(client.push(Some(&batch), 1, &labels), 0);
        }
    }

    #[test]
    fn what_does_not_fit_is_counted_where_it_is_missing() {
        let (a, b): (Arc<str>, Arc<str>) = ("\"metric\":\"a\"".into(), "\"metric\":\"b\"".into());
        let client = StreamWriter::new(Framing::Ndjson, Backlog::default());
        client.state.lock().sources += 1;
        let stream = StreamReader {
            client: Arc::clone(&client),
            sources: Vec::new(),
        };
        let most = Bytes::from(vec![b'x'; LIMIT]);
        client.push(Some(&most), 7, &a);
        assert!(!client.has_room());
        for _ in 0..3 {
            assert_eq!(client.push(Some(&Bytes::from_static(b"y")), 2, &a), 2);
            assert_eq!(client.push(None, 1, &b), 1);
        }
        let parts = drain(&stream);
        let told: [&[u8]; 2] = [
            b"{\"lost\":6,\"metric\":\"a\"}\n",
            b"{\"lost\":3,\"metric\":\"b\"}\n",
        ];
        assert_eq!(
            (parts[0].len(), &parts[1..]),
            (LIMIT, &told.map(<[u8]>::to_vec)[..])
        );
        assert_eq!(client.push(Some(&Bytes::from_static(b"again")), 1, &a), 0);
        assert_eq!(drain(&stream), [b"again"]);
        client.end_source();
        assert_eq!(
            stream.poll_next(&mut Context::from_waker(Waker::noop())),
            Poll::Ready(None)
        );
    }
}
