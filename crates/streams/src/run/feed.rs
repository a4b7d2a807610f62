//! A feed: it takes the windows of one probe from a daemon, and puts them into one lane.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;
use twinprobe_client::WindowQuery;
use twinprobe_ebpf_common::Format;
use twinprobe_ebpf_common::window::shape::WindowShape;
use twinprobe_ebpf_common::window::{Listing, LostRange, WindowEntry};

use super::acks::Outstanding;
use super::backoff::{Backoff, TRIES};
use super::budget::{Charge, MemoryBudget};
use super::gather::Parcel;
use super::stopping::Stopping;
use crate::receiver::{ItemName, SeriesName, StreamGap, StreamItem, StreamWindow};
use crate::sources::daemon::{AskError, SourceDaemon};
use crate::telemetry::meter::{LaneMeter, StreamMeter};

/// The seconds that a request waits for a window.
const WAIT: u64 = 20;
/// The pause of a feed if no connection is free for a request that waits.
const PAUSE: Duration = Duration::from_secs(1);
/// The part of a lane's memory that one feed may fill, so that a series whose items can't be stored
/// leaves room for other series.
const SHARE: usize = 4;

/// The bytes that an item takes beside its document.
pub const OVERHEAD: usize = 512;

/// The place where a feed puts its items.
#[derive(Clone, Debug)]
pub struct LaneInlet {
    pub sender: UnboundedSender<Parcel>,
    pub budget: Arc<MemoryBudget>,
    /// The limit of the budget.
    pub memory: usize,
    pub meter: Arc<LaneMeter>,
    /// The format of documents that the receiver wants.
    pub format: Format,
}

/// The shapes that are known, by digest.
#[derive(Debug, Default)]
pub struct KnownShapes(Mutex<HashMap<String, Arc<WindowShape>>>);

impl KnownShapes {
    fn get(&self, digest: &str) -> Option<Arc<WindowShape>> {
        self.0.lock().get(digest).map(Arc::clone)
    }

    /// Returns the known shape that equals this one. If there is none, this shape becomes known.
    pub fn known(&self, shape: WindowShape) -> Arc<WindowShape> {
        let mut known = self.0.lock();
        Arc::clone(
            known
                .entry(shape.digest.clone())
                .or_insert_with(|| Arc::new(shape)),
        )
    }
}

/// The feed of the windows of one probe into one lane.
#[derive(Debug)]
pub struct SeriesFeed {
    pub daemon: Arc<SourceDaemon>,
    pub series: Arc<SeriesName>,
    /// The collector's name in requests; `None` if the probe names no collector.
    pub collector: Option<String>,
    pub inlet: LaneInlet,
    pub outstanding: Arc<Outstanding>,
    /// A part of the lane's memory.
    pub own: Arc<MemoryBudget>,
    pub shapes: Arc<KnownShapes>,
    pub meter: Arc<StreamMeter>,
    pub stopping: Stopping,
    /// True if the feed ends after the last available window.
    pub once: bool,
}

/// A window of a list, and the gaps between it and the previous window.
#[derive(Debug, PartialEq, Eq)]
pub struct Step<'a> {
    pub gaps: Vec<LostRange>,
    pub entry: &'a WindowEntry,
}

/// The reason why a feed ends or tries again.
pub enum FeedEnd {
    /// The probe no longer exists, or another probe has its name.
    Gone,
    /// The window was removed after the list was made.
    Missed,
    /// A failure after which another attempt may succeed.
    Failed(AskError),
}

impl From<AskError> for FeedEnd {
    fn from(error: AskError) -> Self {
        match error.status() {
            // 400: the configuration no longer names the collector.
            Some(400 | 404) => Self::Gone,
            _ => Self::Failed(error),
        }
    }
}

impl SeriesFeed {
    /// Returns the part of the lane's memory that a feed may use.
    pub fn share(memory: usize) -> Arc<MemoryBudget> {
        MemoryBudget::new(memory / SHARE)
    }

