//! Event metrics: streams of what programs write to a RINGBUF or PERF_EVENT_ARRAY.
//!
//! A map is read while at least one client listens. Without one its events stay in the ring, and once that is
//! full the newest are lost: the first client to come gets what waited.

mod client;
mod output;
mod pump;
mod source;

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use tokio::runtime::Handle;
use twinprobe_kernel::{KernelError, LoadedDirection, TwinMap};

use self::client::Client;
pub use self::client::{EventStream, Framing};
use self::source::Source;
use crate::config::ProbeConfig;

/// One event metric in a probe's status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventStatus {
    pub direction: &'static str,
    pub metric: String,
    /// Taken out of the map for the clients that listened.
    pub delivered: u64,
    /// What the kernel had no room for; `null` where it does not count (RINGBUF).
    pub lost: Option<u64>,
    /// Events that clients did not get since they read too slowly, summed over the clients.
    pub missed: u64,
    /// Who listens now.
    pub clients: usize,
}

/// A thread of its own on which all event maps are read: neither requests nor exports delay it, and its
/// wake-ups do not go through other threads.
#[derive(Debug, Default)]
pub struct EventLoop(OnceLock<Handle>);

impl EventLoop {
    /// Starts with the first probe that needs it.
    fn handle(&self) -> io::Result<Handle> {
        if let Some(handle) = self.0.get() {
            return Ok(handle.clone());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("events".into())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
        // Changes are made one at a time, so nobody else has started one.
        Ok(self.0.get_or_init(|| handle).clone())
    }
}

/// The event metrics of one probe.
#[derive(Debug, Default)]
pub struct ProbeEvents {
    sources: Vec<Arc<Source>>,
    runtime: Option<Handle>,
}

/// Why there is no stream.
#[derive(Debug, PartialEq, Eq)]
pub enum NoStream {
    /// There is no such event metric; these are there.
    Unknown(Vec<String>),
    /// The probe has gone.
    Closed,
}

impl ProbeEvents {
    /// Makes the maps ready, before the first packet comes.
    pub fn open(
        config: &ProbeConfig,
        loaded: &[LoadedDirection],
        on: &EventLoop,
    ) -> Result<Self, KernelError> {
        let mut sources = Vec::new();
        let namespace = config.netns().map(Path::to_owned);
        for ((direction, config), loaded) in config.directions().zip(loaded) {
            for (metric, map) in config.metrics().iter().zip(&loaded.twins.maps) {
                if let TwinMap::Events(map) = map {
                    sources.push(Source::open(direction, metric.name(), map, &namespace)?);
                }
            }
        }
        let runtime = if sources.is_empty() { None } else { Some(on.handle()) };
        let runtime =
            runtime.transpose().map_err(|error| KernelError::new("start", "the event thread", error))?;
        Ok(Self { sources, runtime })
    }

    /// A stream of the events of `metric`, or of all.
    pub fn stream(&self, metric: Option<&str>, framing: Framing) -> Result<EventStream, NoStream> {
        let wanted = |source: &&Arc<Source>| metric.is_none_or(|metric| metric == source.metric());
        let sources: Vec<Arc<Source>> = self.sources.iter().filter(wanted).cloned().collect();
        let Some(runtime) = self.runtime.as_ref().filter(|_| !sources.is_empty()) else {
            return Err(NoStream::Unknown(self.sources.iter().map(|s| s.metric().to_owned()).collect()));
        };
        let client = Client::new(framing);
        // Made first, so that whatever happens the sources learn that the client has gone.
        let stream = EventStream::new(Arc::clone(&client), sources.clone());
        let joined = sources.iter().filter(|source| source.join(&client, runtime)).count();
        if joined == 0 { Err(NoStream::Closed) } else { Ok(stream) }
    }

    pub fn status(&self) -> Vec<EventStatus> {
        self.sources.iter().map(|source| source.status()).collect()
    }

    /// Ends all streams; none can be begun any more.
    pub fn end(&self) {
        for source in &self.sources {
            source.end();
        }
    }

    /// As [`Self::end`], and gives up the maps. Blocks until that is done.
    pub fn close(&self) {
        self.end();
        for source in &self.sources {
            source.close();
        }
    }
}
