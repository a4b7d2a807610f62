//! One client of an event stream: a queue of events that are read and not yet sent, up to a limit. Events beyond the
//! limit are lost for this client alone; the stream says how many, at the place where they are missing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use hyper::body::Bytes;

use super::source::Source;

/// The limit of bytes that wait for one client.
const LIMIT: usize = 16 << 20;
/// The number of bytes that almost every batch fits in.
const BATCH: usize = 256 << 10;

/// The format of a stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One line of JSON for each event.
    Ndjson,
    /// `text/event-stream`, which browsers read.
    Sse,
}

impl Framing {
    pub const ALL: [Self; 2] = [Self::Ndjson, Self::Sse];

    /// Returns the bytes before an event.
    pub(super) const fn begin(self) -> &'static [u8] {
        match self {
            Self::Ndjson => b"",
            Self::Sse => b"data: ",
        }
    }

    /// Returns the bytes before a message about lost events.
    pub(super) const fn begin_lost(self) -> &'static [u8] {
        match self {
            Self::Ndjson => b"",
            Self::Sse => b"event: lost\ndata: ",
        }
    }

    /// Returns the bytes after an event or a message.
    pub(super) const fn end(self) -> &'static [u8] {
        match self {
            Self::Ndjson => b"\n",
            Self::Sse => b"\n\n",
        }
    }
}

/// The writing end of a stream.
#[derive(Debug)]
pub struct Client {
    framing: Framing,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    parts: VecDeque<Part>,
    /// The number of bytes in `parts`.
    bytes: usize,
    waker: Option<Waker>,
    /// The number of sources that may still write.
    sources: usize,
    /// True once the client has left.
    gone: bool,
}

#[derive(Debug)]
enum Part {
    Events(Bytes),
    /// The number of events that did not fit, by the source with these labels.
    Lost {
        labels: Arc<str>,
        count: u64,
    },
}

impl Client {
    /// Makes a client without sources.
    pub fn new(framing: Framing) -> Arc<Self> {
        Arc::new(Self { framing, state: Mutex::default() })
    }

    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Tells whether a batch of usual size fits; one that does not fit need not be rendered.
    pub(super) fn has_room(&self) -> bool {
        self.lock().bytes + BATCH <= LIMIT
    }

    /// Tells whether the reading end was dropped.
    pub fn is_gone(&self) -> bool {
        self.lock().gone
    }

    /// Counts a source that may write to the client; each needs one [`Self::end_source`].
    pub(super) fn add_source(&self) {
        self.lock().sources += 1;
    }

    /// Notes the end of one of the sources. The stream ends with the last one.
    pub(super) fn end_source(&self) {
        let mut state = self.lock();
        state.sources -= 1;
        let waker = if state.sources == 0 { state.waker.take() } else { None };
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Queues `bytes`, which hold `count` events of the source with these labels, or notes the events as lost. `bytes`
    /// is `None` if the events were not rendered. Returns the number of events that were lost.
    pub(super) fn push(&self, bytes: Option<&Bytes>, count: u64, labels: &Arc<str>) -> u64 {
        let mut state = self.lock();
        if state.gone {
            return 0;
        }
        let lost = match bytes {
            Some(bytes) if state.bytes == 0 || state.bytes + bytes.len() <= LIMIT => {
                state.bytes += bytes.len();
                state.parts.push_back(Part::Events(bytes.clone()));
                0
            }
            _ => {
                state.lose(count, labels);
                count
            }
        };
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        lost
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds lost events to the note at the end of the queue. Each source has one note, however long the client does not
    /// read, so that notes do not fill the memory.
    fn lose(&mut self, lost: u64, by: &Arc<str>) {
        for part in self.parts.iter_mut().rev() {
            match part {
                Part::Lost { labels, count } if Arc::ptr_eq(labels, by) => {
                    *count += lost;
                    return;
                }
                Part::Lost { .. } => {}
                Part::Events(_) => break,
            }
        }
        self.parts.push_back(Part::Lost { labels: Arc::clone(by), count: lost });
    }
}

/// The reading end of a stream. Dropping the value leaves the stream.
#[derive(Debug)]
pub struct EventStream {
    client: Arc<Client>,
    sources: Vec<Arc<Source>>,
}

impl EventStream {
    pub(super) fn new(client: Arc<Client>, sources: Vec<Arc<Source>>) -> Self {
        Self { client, sources }
    }

    /// Returns the next bytes to send, `None` at the end.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.client.lock();
        match state.parts.pop_front() {
            Some(Part::Events(bytes)) => {
                state.bytes -= bytes.len();
                Poll::Ready(Some(bytes))
            }
            Some(Part::Lost { labels, count }) => {
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

impl Drop for EventStream {
    fn drop(&mut self) {
        let mut state = self.client.lock();
        state.gone = true;
        state.parts.clear();
        drop(state);
        for source in &self.sources {
            source.look_up();
        }
    }
}

/// Writes `{"lost":n,"direction":"ingress","metric":"name"}`.
pub(super) fn lost_line(framing: Framing, count: u64, labels: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(framing.begin_lost());
    out.extend_from_slice(format!("{{\"lost\":{count},{labels}}}").as_bytes());
    out.extend_from_slice(framing.end());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(stream: &EventStream) -> Vec<Vec<u8>> {
        let mut context = Context::from_waker(Waker::noop());
        std::iter::from_fn(|| match stream.poll_next(&mut context) {
            Poll::Ready(part) => part.map(|bytes| bytes.to_vec()),
            Poll::Pending => None,
        })
        .collect()
    }

    #[test]
    fn what_does_not_fit_is_counted_where_it_is_missing() {
        let (a, b): (Arc<str>, Arc<str>) = ("\"metric\":\"a\"".into(), "\"metric\":\"b\"".into());
        let client = Client::new(Framing::Ndjson);
        client.add_source();
        let stream = EventStream::new(Arc::clone(&client), Vec::new());
        let most = Bytes::from(vec![b'x'; LIMIT]);
        client.push(Some(&most), 7, &a);
        assert!(!client.has_room());
        for _ in 0..3 {
            assert_eq!(client.push(Some(&Bytes::from_static(b"y")), 2, &a), 2);
            assert_eq!(client.push(None, 1, &b), 1);
        }
        let parts = drain(&stream);
        let told: [&[u8]; 2] = [b"{\"lost\":6,\"metric\":\"a\"}\n", b"{\"lost\":3,\"metric\":\"b\"}\n"];
        assert_eq!((parts[0].len(), &parts[1..]), (LIMIT, &told.map(<[u8]>::to_vec)[..]));
        assert_eq!(client.push(Some(&Bytes::from_static(b"again")), 1, &a), 0);
        assert_eq!(drain(&stream), [b"again"]);
        client.end_source();
        assert_eq!(stream.poll_next(&mut Context::from_waker(Waker::noop())), Poll::Ready(None));
    }
}
