//! One event metric: who listens to it, and whether it is being read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use twinprobe_ebpf_common::Render;
use twinprobe_exporter::EventEncoder;
use twinprobe_kernel::{EventMap, EventReader, KernelError};

use super::client::Client;
use super::{EventStatus, pump};
use crate::config::Direction;
use crate::engine::interfaces::Namespace;

/// How long closing waits for the reader to end, which takes it a few milliseconds.
const CLOSING: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Source {
    pub(super) direction: Direction,
    pub(super) metric: String,
    /// `"direction":"ingress","metric":"name"`
    pub(super) labels: Arc<str>,
    pub(super) encoder: EventEncoder,
    /// The namespace whose interfaces the events name; `None` if the events name no interfaces.
    pub(super) names_interfaces_of: Option<Namespace>,
    /// Bytes of a ring.
    room: u64,
    pub(super) delivered: AtomicU64,
    /// Events that slow clients did not get, each client counted.
    pub(super) missed: AtomicU64,
    /// `None` once it is closed.
    pub(super) reader: Mutex<Option<EventReader>>,
    lost: Mutex<Option<u64>>,
    audience: Mutex<Audience>,
    changed: Notify,
    ended: Condvar,
}

/// Who listens.
#[derive(Debug, Default)]
pub(super) struct Audience {
    pub clients: Vec<Arc<Client>>,
    /// How many of them, at the end, came since the last slice.
    pub fresh: usize,
    /// A task reads the map. One does while there are clients.
    pub reading: bool,
    pub closed: bool,
}

impl Source {
    /// Makes the map ready to take events.
    pub fn open(
        direction: Direction,
        metric: &str,
        map: &EventMap,
        namespace: &Namespace,
    ) -> Result<Arc<Self>, KernelError> {
        let speaks = map.layout().is_some_and(|layout| layout.renders(Render::Ifindex));
        let reader = map.open()?;
        Ok(Arc::new(Self {
            direction,
            metric: metric.to_owned(),
            // Metric names need no escapes.
            labels: format!("\"direction\":\"{direction}\",\"metric\":\"{metric}\"").into(),
            encoder: EventEncoder::new(map.layout()),
            names_interfaces_of: speaks.then(|| namespace.clone()),
            room: reader.room(),
            delivered: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            lost: Mutex::new(reader.lost()),
            reader: Mutex::new(Some(reader)),
            audience: Mutex::default(),
            changed: Notify::new(),
            ended: Condvar::new(),
        }))
    }

    pub fn room(&self) -> u64 {
        self.room
    }

    /// Bytes that wait in the fullest ring.
    pub fn fill(&self) -> u64 {
        self.reader().as_ref().map_or(0, EventReader::fill)
    }

    pub fn metric(&self) -> &str {
        &self.metric
    }

    /// Gives `client` every event from now on; what waits in the map comes first. False: it is closed.
    pub fn join(self: &Arc<Self>, client: &Arc<Client>, runtime: &Handle) -> bool {
        let mut audience = self.audience();
        if audience.closed {
            return false;
        }
        client.add_source();
        audience.clients.push(Arc::clone(client));
        audience.fresh += 1;
        if !audience.reading {
            audience.reading = true;
            runtime.spawn(pump::run(Arc::clone(self)));
        }
        true
    }

    /// Lets the reading task see that its audience has changed.
    pub fn look_up(&self) {
        self.changed.notify_one();
    }

    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Ends all streams once they have what is in the map.
    pub fn end(&self) {
        self.audience().closed = true;
        self.look_up();
    }

    /// As [`Self::end`], and gives up the map.
    pub fn close(&self) {
        self.end();
        let waiting = self.ended.wait_timeout_while(self.audience(), CLOSING, |audience| audience.reading);
        drop(waiting);
        let mut reader = self.reader();
        self.note_lost(reader.as_ref());
        *reader = None;
    }

    pub fn status(&self) -> EventStatus {
        self.note_lost(self.reader().as_ref());
        EventStatus {
            direction: self.direction.name(),
            metric: self.metric.clone(),
            delivered: self.delivered.load(Ordering::Relaxed),
            lost: *self.lost.lock().unwrap_or_else(PoisonError::into_inner),
            missed: self.missed.load(Ordering::Relaxed),
            clients: self.audience().clients.iter().filter(|client| !client.is_gone()).count(),
        }
    }

    pub(super) fn audience(&self) -> MutexGuard<'_, Audience> {
        self.audience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reader(&self) -> MutexGuard<'_, Option<EventReader>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reading task is gone with everything it held.
    pub(super) fn reading_ended(&self) {
        let mut audience = self.audience();
        audience.reading = false;
        audience.fresh = 0;
        for client in audience.clients.drain(..) {
            client.end_source();
        }
        drop(audience);
        self.ended.notify_all();
    }

    fn note_lost(&self, reader: Option<&EventReader>) {
        if let Some(reader) = reader {
            *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = reader.lost();
        }
    }
}
