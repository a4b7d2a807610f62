//! Windows over the packets of captures. Their length is the interval of the probe's schedule,
//! measured by the times of the packets. Their numbers are those of the daemon's own windows: each
//! window resets the same maps, and adds to the same sums.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use twinprobe_access::Principal;
use twinprobe_api::ConfigDocument;
use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::metric::AfterRead;
use twinprobe_ebpf_common::{Context, DocumentOrigin, RawTable};
use twinprobe_exporter::Metric;
use twinprobe_kernel::{KernelError, stay_on_one_cpu};

use crate::engine::deploy::loaded::LoadedProbe;
use crate::engine::engine::Engine;
use crate::engine::error::EngineError;
use crate::engine::reading::group::groups;
use crate::engine::reading::metric::MetricState;
use crate::engine::replay::replay::{
    ReplayedProbe, Run, Source, UploadedCaptures, on_a_thread, sources, window,
};
use crate::engine::window::delivery::{Delivery, DocumentPart, ReadingSubject, Rows};
use twinprobe_config::ProbeConfig;

/// The most windows of a replay.
const MOST_WINDOWS: u64 = 10_000;

/// The next window of a replay; `None` after the last one.
pub type NextWindow = Result<Option<Delivery>, EngineError>;

/// The windows of a replay, which are sent through a channel one by one.
struct WindowCuts {
    config: ProbeConfig,
    origin: Arc<DocumentOrigin>,
    metrics: Vec<MetricState>,
    delivery: mpsc::Sender<NextWindow>,
    /// The length of a window in nanoseconds.
    interval: u64,
    /// The start of the open window, in nanoseconds since the Unix epoch; `None` before the first
    /// packet.
    opened: Option<u64>,
    /// The number of windows that are closed.
    closed: u64,
}

impl Engine {
    /// Replays captures to a probe that has a schedule, and passes on each window. Nothing is
    /// attached or stored. The work occupies `place` until it has ended, which happens soon after a
    /// drop of the channel.
    pub async fn replay_windows(
        self: &Arc<Self>,
        name: &str,
        document: ConfigDocument,
        by: &Principal,
        captures: UploadedCaptures,
        place: Arc<OwnedSemaphorePermit>,
    ) -> Result<mpsc::Receiver<NextWindow>, EngineError> {
        let probe = self.load_to_replay(name, document, by, &place).await?;
        let limit = self.deployer.ledger.limits.max_capture_bytes;
        let (delivery, windows) = mpsc::channel(1);
        let replay = move || {
            let replayed = stay_on_one_cpu()
                .map_err(EngineError::from)
                .and_then(|()| sources(&probe.config, captures, limit))
                .and_then(|sources| replay(probe, sources, delivery.clone()));
            drop(place);
            let _ = delivery.blocking_send(replayed.map(|()| None));
        };
        on_a_thread(replay)?;
        Ok(windows)
    }
}

fn replay(
    probe: ReplayedProbe,
    mut sources: Vec<Source>,
    delivery: mpsc::Sender<NextWindow>,
) -> Result<(), EngineError> {
    let ReplayedProbe {
        config,
        origin,
        loaded,
    } = probe;
    let LoadedProbe {
        directions,
        clocks,
        metrics,
        share: _share,
        ..
    } = loaded;
    let mut run = Run::new(&config, directions, clocks)?;
    let interval = config
        .schedule()
        .map_or(0, |schedule| schedule.interval.as_nanos());
    let interval = u64::try_from(interval).unwrap_or(u64::MAX).max(1);
    let mut cuts = WindowCuts {
        config,
        origin,
        metrics,
        delivery,
        interval,
        opened: None,
        closed: 0,
    };
    run.all(&mut sources, |run, time| cuts.reach(run, time))?;
    if cuts.opened.is_none() {
        let message = "has no packet, so there is no window for a rule";
        return Err(EngineError::Capture(Finding::config("capture", message)));
    }
    cuts.close(&mut run)
}

impl WindowCuts {
    /// Closes the windows that have ended at this time.
    fn reach(&mut self, run: &mut Run, time: u64) -> Result<(), EngineError> {
        if self.delivery.is_closed() {
            return Err(EngineError::Gone);
        }
        let opened = *self.opened.get_or_insert(time);
        let ended = time.saturating_sub(opened) / self.interval;
        if self.closed + ended >= MOST_WINDOWS {
            let message = format!(
                "the captures have more than {MOST_WINDOWS} windows of this length; choose a longer one, or cut the captures"
            );
            return Err(EngineError::Capture(Finding::config("interval", message)));
        }
        (0..ended).try_for_each(|_| self.close(run))
    }

    /// Closes the open window and passes it on.
    fn close(&mut self, run: &mut Run) -> Result<(), EngineError> {
        let Some(start) = self.opened else {
            return Ok(());
        };
        let end = start.saturating_add(self.interval);
        run.flush()?;
        self.closed += 1;
        let tables = self.gather(run)?;
        let parts = self
            .metrics
            .iter()
            .filter(|metric| metric.is_shown())
            .map(|metric| {
                let head = metric.with_losses(&self.metrics, |at| run.map(at).map(|map| &**map));
                let layout = Arc::clone(metric.stored_layout());
                let rows = match &metric.sum {
                    Some(sum) if tables.contains_key(&metric.group) => {
                        Rows::Held(Arc::new(sum.rows.table().clone()))
                    }
                    _ => tables
                        .get(&metric.group)
                        .map_or(Rows::None, |rows| Rows::Held(Arc::clone(rows))),
                };
                let metric = Arc::new(Metric::clone(&head).with(|head| head.layout = layout));
                DocumentPart { metric, rows }
            });
        let delivery = Delivery {
            probe: self.config.name.clone(),
            origin: Some(Arc::clone(&self.origin)),
            interfaces: Vec::new(),
            approximate: None,
            subject: ReadingSubject::Live {
                last: Some(window(self.closed, start, end)),
            },
            // The clock of the programs counts from the Unix epoch.
            context: Arc::new(Context::default()),
            format: self.config.format,
            parts: parts.collect(),
            skipped_before: 0,
            skipped: Arc::default(),
        };
        self.opened = Some(end);
        self.delivery
            .blocking_send(Ok(Some(delivery)))
            .map_err(|_| EngineError::Gone)
    }

    /// Reads each map once, resets maps as a reading does, and adds to cumulative sums.
    fn gather(&mut self, run: &Run) -> Result<BTreeMap<usize, Arc<RawTable>>, KernelError> {
        let mut tables = BTreeMap::new();
        for group in groups(&self.metrics) {
            let Some(map) = run.map(self.metrics[group].position) else {
                continue;
            };
            let mut members = self.metrics.iter().filter(|metric| metric.group == group);
            let resets = members.any(|metric| metric.extraction.resets());
            let rows = map.read(if resets {
                AfterRead::Reset
            } else {
                AfterRead::Keep
            })?;
            for metric in self
                .metrics
                .iter_mut()
                .filter(|metric| metric.group == group)
            {
                metric.sum_up(&rows, self.closed, 0);
            }
            tables.insert(group, Arc::new(rows));
        }
        Ok(tables)
    }
}
