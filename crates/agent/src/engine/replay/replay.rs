//! A window over the packets of captures. A probe is loaded as for a deployment, but not attached,
//! and sees each packet at the time at which it was captured.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use twinprobe_access::Principal;
use twinprobe_api::ConfigDocument;
use twinprobe_capture::{Capture, CaptureError, LocalAddress};
use twinprobe_ebpf_common::finding::{Finding, with_causes};
use twinprobe_ebpf_common::metric::AfterRead;
use twinprobe_ebpf_common::{
    Context, Direction, DocumentOrigin, MapFamily, RawTable, Replayed, Window,
};
use twinprobe_kernel::clock::rfc3339;
use twinprobe_kernel::{
    KernelError, LoadedDirection, MetricMap, ReplayClock, ReplayLane, TwinMap, stay_on_one_cpu,
};

use crate::engine::deploy::loaded::LoadedProbe;
use crate::engine::engine::{Engine, permitted};
use crate::engine::error::EngineError;
use crate::engine::reading::metric::MetricState;
use crate::engine::replay::replayed::RunningReplay;
use crate::engine::window::delivery::{Delivery, DocumentPart, ReadingSubject, Rows};
use crate::engine::window::live::LiveMap;
use crate::limits::ledger::Share;
use twinprobe_config::ProbeConfig;

/// The uploaded captures of a replay.
#[derive(Debug)]
pub struct UploadedCaptures {
    /// Packets of both directions, as far as the file or `local` shows the direction. Other packets
    /// belong to the ingress, or to the egress if the configuration has only that. If there is also
    /// the file `egress`, all packets of this capture belong to the ingress.
    pub capture: Option<File>,
    /// A file that contains packets of the egress only.
    pub egress: Option<File>,
    /// The addresses of the host on which the packets were captured.
    pub local: Vec<LocalAddress>,
}

/// A probe whose programs are loaded to see the packets of captures.
pub struct ReplayedProbe {
    pub config: ProbeConfig,
    pub origin: Arc<DocumentOrigin>,
    pub loaded: LoadedProbe,
}

/// A capture, the direction of all its packets if they have the same direction, and the direction
/// of packets for which the capture shows no direction.
pub struct Source {
    field: &'static str,
    capture: Capture,
    direction: Option<Direction>,
    otherwise: Direction,
}

/// The lanes of a probe, and their results.
pub struct Run {
    lanes: Vec<(Direction, ReplayLane)>,
    replayed: Replayed,
    /// The times of the first and the last packet, in nanoseconds since the Unix epoch.
    span: Option<(u64, u64)>,
}

/// Stops a replay when its request ends.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Engine {
    /// Replays captures to a probe, and returns the window that the probe would have closed after
    /// them. Nothing is attached or stored. The work keeps `place` until it has ended, even if the
    /// request ends earlier.
    pub async fn replay(
        self: &Arc<Self>,
        name: &str,
        document: ConfigDocument,
        by: &Principal,
        captures: UploadedCaptures,
        place: Arc<OwnedSemaphorePermit>,
    ) -> Result<Delivery, EngineError> {
        let probe = self.load_to_replay(name, document, by, &place).await?;
        let stop = StopOnDrop(Arc::default());
        let (told, result) = oneshot::channel();
        let stopped = Arc::clone(&stop.0);
        let limit = self.deployer.ledger.limits.max_capture_bytes;
        let replay = move || {
            let replayed = stay_on_one_cpu()
                .map_err(EngineError::from)
                .and_then(|()| sources(&probe.config, captures, limit))
                .and_then(|sources| replay(probe, sources, &stopped));
            drop(place);
            let _ = told.send(replayed);
        };
        on_a_thread(replay)?;
        // The sender is dropped if the thread panics.
        let died = || EngineError::Replay(io::Error::other("the replay ended early"));
        result.await.map_err(|_| died())?
    }

    /// Loads the programs of a probe that sees the packets of captures.
    pub async fn load_to_replay(
        self: &Arc<Self>,
        name: &str,
        mut document: ConfigDocument,
        by: &Principal,
        place: &Arc<OwnedSemaphorePermit>,
    ) -> Result<ReplayedProbe, EngineError> {
        self.deployer.ledger.check_sources(&document)?;
        if document.interface.is_none() && document.interfaces.is_none() {
            // A valid configuration has an interface, and a replay looks for none.
            document.interface = Some("lo".into());
        }
        let config = permitted(name, &document, by)?;
        let loaded = self
            .deployer
            .load_for_replay(&config, Arc::clone(place))
            .await?;
        // The replay has created nothing, so no instance has an id.
        let (node, instance) = (self.node.clone(), "replay".to_owned());
        let origin = Arc::new(DocumentOrigin {
            node,
            instance,
            labels: config.labels.clone(),
        });
        Ok(ReplayedProbe {
            config,
            origin,
            loaded,
        })
    }
}