    /// Runs until the probe is deleted, the stream stops, or, with `once`, no window is left.
    /// Returns true if the feed has ended on its own.
    pub async fn run(self) -> bool {
        self.inlet.meter.watch(&self.outstanding);
        let (mut after, mut backoff, mut failures) = (None, Backoff::default(), 0);
        let stopping = self.stopping.clone();
        loop {
            let before = after;
            let round = tokio::select! {
                round = self.round(&mut after) => round,
                () = stopping.stopped() => return false,
            };
            if after != before {
                backoff.reset();
                failures = 0;
            }
            match round {
                Ok(true) => {
                    backoff.reset();
                    failures = 0;
                }
                Ok(false) => return true,
                Err(FeedEnd::Gone) => {
                    tracing::info!(server = self.daemon.name, series = %self.series, "no more windows come from this probe");
                    return true;
                }
                // The next list shows what has happened to the window, unless the daemon could not
                // record it.
                Err(FeedEnd::Missed) if after == before => {
                    if !backoff.wait(&stopping).await {
                        return false;
                    }
                }
                Err(FeedEnd::Missed) => {}
                Err(FeedEnd::Failed(error)) => {
                    self.meter.server_failed(&self.daemon.name);
                    tracing::warn!(server = self.daemon.name, series = %self.series, %error, "the daemon does not answer; trying again");
                    self.daemon.renew();
                    failures += 1;
                    if self.once && failures >= TRIES || !backoff.wait(&stopping).await {
                        return false;
                    }
                }
            }
        }
    }

    /// Lists windows and puts them into the lane. Returns false at the end.
    async fn round(&self, after: &mut Option<u64>) -> Result<bool, FeedEnd> {
        let listing = self.list(*after).await?;
        if !listing.instance.is_empty() && listing.instance != self.series.instance {
            return Err(FeedEnd::Gone);
        }
        let first = *after.get_or_insert(listing.after);
        let Some(last) = listing.windows.last().map(|entry| entry.seq) else {
            return Ok(!self.once);
        };
        if listing.windows.len() > 1 && self.catch_up(after, last).await? {
            return Ok(!self.once);
        }
        for step in steps(&listing, first, self.collector.is_some()) {
            self.window(&step).await?;
            *after = Some(step.entry.seq);
        }
        // The next round takes windows that were closed in this round.
        Ok(!self.once)
    }

    async fn list(&self, after: Option<u64>) -> Result<Listing, FeedEnd> {
        let collector = self.collector.as_deref().filter(|_| after.is_none());
        let mut query = WindowQuery {
            after,
            wait: None,
            collector,
        };
        let place = (!self.once).then(|| self.daemon.polls.try_acquire());
        let client = self.daemon.client();
        match &place {
            Some(Ok(_)) => query.wait = Some(WAIT),
            Some(Err(_)) if after.is_some() => tokio::time::sleep(PAUSE).await,
            _ => {}
        }
        let answer = self
            .daemon
            .ask(client.windows(&self.series.probe, query))
            .await?;
        Ok(answer.read().map_err(AskError::from)?)
    }

    fn gap(
        &self,
        LostRange {
            first,
            last,
            windows,
        }: LostRange,
    ) {
        tracing::warn!(
            server = self.daemon.name, series = %self.series, first, last, windows,
            "windows were lost before they were sent: the daemon's retention removed them, or its disk has damaged them"
        );
        let name = ItemName {
            series: Arc::clone(&self.series),
            seq: first,
            start: "".into(),
            end: "".into(),
        };
        // The memory that is counted for the next window includes the gap.
        self.put(
            StreamItem::Gap(StreamGap {
                name,
                last,
                windows,
            }),
            None,
            None,
        );
    }

    async fn window(&self, step: &Step<'_>) -> Result<(), FeedEnd> {
        let charges = self.charges(self.guess(step)).await;
        let seq = step.entry.seq;
        let Ok(_place) = self.daemon.requests.acquire().await else {
            return Err(FeedEnd::Gone);
        };
        let client = self.daemon.client();
        let missed = |error: AskError| match error.status() {
            Some(404) => FeedEnd::Missed,
            _ => FeedEnd::Failed(error),
        };
        let probe = &self.series.probe;
        let answer = self
            .daemon
            .ask(client.shaped_window(probe, seq, self.inlet.format.media_type()))
            .await
            .map_err(missed)?;
        let digest = answer.shape.clone().unwrap_or_default();
        let shape = match self.shapes.get(&digest) {
            Some(shape) => shape,
            None => {
                let shape = self
                    .daemon
                    .ask(client.shape(probe, seq))
                    .await
                    .map_err(missed)?;
                self.shapes.known(shape.read().map_err(AskError::from)?)
            }
        };
        self.deliver(step, answer.body.into(), shape, charges);
        Ok(())
    }

