//! A stream: daemons, lanes, and the time between its start and its end.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use twinprobe_client::ClientError;
use twinprobe_ebpf_common::Format;

use super::budget::MemoryBudget;
use super::feed::{KnownShapes, LaneInlet};
use super::follow::ServiceFollower;
use super::gather::{Gatherer, Parcel};
use super::lane::ReceiverLane;
use super::stopping::Stopping;
use super::watch::Watching;
use crate::config::stream::StreamConfig;
use crate::receivers::kind::ReceiverSetup;
use crate::rules::lane::RuleLane;
use crate::sources::daemon::SourceDaemon;
use crate::sources::roster::DaemonRoster;
use crate::telemetry::meter::{StreamMeter, StreamTotals};
use crate::telemetry::page;

/// The outcome of a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamOutcome {
    pub totals: StreamTotals,
    /// False if a daemon or a receiver could not be reached in the end.
    pub is_complete: bool,
}

/// Runs a stream until it is told to stop or, with `once`, until all present windows have been sent.
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
    let setup = ReceiverSetup { stream: name.clone(), memory, once };
    let (mut lanes, mut inlets) = (JoinSet::new(), Vec::new());
    for destination in destinations {
        let (label, target) = (destination.label.clone(), destination.target.clone());
        let receiver = destination.receiver(&setup);
        let (limits, format) = (receiver.limits(), receiver.format());
        let (inlet, inbox) = inlet(&meter, [&label, &target], memory, format);
        let (queue, meter) = (Gatherer::new(inbox, limits), Arc::clone(&inlet.meter));
        inlets.push(inlet);
        lanes.spawn(ReceiverLane { receiver, queue, meter, stopping: stopping.clone(), once }.run());
    }
    for rule in rules {
        let (daemons, stopping) = (roster.clone(), stopping.clone());
        let label = format!("rule-{}", rule.name);
        let (inlet, inbox) = inlet(&meter, [&label, &rule.name], memory, Format::Json);
        let meter = Arc::clone(&inlet.meter);
        inlets.push(inlet);
        lanes.spawn(RuleLane { rule, inbox, daemons, meter, stopping, once }.run());
    }
    let served =
        listener.map(|listener| tokio::spawn(page::serve(listener, Arc::clone(&meter), stopping.clone())));
    let watching = Watching {
        collector: name,
        probes: probes.into(),
        lanes: inlets,
        shapes: Arc::new(KnownShapes::default()),
        meter: Arc::clone(&meter),
        stopping: stopping.clone(),
        once,
    };
    let mut watches = JoinSet::new();
    for daemon in roster.all() {
        watches.spawn(watching.clone().of(daemon, stopping.clone()).run());
    }
    if let Some(service) = kubernetes {
        let follower = ServiceFollower { service, credentials, roster, watching: watching.clone() };
        watches.spawn(follower.run());
    }
    // Lanes end once no feed can put anything into them.
    drop(watching);
    let is_complete = ended(&mut watches).await & ended(&mut lanes).await;
    stopping.stop();
    if let Some(served) = served {
        let _ = served.await;
    }
    Ok(StreamOutcome { totals: meter.totals(), is_complete })
}

/// Waits until all parts have ended. Returns true if each has ended on its own.
async fn ended(parts: &mut JoinSet<bool>) -> bool {
    let mut is_complete = true;
    while let Some(ended) = parts.join_next().await {
        is_complete &= ended.unwrap_or(false);
    }
    is_complete
}

/// Returns the sender into a lane with this label and target, and the receiver.
fn inlet(
    meter: &StreamMeter,
    [label, target]: [&str; 2],
    memory: usize,
    format: Format,
) -> (LaneInlet, mpsc::UnboundedReceiver<Parcel>) {
    let budget = MemoryBudget::new(memory);
    let meter = meter.lane(label, target, &budget, memory);
    let (sender, inbox) = mpsc::unbounded_channel();
    (LaneInlet { sender, budget, memory, meter, format }, inbox)
}
