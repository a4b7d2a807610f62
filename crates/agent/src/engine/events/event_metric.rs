//! An event metric: its map, the clients that listen to it, and the state of the task that reads
//! the map.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use serde_json::Value;
use tokio::sync::Notify;
use twinprobe_api::EventStatus;
use twinprobe_ebpf_common::Render;
use twinprobe_ebpf_common::hook::Direction;
use twinprobe_exporter::EventEncoder;
use twinprobe_kernel::{EventMap, EventReader, EventRecord, KernelError, ReadingEnd};

use crate::engine::events::client::StreamWriter;
use crate::engine::events::records::Budget;
use crate::engine::placement::Namespace;

/// The longest time for which the close waits for the reading task, which usually ends within a few
/// milliseconds.
const CLOSING: Duration = Duration::from_secs(2);

/// An event metric. Several clients may listen to it at the same time.
#[derive(Debug)]
pub struct EventMetric {
    pub direction: Direction,
    pub metric: String,
    /// The interface, if the map has the events of one interface only.
    pub interface: Option<String>,
    /// `"direction":"ingress","metric":"name"`
    pub labels: Arc<str>,
    pub encoder: EventEncoder,
    /// The namespace whose interfaces the events name; `None` if the events name no interfaces.
    pub names_interfaces_of: Option<Namespace>,
    /// The size of a ring in bytes.
    pub room: u64,
    /// The memory of records that were copied and not rendered.
    pub budget: Budget,
    pub delivered: AtomicU64,
    /// The number of events that slow clients did not get, summed over the clients.
    pub missed: AtomicU64,
    /// The reader, which status and the reading task share. `None` once the source is closed.
    pub reader: Mutex<Option<EventReader>>,
    lost: Mutex<Option<u64>>,
    pub audience: Mutex<Audience>,
    /// Wakes the reading task to look at its audience again.
    pub changed: Notify,
    ended: Condvar,
}

/// The clients that listen, and the state of the task that reads for them.
#[derive(Debug, Default)]
pub struct Audience {
    pub clients: Vec<Arc<StreamWriter>>,
    /// The number of clients at the end of `clients` that have joined since the last slice.
    pub fresh: usize,
    /// True while a task reads the map, which it does as long as there are clients.
    pub reading: bool,
    pub closed: bool,
}

impl EventMetric {
    /// Opens the map, so that programs can write events to it.
    pub fn open(
        direction: Direction,
        (metric, interface): (&str, Option<&str>),
        map: &EventMap,
        namespace: &Namespace,
        budget: &Budget,
    ) -> Result<Arc<Self>, KernelError> {
        let speaks = map
            .layout
            .as_ref()
            .is_some_and(|layout| layout.renders(Render::Ifindex));
        let mut reader = map.open()?;
        // No client listens yet.
        reader.unmap();
        Ok(Arc::new(Self {
            direction,
            metric: metric.to_owned(),
            // Metric names need no escapes.
            labels: match interface {
                None => format!("\"direction\":\"{direction}\",\"metric\":\"{metric}\""),
                Some(name) => {
                    let name = Value::from(name);
                    format!(
                        "\"direction\":\"{direction}\",\"metric\":\"{metric}\",\"interface\":{name}"
                    )
                }
            }
            .into(),
            interface: interface.map(str::to_owned),
            encoder: EventEncoder::new(map.layout.as_ref()),
            names_interfaces_of: speaks.then(|| namespace.clone()),
            room: reader.room(),
            budget: budget.clone(),
            delivered: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            lost: Mutex::new(reader.lost()),
            reader: Mutex::new(Some(reader)),
            audience: Mutex::default(),
            changed: Notify::new(),
            ended: Condvar::new(),
        }))
    }

    /// Returns the number of bytes that wait in the fullest ring.
    pub fn fill(&self) -> u64 {
        self.reader.lock().as_ref().map_or(0, EventReader::fill)
    }

    /// Passes on up to about `limit` bytes of each ring, and counts the events.
    pub fn read(&self, limit: usize, mut sink: impl FnMut(EventRecord<'_>)) -> ReadingEnd {
        let mut reader = self.reader.lock();
        let Some(reader) = reader.as_mut() else {
            return ReadingEnd::Drained;
        };
        let mut events = 0;
        let progress = reader.read(limit, |event| {
            events += u64::from(matches!(event, EventRecord::Sample { .. }));
            sink(event);
        });
        self.delivered.fetch_add(events, Ordering::Relaxed);
        progress
    }

    /// Gives `client` every event from now on, beginning with those in the map. Returns `None` if
    /// the source is closed, else true if the caller must start the reading task.
    pub fn join(&self, client: &Arc<StreamWriter>) -> Option<bool> {
        let mut audience = self.audience.lock();
        if audience.closed {
            return None;
        }
        client.state.lock().sources += 1;
        audience.clients.push(Arc::clone(client));
        audience.fresh += 1;
        Some(!std::mem::replace(&mut audience.reading, true))
    }

    /// Ends all streams once they have received the events in the map.
    pub fn end(&self) {
        self.audience.lock().closed = true;
        self.changed.notify_one();
    }

    /// Ends all streams like [`Self::end`], waits up to [`CLOSING`] for the reading task, and
    /// closes the map.
    pub fn close(&self) {
        self.end();
        self.ended.wait_while_for(
            &mut self.audience.lock(),
            |audience| audience.reading,
            CLOSING,
        );
        let mut reader = self.reader.lock();
        self.note_lost(reader.as_ref());
        *reader = None;
    }

    /// Returns the counts of the metric for the probe's status.
    pub fn status(&self) -> EventStatus {
        self.note_lost(self.reader.lock().as_ref());
        EventStatus {
            direction: self.direction,
            metric: self.metric.clone(),
            interface: self.interface.clone(),
            delivered: self.delivered.load(Ordering::Relaxed),
            lost: *self.lost.lock(),
            missed: self.missed.load(Ordering::Relaxed),
            clients: self
                .audience
                .lock()
                .clients
                .iter()
                .filter(|client| !client.state.lock().gone)
                .count(),
        }
    }

    /// Ends the source for its clients, because the reading task has ended.
    pub fn reading_ended(&self) {
        let mut audience = self.audience.lock();
        audience.reading = false;
        audience.fresh = 0;
        audience
            .clients
            .drain(..)
            .for_each(|client| client.end_source());
        drop(audience);
        self.ended.notify_all();
    }

    fn note_lost(&self, reader: Option<&EventReader>) {
        if let Some(reader) = reader {
            *self.lost.lock() = reader.lost();
        }
    }
}