/// Runs a replay on a thread of its own: it stays on one CPU, and may take minutes.
pub fn on_a_thread(replay: impl FnOnce() + Send + 'static) -> Result<(), EngineError> {
    let thread = std::thread::Builder::new()
        .name("replay".into())
        .spawn(replay);
    thread.map(drop).map_err(EngineError::Replay)
}

fn replay(
    probe: ReplayedProbe,
    mut sources: Vec<Source>,
    stopped: &AtomicBool,
) -> Result<Delivery, EngineError> {
    let ReplayedProbe {
        config,
        origin,
        loaded:
            LoadedProbe {
                directions,
                clocks,
                metrics,
                share,
                ..
            },
    } = probe;
    let mut run = Run::new(&config, directions, clocks)?;
    // A packet may take a long time.
    let goes_on = |_: &mut Run, _| {
        if stopped.load(Ordering::Relaxed) {
            Err(EngineError::Gone)
        } else {
            Ok(())
        }
    };
    run.all(&mut sources, goes_on)?;
    run.deliver(&config, origin, &metrics, share)
}

/// Opens the captures, at their first packets.
pub fn sources(
    config: &ProbeConfig,
    captures: UploadedCaptures,
    limit: u64,
) -> Result<Vec<Source>, EngineError> {
    let of_capture = captures.egress.as_ref().map(|_| Direction::Ingress);
    let otherwise = if config.ingress.is_some() {
        Direction::Ingress
    } else {
        Direction::Egress
    };
    let files = [
        ("capture", captures.capture, of_capture),
        ("egress-capture", captures.egress, Some(Direction::Egress)),
    ];
    let mut sources = Vec::new();
    for (field, file, direction) in files {
        let Some(file) = file else { continue };
        let capture = Capture::open(file, limit, captures.local.clone());
        let capture = capture.map_err(|error| refused(field, &error))?;
        sources.push(Source {
            field,
            capture,
            direction,
            otherwise,
        });
    }
    Ok(sources)
}

fn refused(field: &str, error: &CaptureError) -> EngineError {
    if matches!(error, CaptureError::TooLarge { .. }) {
        let advice = "cut it (editcap -c), or start the daemon with a larger --max-capture-bytes";
        return EngineError::CaptureTooLarge(Finding::config(field, format!("{error}; {advice}")));
    }
    EngineError::Capture(Finding::config(field, with_causes(error)))
}

impl Run {
    pub fn new(
        config: &ProbeConfig,
        directions: Vec<LoadedDirection>,
        clocks: Vec<ReplayClock>,
    ) -> Result<Self, EngineError> {
        let lanes = config.directions().zip(directions.into_iter().zip(clocks));
        let lanes = lanes.map(|((direction, _), (loaded, clock))| {
            Ok((direction, ReplayLane::new(loaded, clock)?))
        });
        let lanes = lanes.collect::<Result<_, KernelError>>()?;
        Ok(Self {
            lanes,
            replayed: Replayed::default(),
            span: None,
        })
    }

    /// Passes on the packets of all captures in the order of their times. Before each packet,
    /// `before` is called with its time in nanoseconds since the Unix epoch. An error from `before`
    /// ends the replay.
    pub fn all(
        &mut self,
        sources: &mut Vec<Source>,
        mut before: impl FnMut(&mut Self, u64) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let advance = |source: &mut Source| {
            source
                .capture
                .advance()
                .map_err(|error| refused(source.field, &error))
        };
        let mut open = Vec::new();
        for mut source in sources.drain(..) {
            if advance(&mut source)? {
                open.push(source);
            } else {
                self.end(&source.capture);
            }
        }
        let time = |source: &Source| source.capture.packet().map(|packet| packet.time_ns);
        while let Some(next) = (0..open.len()).min_by_key(|index| time(&open[*index])) {
            let last = self.span.map_or(0, |(_, last)| last);
            before(self, time(&open[next]).unwrap_or_default().max(last))?;
            self.packet(&open[next])?;
            if !advance(&mut open[next])? {
                self.end(&open.remove(next).capture);
            }
        }
        self.flush()
    }

    /// Lets the programs see all packets that were passed on so far.
    pub fn flush(&mut self) -> Result<(), EngineError> {
        self.lanes
            .iter_mut()
            .try_for_each(|(_, lane)| lane.flush())
            .map_err(EngineError::Replay)
    }

    /// Returns the map of a metric by its direction and its index; `None` if no metric reads the
    /// map.
    pub fn map(&self, (direction, index): (usize, usize)) -> Option<&Arc<MetricMap>> {
        match &self.lanes[direction].1.loaded().maps[index] {
            TwinMap::Shared(map) => Some(map),
            TwinMap::Private(_) | TwinMap::Events(_) | TwinMap::Unread => None,
        }
    }

    /// Adds the counts of a capture that was read to its end.
    fn end(&mut self, capture: &Capture) {
        self.replayed.cut_off += u64::from(capture.is_cut_off());
        let lists = [
            (&mut self.replayed.framed, capture.framed()),
            (&mut self.replayed.skipped, capture.skipped()),
        ];
        for (all, counts) in lists {
            for (name, count) in counts {
                *all.entry(name.clone()).or_default() += count;
            }
        }
    }

