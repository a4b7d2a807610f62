//! One probe: its configuration, its twins, and the reading of its windows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use twinprobe_ebpf_common::{MapFamily, RawTable};
use twinprobe_exporter::{Accumulator, Document, Metric, MetricTable, Plans, Window};

use super::EngineError;
use super::delivery::{Delivery, Undelivered};
use super::deploy::LoadedProbe;
use super::events::{EventLoop, ProbeEvents};
use super::status::ProbeStatus;
use crate::config::{
    AfterRead, ConfigDocument, Direction, DirectionConfig, MetricConfig, ProbeConfig, Visibility,
};
use crate::kernel::{Attached, Kernel, KernelError, Taken};
use crate::report::{Finding, Rejection};

#[derive(Debug)]
pub enum ReadError {
    /// Replaced or deleted.
    Gone,
    NotRunning(String),
    Kernel(KernelError),
}

impl From<KernelError> for ReadError {
    fn from(error: KernelError) -> Self {
        Self::Kernel(error)
    }
}

#[derive(Debug)]
pub struct Probe {
    name: String,
    document: ConfigDocument,
    created: Timestamp,
    warnings: Vec<Finding>,
    /// Apart from the state, which is locked while a window is read. `None`: it is not running.
    events: Option<ProbeEvents>,
    /// Readers wait for each other: a window belongs to one of them.
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Running(Box<Running>),
    /// Stored, but it could not be deployed.
    Failed(String),
    Gone,
}

#[derive(Debug)]
struct Running {
    config: ProbeConfig,
    attached: Attached,
    readers: Vec<Reader>,
    /// When the open window began.
    opened: Timestamp,
    /// A reading that a failure kept from its end. The next reader goes on with it.
    reading: Option<Reading>,
    undelivered: Undelivered,
}

/// One metric and where its content is.
#[derive(Debug)]
struct Reader {
    direction: Direction,
    /// Index of the direction among the attached ones, and of the metric in it.
    position: (usize, usize),
    config: MetricConfig,
    metric: Arc<Metric>,
    /// The sum of all windows so far, for a snapshot that is not reset.
    total: Option<Accumulator>,
}

/// What has been taken out of the maps so far.
#[derive(Debug)]
struct Reading {
    /// When the window was closed.
    end: Timestamp,
    /// There once every snapshot metric has been read and reset.
    window: Option<Window>,
    /// One for each reader; complete where `done`.
    tables: Vec<RawTable>,
    taken: Vec<Taken>,
    done: Vec<bool>,
}

impl Probe {
    /// Attaches a loaded probe, in the place of `old` if it is running.
    pub(super) fn attach(
        kernel: &Arc<Kernel>,
        event_loop: &EventLoop,
        config: ProbeConfig,
        document: ConfigDocument,
        loaded: LoadedProbe,
        old: Option<&Self>,
    ) -> Result<Self, EngineError> {
        let readers = readers(&config, &loaded)?;
        let events = ProbeEvents::open(&config, &loaded, event_loop)?;
        let mut old_state = old.map(Self::lock);
        let replaces = match old_state.as_deref() {
            Some(State::Running(running)) => Some(&running.attached),
            _ => None,
        };
        let attached = Attached::attach(kernel, loaded.directions, &loaded.interfaces, replaces)?;
        if let Some(state) = old_state.as_deref_mut() {
            *state = State::Gone;
        }
        if let Some(old) = old {
            old.close_events();
        }
        let opened = Timestamp::now();
        let name = config.name().to_owned();
        let undelivered = Undelivered::default();
        let running = Running { config, attached, readers, opened, reading: None, undelivered };
        Ok(Self {
            name,
            document,
            created: opened,
            warnings: loaded.warnings,
            events: Some(events),
            state: Mutex::new(State::Running(Box::new(running))),
        })
    }