    /// Puts a window into the lane, and the gaps before it. All come together: without the window,
    /// the next attempt would tell a gap a second time, or with further windows.
    pub fn deliver(
        &self,
        Step { gaps, entry }: &Step<'_>,
        document: Bytes,
        shape: Arc<WindowShape>,
        mut charges: [Charge; 2],
    ) {
        gaps.iter().for_each(|range| self.gap(*range));
        let bytes = document.len() + OVERHEAD * (1 + gaps.len());
        charges.iter_mut().for_each(|charge| charge.resize(bytes));
        let name = ItemName {
            series: self.series_of(&document),
            seq: entry.seq,
            start: entry.start.as_str().into(),
            end: entry.end.as_str().into(),
        };
        self.put(
            StreamItem::Window(StreamWindow {
                name,
                document,
                shape,
            }),
            Some(entry),
            Some(charges),
        );
    }

    /// Returns the series of a document: a window of an expired probe of this name belongs to
    /// another instance.
    fn series_of(&self, document: &[u8]) -> Arc<SeriesName> {
        let is_json = self.inlet.format == Format::Json;
        let field: &[u8] = if is_json {
            br#","instance":""#
        } else {
            br#",instance=""#
        };
        let head = &document[..document.len().min(4096)];
        let start = head
            .windows(field.len())
            .position(|bytes| bytes == field)
            .map(|at| at + field.len());
        let instance = start.and_then(|start| head[start..].split(|byte| *byte == b'"').next());
        match instance.and_then(|instance| std::str::from_utf8(instance).ok()) {
            Some(instance) if instance != self.series.instance => Arc::new(SeriesName {
                instance: instance.to_owned(),
                ..SeriesName::clone(&self.series)
            }),
            _ => Arc::clone(&self.series),
        }
    }

    /// Returns an estimate, which is rather too high, of the bytes of a window and of the gaps
    /// before it. Nothing more precise is known yet.
    pub fn guess(&self, step: &Step<'_>) -> usize {
        let bytes = usize::try_from(step.entry.bytes).unwrap_or(usize::MAX);
        bytes
            .saturating_add(OVERHEAD * step.gaps.len())
            .min(self.inlet.memory / SHARE)
    }

    /// Waits until the feed and its lane have room.
    pub async fn charges(&self, bytes: usize) -> [Charge; 2] {
        let own = self.own.take(bytes).await;
        [own, self.inlet.budget.take(bytes).await]
    }

    fn put(&self, item: StreamItem, entry: Option<&WindowEntry>, charges: Option<[Charge; 2]>) {
        let end = entry.and_then(|entry| entry.end.parse().ok());
        let ticket = self.outstanding.begin(entry.map(|entry| entry.seq), end);
        let outstanding = Arc::clone(&self.outstanding);
        // The lane ends after its feeds, unless the stream stops.
        let _ = self.inlet.sender.send(Parcel {
            item: Arc::new(item),
            _charges: charges,
            outstanding,
            ticket,
        });
    }
}

/// Returns the windows of a list with the gaps between them. For a probe that names no collector,
/// windows that any client has acknowledged do not count as lost. So all windows that are missing
/// between two of the list become a gap: the stream has not sent them either.
pub fn steps(listing: &Listing, after: u64, is_named: bool) -> Vec<Step<'_>> {
    let mut lost = listing.lost.iter().copied().peekable();
    let mut last = after;
    let mut steps = Vec::new();
    for entry in &listing.windows {
        let (mut gaps, is_all_missing) = (Vec::new(), !is_named && last > 0);
        while let Some(range) = lost.next_if(|range| range.first < entry.seq) {
            // The daemon counts unacknowledged windows as lost, but this stream may be sending some
            // of them.
            let first = range.first.max(last + 1);
            if first <= range.last && !is_all_missing {
                let windows = range.windows.min(range.last - first + 1);
                gaps.push(LostRange {
                    first,
                    windows,
                    ..range
                });
            }
        }
        if is_all_missing && last + 1 < entry.seq {
            let (first, last) = (last + 1, entry.seq - 1);
            gaps.push(LostRange {
                first,
                last,
                windows: last - first + 1,
            });
        }
        last = entry.seq;
        steps.push(Step { gaps, entry });
    }
    steps
}

#[cfg(test)]
mod tests;
