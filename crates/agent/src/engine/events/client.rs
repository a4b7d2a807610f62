//! One client of an event stream: a queue of events that are read and not yet sent, up to a limit.
//! Events beyond the limit are lost for this client alone; the stream says how many, at the place
//! where they are missing. There is also a limit for the queues of all clients together. A client
//! whose queue is empty gets the next batch in any case, so that slow clients cause no loss for
//! fast clients.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use hyper::body::Bytes;
use parking_lot::Mutex;

use crate::engine::events::framing::Framing;

/// The most bytes that may be queued for one client.
pub const LIMIT: usize = 16 << 20;
/// The most bytes that may be queued for all clients together, in addition to one batch for each
/// client.
pub const LIMIT_OF_ALL: usize = 64 << 20;
/// The number of bytes that suffices for almost every batch.
const BATCH: usize = 256 << 10;

/// The writing end of a stream.
#[derive(Debug)]
pub struct StreamWriter {
    pub framing: Framing,
    pub state: Mutex<QueueState>,
    /// The number of bytes that are queued for all clients. It changes together with the number in
    /// `state`, under the lock of `state`.
    all: Backlog,
}

/// The number of bytes that are queued for all clients. Clones share the number.
#[derive(Clone, Debug, Default)]
pub struct Backlog(Arc<AtomicUsize>);

#[derive(Debug, Default)]
pub struct QueueState {
    pub parts: VecDeque<StreamPart>,
    /// The number of bytes in `parts`.
    pub bytes: usize,
    pub waker: Option<Waker>,
    /// The number of sources that may still write. Each source ends with one call of
    /// [`StreamWriter::end_source`].
    pub sources: usize,
    /// True once the client has left.
    pub gone: bool,
}

#[derive(Debug)]
pub enum StreamPart {
    Events(Bytes),
    /// The number of events that did not fit, by the source with these labels.
    Lost {
        labels: Arc<str>,
        count: u64,
    },
}

impl StreamWriter {
    /// Makes a client without sources.
    pub fn new(framing: Framing, all: Backlog) -> Arc<Self> {
        Arc::new(Self {
            framing,
            state: Mutex::default(),
            all,
        })
    }

    /// Tells whether a batch of usual size fits; a batch that does not fit need not be rendered.
    pub fn has_room(&self) -> bool {
        self.fits(self.state.lock().bytes, BATCH)
    }

    /// Notes the end of one of the sources. The stream ends with its last source.
    pub fn end_source(&self) {
        let mut state = self.state.lock();
        state.sources -= 1;
        let waker = if state.sources == 0 {
            state.waker.take()
        } else {
            None
        };
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Queues `bytes`, which hold `count` events of the source with these labels, or notes the
    /// events as lost. `bytes` is `None` if the events were not rendered. Returns the number of
    /// events that were lost.
    pub fn push(&self, bytes: Option<&Bytes>, count: u64, labels: &Arc<str>) -> u64 {
        let mut state = self.state.lock();
        if state.gone {
            return 0;
        }
        let fitting = bytes.filter(|bytes| self.fits(state.bytes, bytes.len()));
        match fitting {
            Some(bytes) => {
                state.bytes += bytes.len();
                self.all.0.fetch_add(bytes.len(), Ordering::Relaxed);
                state.parts.push_back(StreamPart::Events(bytes.clone()));
            }
            None => state.lose(count, labels),
        }
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        if fitting.is_some() { 0 } else { count }
    }

    /// Takes the next part from the queue.
    pub fn pop(&self, state: &mut QueueState) -> Option<StreamPart> {
        let part = state.parts.pop_front();
        if let Some(StreamPart::Events(bytes)) = &part {
            state.bytes -= bytes.len();
            self.all.0.fetch_sub(bytes.len(), Ordering::Relaxed);
        }
        part
    }

    /// Tells whether `more` bytes may be queued in addition to `waiting` bytes.
    fn fits(&self, waiting: usize, more: usize) -> bool {
        // Sources of different clients may pass the check at the same time, each with a batch.
        let room = || self.all.0.load(Ordering::Relaxed) + more <= LIMIT_OF_ALL;
        waiting == 0 || waiting + more <= LIMIT && room()
    }
}

impl QueueState {
    /// Adds lost events to the note at the end of the queue. Each source has at most one note, even
    /// if the client reads nothing for a long time, so that notes do not fill the memory.
    fn lose(&mut self, lost: u64, by: &Arc<str>) {
        for part in self.parts.iter_mut().rev() {
            match part {
                StreamPart::Lost { labels, count } if Arc::ptr_eq(labels, by) => {
                    *count += lost;
                    return;
                }
                StreamPart::Lost { .. } => {}
                StreamPart::Events(_) => break,
            }
        }
        self.parts.push_back(StreamPart::Lost {
            labels: Arc::clone(by),
            count: lost,
        });
    }
}