    /// A stored probe that could not be deployed.
    pub(super) fn failed(name: &str, document: ConfigDocument, reason: String) -> Self {
        Self {
            name: name.to_owned(),
            document,
            created: Timestamp::now(),
            warnings: Vec::new(),
            events: None,
            state: Mutex::new(State::Failed(reason)),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn status(&self) -> ProbeStatus {
        let state = self.lock();
        let (attached, reason) = match &*state {
            State::Running(running) => (Some(&running.attached), None),
            State::Failed(reason) => (None, Some(reason.clone())),
            State::Gone => (None, Some("replaced or deleted".to_owned())),
        };
        let status =
            ProbeStatus::new(&self.name, &self.document, self.created, &self.warnings, attached, reason);
        ProbeStatus { events: self.events.as_ref().map(ProbeEvents::status).unwrap_or_default(), ..status }
    }

    pub fn events(&self) -> Option<&ProbeEvents> {
        self.events.as_ref()
    }

    fn close_events(&self) {
        if let Some(events) = &self.events {
            events.close();
        }
    }

    pub(super) fn detach(&self) {
        if let State::Running(running) = std::mem::replace(&mut *self.lock(), State::Gone) {
            // What is left in the rings goes to those who listen; then nothing of ours keeps the maps.
            self.close_events();
            running.attached.detach();
        }
    }

    pub(super) fn read(&self) -> Result<Delivery, ReadError> {
        match &mut *self.lock() {
            State::Running(running) => Ok(running.deliver(&self.name)?),
            State::Failed(reason) => Err(ReadError::NotRunning(reason.clone())),
            State::Gone => Err(ReadError::Gone),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader for each metric. `merge` rules must name fields that the value has.
fn readers(config: &ProbeConfig, loaded: &LoadedProbe) -> Result<Vec<Reader>, Rejection> {
    let mut readers = Vec::new();
    let mut findings = Vec::new();
    let directions: Vec<(Direction, &DirectionConfig)> = config.directions().collect();
    for (at, ((direction, config), loaded)) in directions.iter().zip(&loaded.directions).enumerate() {
        for (index, (metric, map)) in config.metrics().iter().zip(&loaded.twins.maps).enumerate() {
            let Some(layout) = map.layout() else { continue };
            // What is popped from a queue is events, which do not add up: each is shown once.
            let rules = metric.merge().filter(|_| layout.kind.family() != MapFamily::Fifo);
            let total = rules.map(|rules| Accumulator::new(Arc::clone(layout), rules)).transpose();
            let total = total.unwrap_or_else(|error| {
                let field = format!("{direction}.metrics[{index}].merge");
                findings.push(Finding::config(field, error.to_string()));
                None
            });
            readers.push(Reader {
                direction: *direction,
                position: (at, index),
                config: metric.clone(),
                metric: Arc::new(Metric {
                    name: metric.name().to_owned(),
                    map: metric.map().to_owned(),
                    help: metric.help().unwrap_or_default().to_owned(),
                    agg: metric.aggregation(),
                    layout: Arc::clone(layout),
                    reading: counted_from(metric),
                    plans: Plans::default(),
                }),
                total,
            });
        }
    }
    if findings.is_empty() { Ok(readers) } else { Err(Rejection { findings, log: None }) }
}

fn counted_from(metric: &MetricConfig) -> twinprobe_exporter::Reading {
    use twinprobe_exporter::Reading;
    match (metric.merge(), metric.after_read()) {
        (Some(_), _) => Reading::Cumulative,
        (None, AfterRead::Reset) => Reading::Window,
        (None, AfterRead::Keep) => Reading::Live,
    }
}

impl Running {
    /// A reading whose client gave it up, else a new one.
    fn deliver(&mut self, name: &str) -> Result<Delivery, KernelError> {
        let format = self.config.format();
        if let Some(abandoned) = self.undelivered.abandoned(format) {
            return Ok(abandoned);
        }
        let document = self.read(name)?;
        let takes = self.config.has_snapshot()
            || self.readers.iter().any(|reader| reader.config.after_read() == AfterRead::Reset);
        Ok(self.undelivered.deliver(document, format, takes))
    }

    /// Algorithm 2 of the paper. After an error nothing is lost: the next call goes on where this one ended.
    fn read(&mut self, name: &str) -> Result<Document, KernelError> {
        let count = self.readers.len();
        let mut reading = self.reading.take().unwrap_or_else(|| Reading {
            end: Timestamp::now(),
            window: None,
            tables: vec![RawTable::default(); count],
            taken: vec![Taken::default(); count],
            done: vec![false; count],
        });
        let complete = self.close_window(&mut reading).and_then(|()| self.read_live(&mut reading));
        if let Err(error) = complete {
            self.reading = Some(reading);
            return Err(error);
        }
        Ok(self.document(name, reading))
    }

    /// Flips, waits, and takes everything out of the twin that was left.
    fn close_window(&mut self, reading: &mut Reading) -> Result<(), KernelError> {
        if !self.config.has_snapshot() || reading.window.is_some() {
            return Ok(());
        }
        let quiesced = self.attached.flip()?;
        for (index, reader) in self.readers.iter().enumerate() {
            let (direction, metric) = reader.position;
            if let Some(map) = quiesced.map(direction, metric)
                && !reading.done[index]
            {
                // A cumulative snapshot is reset, too: its windows are added up here.
                map.read(AfterRead::Reset, &mut reading.taken[index], &mut reading.tables[index])?;
                reading.done[index] = true;
            }
        }
        reading.window = Some(Window {
            seq: quiesced.epoch(),
            start: timestamp(self.opened),
            end: timestamp(reading.end),
            quiesce_us: u64::try_from(quiesced.quiesced().as_micros()).unwrap_or(u64::MAX),
        });
        quiesced.finish();
        self.opened = reading.end;
        Ok(())
    }

    fn read_live(&self, reading: &mut Reading) -> Result<(), KernelError> {
        for (index, reader) in self.readers.iter().enumerate() {
            let (direction, metric) = reader.position;
            if let Some(map) = self.attached.live_map(direction, metric)
                && !reading.done[index]
                && reader.is_wanted()
            {
                let after = reader.config.after_read();
                map.read(after, &mut reading.taken[index], &mut reading.tables[index])?;
                reading.done[index] = true;
            }
        }
        Ok(())
    }

    fn document(&mut self, name: &str, reading: Reading) -> Document {
        let mut document = Document {
            probe: name.to_owned(),
            interfaces: self.config.interfaces().to_vec(),
            window: reading.window,
            ..Document::default()
        };
        for (reader, table) in self.readers.iter_mut().zip(reading.tables) {
            let table = match &mut reader.total {
                Some(total) => {
                    total.add(&table);
                    total.table().clone()
                }
                None => table,
            };
            if reader.config.visibility() == Visibility::Export {
                let tables = match reader.direction {
                    Direction::Ingress => &mut document.ingress,
                    Direction::Egress => &mut document.egress,
                };
                tables.push(MetricTable { metric: Arc::clone(&reader.metric), table });
            }
        }
        document
    }
}

impl Reader {
    /// Whether there is anything to be shown or reset.
    fn is_wanted(&self) -> bool {
        self.config.visibility() == Visibility::Export || self.config.after_read() == AfterRead::Reset
    }
}

/// RFC 3339 with nanoseconds, in UTC.
pub(super) fn timestamp(at: Timestamp) -> String {
    format!("{at:.9}")
}