    fn packet(&mut self, source: &Source) -> Result<(), EngineError> {
        let Some(packet) = source.capture.packet() else {
            return Ok(());
        };
        let (_, last) = *self.span.get_or_insert((packet.time_ns, packet.time_ns));
        let now = last.max(packet.time_ns);
        self.span = self.span.map(|(first, _)| (first.min(packet.time_ns), now));
        let length = packet.length as usize;
        if packet.bytes.len() > length {
            self.replayed.wrong_length += 1;
            return Ok(());
        }
        let direction = source
            .direction
            .or(packet.direction)
            .unwrap_or(source.otherwise);
        let Some(at) = self.lanes.iter().position(|(of, _)| *of == direction) else {
            self.replayed.other_direction += 1;
            return Ok(());
        };
        // Packets wait in a lane until there are enough of them. The directions see a map that both
        // use in the order of the packets.
        let uses_common = |lane: &ReplayLane| lane.loaded().plan.maps.iter().any(|map| map.common);
        for (_, other) in self
            .lanes
            .iter_mut()
            .filter(|(of, lane)| *of != direction && uses_common(lane))
        {
            other.flush().map_err(EngineError::Replay)?;
        }
        let lane = &mut self.lanes[at].1;
        self.replayed.truncated += u64::from(packet.bytes.len() < length);
        self.replayed.out_of_order += u64::from(packet.time_ns < now);
        lane.push(now, packet.bytes, length)
            .map_err(EngineError::Replay)
    }

    /// Adds the counts of all lanes.
    fn add_counts(&mut self) {
        for (_, lane) in &self.lanes {
            self.replayed.packets += lane.counts.seen;
            self.replayed.too_short += lane.counts.too_short;
            self.replayed.too_long += lane.counts.too_long;
            self.replayed.no_interface += lane.counts.no_interface;
            self.replayed.not_sampled += lane.counts.not_sampled;
            self.replayed.events += lane.counts.events;
        }
    }

    /// Returns the window, whose maps are read while the client takes the answer.
    fn deliver(
        mut self,
        config: &ProbeConfig,
        origin: Arc<DocumentOrigin>,
        metrics: &[MetricState],
        share: Share,
    ) -> Result<Delivery, EngineError> {
        self.add_counts();
        let present = watch::Sender::default();
        let mut held = BTreeMap::new();
        let mut parts = Vec::new();
        for metric in metrics.iter().filter(|metric| metric.is_shown()) {
            let rows = self.rows(metric, &mut held, &present)?;
            parts.push(DocumentPart {
                metric: metric.with_losses(metrics, |at| self.map(at).map(|map| &**map)),
                rows,
            });
        }
        let lanes = self.lanes.into_iter().map(|(_, lane)| lane).collect();
        let replay = RunningReplay::new(self.replayed, lanes, share, present);
        let span = self.span.map(|(first, last)| window(1, first, last));
        Ok(Delivery {
            probe: config.name.clone(),
            origin: Some(origin),
            interfaces: Vec::new(),
            approximate: None,
            subject: ReadingSubject::Replay { span, replay },
            // The clock of the programs counts from the Unix epoch.
            context: Arc::new(Context::default()),
            format: config.format,
            parts,
            skipped_before: 0,
            skipped: Arc::default(),
        })
    }

    /// Returns the rows of a metric. Reading a queue removes its values, so metrics that read the
    /// same queue share one reading in `held`.
    fn rows(
        &self,
        metric: &MetricState,
        held: &mut BTreeMap<usize, Arc<RawTable>>,
        present: &watch::Sender<()>,
    ) -> Result<Rows, EngineError> {
        Ok(match self.map(metric.position) {
            None => Rows::None,
            Some(map) if metric.metric.layout.kind.family() == MapFamily::Fifo => {
                Rows::Held(match held.get(&metric.group) {
                    Some(rows) => Arc::clone(rows),
                    None => {
                        let rows = Arc::new(map.read(AfterRead::Keep)?);
                        Arc::clone(held.entry(metric.group).or_insert(rows))
                    }
                })
            }
            Some(map) => {
                // Captured packets have no interfaces, so that a metric has one map.
                let maps = metric.maps.maps.iter();
                Rows::Live(LiveMap {
                    maps: maps.map(|of| (of.clone(), Arc::clone(map))).collect(),
                    layout: Arc::clone(&metric.maps.layout),
                    gone: present.subscribe(),
                })
            }
        })
    }
}

/// Describes a window by its number, and by its start and end in nanoseconds since the Unix epoch.
pub fn window(seq: u64, start: u64, end: u64) -> Window {
    let at = |time: u64| rfc3339(Timestamp::from_nanosecond(time.into()).unwrap_or(Timestamp::MAX));
    Window {
        seq,
        start: at(start),
        end: at(end),
        duration_ns: Some(end - start),
        clock_step_ns: None,
        quiesce_us: 0,
        lost_windows: 0,
    }
}
