//! Event metrics: streams of the events that programs write to a RINGBUF or PERF_EVENT_ARRAY.
//!
//! A map is read while at least one client listens. Without clients, its events stay in the ring
//! for the next client, and once the ring is full the kernel drops new events.

use std::io;
use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;
use twinprobe_api::EventStatus;
use twinprobe_kernel::{KernelError, LoadedDirection, TwinMap};

use crate::engine::events::client::{Backlog, StreamWriter};
use crate::engine::events::event_metric::EventMetric;
use crate::engine::events::framing::Framing;
use crate::engine::events::pump;
use crate::engine::events::records::Budget;
use crate::engine::events::stream::StreamReader;
use twinprobe_config::ProbeConfig;
use twinprobe_ebpf_common::hook::Direction;

/// The thread that reads all event maps. Neither requests nor exports delay it, and its wake-ups
/// need no other thread.
#[derive(Debug, Default)]
pub struct EventLoop {
    thread: OnceLock<Handle>,
    backlog: Backlog,
    budget: Budget,
}

impl EventLoop {
    /// Returns a handle of the thread. The first call starts the thread.
    fn handle(&self) -> io::Result<Handle> {
        if let Some(handle) = self.thread.get() {
            return Ok(handle.clone());
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("events".into())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
        // Probes change one at a time, so no other call has started a thread meanwhile.
        Ok(self.thread.get_or_init(|| handle).clone())
    }
}

/// The event metrics of one probe.
#[derive(Debug, Default)]
pub struct ProbeEvents {
    sources: Vec<Arc<EventMetric>>,
    runtime: Option<Handle>,
    backlog: Backlog,
}

impl ProbeEvents {
    /// Opens the event maps. This must happen before the first packet comes: a perf ring takes
    /// events only once it is open.
    pub fn open(
        config: &ProbeConfig,
        loaded: &[LoadedDirection],
        on: &EventLoop,
    ) -> Result<Self, KernelError> {
        let mut sources = Vec::new();
        for loaded in loaded {
            for (metric, map) in loaded.plan.metrics.iter().zip(&loaded.maps) {
                if let TwinMap::Events(map) = map {
                    sources.push(EventMetric::open(
                        Direction::from(loaded.plan.attach.hook),
                        (&metric.request.name, loaded.plan.interface()),
                        map,
                        &config.places.netns,
                        &on.budget,
                    )?);
                }
            }
        }
        let runtime = (!sources.is_empty()).then(|| on.handle()).transpose();
        let runtime =
            runtime.map_err(|error| KernelError::new("start", "the event thread", error))?;
        Ok(Self {
            sources,
            runtime,
            backlog: on.backlog.clone(),
        })
    }

    /// Starts a stream of the events of `metric`, or of all event metrics; `None` if the probe is
    /// removed or replaced. The error holds the names of the event metrics, if none is called
    /// `metric`.
    pub fn stream(
        &self,
        metric: Option<&str>,
        framing: Framing,
    ) -> Result<Option<StreamReader>, Vec<String>> {
        let wanted =
            |source: &&Arc<EventMetric>| metric.is_none_or(|metric| metric == source.metric);
        let sources: Vec<Arc<EventMetric>> = self.sources.iter().filter(wanted).cloned().collect();
        let Some(runtime) = self.runtime.as_ref().filter(|_| !sources.is_empty()) else {
            return Err(self
                .sources
                .iter()
                .map(|source| source.metric.clone())
                .collect());
        };
        let client = StreamWriter::new(framing, self.backlog.clone());
        // The stream exists before its client joins: a dropped stream tells every source that the
        // client has left.
        let stream = StreamReader {
            client: Arc::clone(&client),
            sources: sources.clone(),
        };
        let mut joined = false;
        for source in sources {
            let Some(starts) = source.join(&client) else {
                continue;
            };
            joined = true;
            if starts {
                runtime.spawn(pump::run(source));
            }
        }
        Ok(joined.then_some(stream))
    }

    /// Returns the state of each event metric for the probe's status.
    pub fn status(&self) -> Vec<EventStatus> {
        self.sources.iter().map(|source| source.status()).collect()
    }

    /// Ends all streams. No stream can start any more.
    pub fn end(&self) {
        self.sources.iter().for_each(|source| source.end());
    }

    /// Ends all streams like [`Self::end`], then closes the maps. Blocks until the maps are closed.
    pub fn close(&self) {
        self.end();
        self.sources.iter().for_each(|source| source.close());
    }
}
