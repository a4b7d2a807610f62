//! A stream: daemons, lanes, and the time between its start and its end.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use twinprobe_client::ClientError;
use twinprobe_ebpf_common::Format;

use super::budget::MemoryBudget;
use super::feed::{KnownShapes, LaneInlet};
use super::follow::DaemonFollower;
use super::gather::{Gatherer, Parcel};
use super::lane::ReceiverLane;
use super::stopping::Stopping;
use super::watch::Watching;
use crate::config::stream::{KnownDaemons, StreamConfig};
use crate::receivers::kind::{Destination, ReceiverSetup};
use crate::rules::document::NamedRule;
use crate::rules::lane::RuleLane;
use crate::sources::credentials::CredentialFiles;
use crate::sources::daemon::SourceDaemon;
use crate::sources::kubernetes::KubernetesService;
use crate::sources::roster::DaemonRoster;
use crate::telemetry::meter::{StreamMeter, StreamTotals};
use crate::telemetry::page;

/// The outcome of a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamOutcome {
    pub totals: StreamTotals,
    /// False if a daemon or a receiver could not be reached at the end.
    pub is_complete: bool,
}

/// Runs a stream until it is told to stop or, with `once`, until all present windows have been
/// sent.
pub async fn run(
    config: StreamConfig,
    once: bool,
    listener: Option<TcpListener>,
    meter: Arc<StreamMeter>,
    stopping: Stopping,
) -> Result<StreamOutcome, ClientError> {
    let StreamConfig {
        name,
        servers,
        kubernetes,
        known,
        credentials,
        probes,
        destinations,
        rules,
        memory,
        listen: _,
    } = config;
    let memory = memory / (destinations.len() + rules.len()).max(1);
    let roster = DaemonRoster::default();
    for (name, address) in servers {
        roster.add(SourceDaemon::new(name, address, credentials.clone())?);
    }
    let beginning = LaneBeginning {
        setup: ReceiverSetup {
            stream: name.clone(),
            memory,
            once,
        },
        roster: &roster,
        meter: &meter,
        stopping: &stopping,
    };
    let mut lanes = JoinSet::new();
    let inlets = beginning.of_all(destinations, rules, &mut lanes);
    let serve =
        |listener| tokio::spawn(page::serve(listener, Arc::clone(&meter), stopping.clone()));
    let served = listener.map(serve);
    let watching = Watching {
        collector: name,
        probes: probes.into(),
        lanes: inlets,
        shapes: Arc::new(KnownShapes::default()),
        meter: Arc::clone(&meter),
        stopping: stopping.clone(),
        once,
    };
    let mut watches = begin_watches(watching, roster, credentials, kubernetes, known);
    let is_complete = ended(&mut watches).await & ended(&mut lanes).await;
    stopping.stop();
    if let Some(served) = served {
        let _ = served.await;
    }
    Ok(StreamOutcome {
        totals: meter.totals(),
        is_complete,
    })
}

/// Begins the looks at the known daemons, and the looks for others.
fn begin_watches(
    watching: Watching,
    roster: DaemonRoster,
    credentials: CredentialFiles,
    kubernetes: Option<KubernetesService>,
    known: Option<KnownDaemons>,
) -> JoinSet<bool> {
    let mut watches = JoinSet::new();
    for daemon in roster.all() {
        let stopping = watching.stopping.clone();
        watches.spawn(watching.clone().of(daemon, stopping).run());
    }
    let follower = DaemonFollower::new(credentials, roster, watching);
    match (kubernetes, known) {
        (Some(service), _) => _ = watches.spawn(follower.of_service(service)),
        (None, Some(known)) => _ = watches.spawn(follower.of_list(known)),
        // Lanes end once no feed can put anything into them any more.
        (None, None) => drop(follower),
    }
    watches
}

/// The parts that each lane needs at its beginning.
struct LaneBeginning<'a> {
    setup: ReceiverSetup,
    roster: &'a DaemonRoster,
    meter: &'a StreamMeter,
    stopping: &'a Stopping,
}

impl LaneBeginning<'_> {
    /// Starts the lanes of all receivers and rules, and returns the senders into these lanes.
    fn of_all(
        &self,
        destinations: Vec<Destination>,
        rules: Vec<NamedRule>,
        lanes: &mut JoinSet<bool>,
    ) -> Vec<LaneInlet> {
        let receivers = destinations
            .into_iter()
            .map(|it| self.of_receiver(it, lanes));
        let mut inlets: Vec<LaneInlet> = receivers.collect();
        inlets.extend(rules.into_iter().map(|rule| self.of_rule(rule, lanes)));
        inlets
    }

    /// Starts the lane of a receiver, and returns the sender into this lane.
    fn of_receiver(&self, destination: Destination, lanes: &mut JoinSet<bool>) -> LaneInlet {
        let (label, target) = (destination.label.clone(), destination.target.clone());
        let receiver = destination.receiver(&self.setup);
        let (limits, format) = (receiver.limits(), receiver.format());
        let (inlet, inbox) = inlet(self.meter, [&label, &target], self.setup.memory, format);
        let (queue, meter) = (Gatherer::new(inbox, limits), Arc::clone(&inlet.meter));
        let (stopping, once) = (self.stopping.clone(), self.setup.once);
        lanes.spawn(
            ReceiverLane {
                receiver,
                queue,
                meter,
                stopping,
                once,
            }
            .run(),
        );
        inlet
    }

    /// Starts the lane of a rule, and returns the sender into this lane.
    fn of_rule(&self, rule: NamedRule, lanes: &mut JoinSet<bool>) -> LaneInlet {
        let (daemons, stopping) = (self.roster.clone(), self.stopping.clone());
        let (label, once) = (format!("rule-{}", rule.name), self.setup.once);
        let collector = self.setup.stream.clone();
        let (inlet, inbox) = inlet(
            self.meter,
            [&label, &rule.name],
            self.setup.memory,
            Format::Json,
        );
        let (meter, counts) = (Arc::clone(&inlet.meter), self.meter.rules.of(&rule.name));
        lanes.spawn(
            RuleLane {
                rule,
                collector,
                inbox,
                daemons,
                meter,
                counts,
                stopping,
                once,
            }
            .run(),
        );
        inlet
    }
}

/// Waits until all parts have ended. Returns true if none of them was stopped.
async fn ended(parts: &mut JoinSet<bool>) -> bool {
    let mut is_complete = true;
    while let Some(ended) = parts.join_next().await {
        is_complete &= ended.unwrap_or(false);
    }
    is_complete
}

/// Returns both ends of the queue of a lane with this label and target.
fn inlet(
    meter: &StreamMeter,
    [label, target]: [&str; 2],
    memory: usize,
    format: Format,
) -> (LaneInlet, mpsc::UnboundedReceiver<Parcel>) {
    let budget = MemoryBudget::new(memory);
    let meter = meter.lane(label, target, &budget, memory);
    let (sender, inbox) = mpsc::unbounded_channel();
    (
        LaneInlet {
            sender,
            budget,
            memory,
            meter,
            format,
        },
        inbox,
    )
}
