//! Looks for the probes of a daemon, and begins a feed for each probe that the stream sends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use glob::Pattern;
use tokio::task::JoinSet;
use twinprobe_api::ProbeStatus;

use super::acks::{AckBoard, acknowledge};
use super::backoff::{Backoff, TRIES};
use super::feed::{KnownShapes, LaneInlet, SeriesFeed};
use super::stopping::Stopping;
use crate::receiver::SeriesName;
use crate::sources::daemon::{AskError, SourceDaemon};
use crate::telemetry::meter::StreamMeter;

/// The time between two looks for new probes.
const LOOK: Duration = Duration::from_secs(2);

/// The right of a stream to read and acknowledge a probe's windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeClaim {
    /// The configuration names this collector.
    Named(String),
    /// The probe names no collectors, so any client may acknowledge windows.
    Anybody,
    /// The probe names only other collectors, or can't be read.
    Others,
}

impl ProbeClaim {
    /// Returns the claim of `collector` on a probe.
    pub fn of(status: &ProbeStatus, collector: &str) -> Self {
        let Some(config) = &status.config else {
            return Self::Others;
        };
        let named = config
            .window
            .as_ref()
            .and_then(|window| window.collectors.as_deref())
            .unwrap_or_default();
        match named {
            [] => Self::Anybody,
            named if named.iter().any(|name| name == collector) => {
                Self::Named(collector.to_owned())
            }
            _ => Self::Others,
        }
    }

    /// The collector's name in requests; `None` if requests need none.
    pub fn collector(&self) -> Option<String> {
        match self {
            Self::Named(name) => Some(name.clone()),
            Self::Anybody | Self::Others => None,
        }
    }
}

/// The parts that the looks at all daemons share.
#[derive(Clone, Debug)]
pub struct Watching {
    /// The name of the stream.
    pub collector: String,
    pub probes: Arc<[Pattern]>,
    pub lanes: Vec<LaneInlet>,
    pub shapes: Arc<KnownShapes>,
    pub meter: Arc<StreamMeter>,
    pub stopping: Stopping,
    pub once: bool,
}

/// The look at one daemon.
#[derive(Debug)]
pub struct Watch {
    pub daemon: Arc<SourceDaemon>,
    pub of: Watching,
}

impl Watching {
    /// Returns the look at this daemon, which ends with `stopping`.
    pub fn of(self, daemon: Arc<SourceDaemon>, stopping: Stopping) -> Watch {
        Watch {
            daemon,
            of: Self { stopping, ..self },
        }
    }
}

/// A probe of a daemon: its name and instance.
type ProbeIdentity = (String, String);

impl Watch {
    /// Runs until the stream stops, or, with `once`, until all windows have been sent. Returns
    /// false if the daemon could not be reached.
    pub async fn run(mut self) -> bool {
        let (mut feeds, mut running) = (JoinSet::new(), BTreeSet::<ProbeIdentity>::new());
        let (mut told, mut backoff, mut failures) = (BTreeSet::new(), Backoff::default(), 0);
        let mut whole = true;
        self.of.meter.server_begun(&self.daemon.name);
        loop {
            while let Some(ended) = feeds.try_join_next() {
                if let Ok((known, is_complete)) = ended {
                    whole &= is_complete;
                    running.remove(&known);
                }
            }
            let client = self.daemon.client();
            let asked = self.daemon.ask(client.probes()).await;
            match asked.and_then(|answer| Ok(answer.read()?)) {
                Ok(list) => {
                    backoff.reset();
                    failures = 0;
                    self.of.meter.server_up(&self.daemon.name, true);
                    self.begin(list.probes, &mut running, &mut told, &mut feeds);
                    if self.of.once {
                        break;
                    }
                    tokio::select! {
                        () = tokio::time::sleep(LOOK) => {}
                        () = self.of.stopping.stopped() => break,
                    }
                }
                Err(error) => {
                    self.failed(&error, failures);
                    failures += 1;
                    if self.of.once && failures >= TRIES || !backoff.wait(&self.of.stopping).await {
                        break;
                    }
                }
            }
        }
        // A lane ends once nothing can put windows into it, and the feeds end after the lane.
        self.of.lanes.clear();
        while let Some(ended) = feeds.join_next().await {
            whole &= ended.is_ok_and(|(_, is_complete)| is_complete);
        }
        self.of.meter.server_gone(&self.daemon.name);
        whole && failures == 0
    }

    fn failed(&self, error: &AskError, failures: u32) {
        self.of.meter.server_failed(&self.daemon.name);
        self.of.meter.server_up(&self.daemon.name, false);
        if failures == 0 {
            tracing::warn!(server = self.daemon.name, %error, "the daemon can't be asked for its probes; trying again");
        }
        self.daemon.renew();
    }

    /// Starts the new series.
    fn begin(
        &self,
        probes: Vec<ProbeStatus>,
        running: &mut BTreeSet<ProbeIdentity>,
        told: &mut BTreeSet<ProbeIdentity>,
        feeds: &mut JoinSet<(ProbeIdentity, bool)>,
    ) {
        let mut others = 0;
        for status in probes {
            if !self
                .of
                .probes
                .iter()
                .any(|pattern| pattern.matches(&status.name))
            {
                continue;
            }
            let claim = ProbeClaim::of(&status, &self.of.collector);
            let known = (status.name.clone(), status.instance.clone());
            if claim == ProbeClaim::Others {
                others += usize::from(status.windows.statistics.retained > 0);
                if told.insert(known) {
                    tracing::warn!(
                        server = self.daemon.name,
                        probe = status.name,
                        collector = self.of.collector,
                        "the probe's window.collectors do not name this stream, so its windows are left to others"
                    );
                }
                continue;
            }
            if running.insert(known.clone()) {
                tracing::info!(
                    server = self.daemon.name,
                    probe = status.name,
                    collector = claim.collector(),
                    "sending windows"
                );
                feeds.spawn(self.group(&status, &claim, known));
            }
        }
        self.of.meter.unnamed(&self.daemon.name, others);
    }

    /// Returns the feeds of one probe to all lanes, with the acknowledgements.
    fn group(
        &self,
        status: &ProbeStatus,
        claim: &ProbeClaim,
        known: ProbeIdentity,
    ) -> impl Future<Output = (ProbeIdentity, bool)> + use<> {
        let ProbeStatus {
            node,
            instance,
            name,
            ..
        } = status.clone();
        let series = Arc::new(SeriesName {
            node,
            instance,
            probe: name,
        });
        let board = AckBoard::new(self.of.lanes.len());
        let mut parts = JoinSet::new();
        let acks = acknowledge(
            Arc::clone(&self.daemon),
            Arc::clone(&series),
            claim.collector(),
            board.subscribe(),
            self.of.stopping.clone(),
        );
        parts.spawn(acks);
        for (number, inlet) in self.of.lanes.iter().enumerate() {
            let feed = SeriesFeed {
                daemon: Arc::clone(&self.daemon),
                series: Arc::clone(&series),
                collector: claim.collector(),
                inlet: inlet.clone(),
                outstanding: board.lane(number),
                own: SeriesFeed::share(inlet.memory),
                shapes: Arc::clone(&self.of.shapes),
                meter: Arc::clone(&self.of.meter),
                stopping: self.of.stopping.clone(),
                once: self.of.once,
            };
            parts.spawn(feed.run());
        }
        // The acknowledgements end once all items of these feeds are stored.
        drop(board);
        async move {
            let mut is_complete = true;
            while let Some(ended) = parts.join_next().await {
                is_complete &= ended.unwrap_or(false);
            }
            (known, is_complete)
        }
    }
}
