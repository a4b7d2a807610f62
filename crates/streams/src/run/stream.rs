//! A stream: daemons, lanes, and the time between its start and its end.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use twinprobe_client::ClientError;

use super::budget::MemoryBudget;
use super::feed::{KnownShapes, LaneInlet};
use super::gather::Gatherer;
use super::lane::ReceiverLane;
use super::stopping::Stopping;
use super::watch::Watch;
use crate::config::stream::StreamConfig;
use crate::receivers::kind::ReceiverSetup;
use crate::sources::daemon::SourceDaemon;
use crate::telemetry::meter::{StreamMeter, StreamTotals};
use crate::telemetry::page;

/// What came of a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamOutcome {
    pub totals: StreamTotals,
    /// False if a daemon or a receiver could not be reached in the end.
    pub is_complete: bool,
}

/// Runs a stream until it is told to stop or, with `once`, until all windows of now have been sent.
pub async fn run(
    config: StreamConfig,
    once: bool,
    listener: Option<TcpListener>,
    meter: Arc<StreamMeter>,
    stopping: Stopping,
) -> Result<StreamOutcome, ClientError> {
    let StreamConfig { name, servers, credentials, probes, destinations, memory, listen: _ } = config;
    let memory = memory / destinations.len().max(1);
    let setup = ReceiverSetup { stream: name.clone(), memory, once };
    let (mut lanes, mut inlets) = (JoinSet::new(), Vec::new());
    for destination in destinations {
        let budget = MemoryBudget::new(memory);
        let lane_meter = meter.lane(&destination.label, &destination.target, &budget, memory);
        let receiver = destination.receiver(&setup);
        let (sender, inbox) = mpsc::unbounded_channel();
        let (limits, format) = (receiver.limits(), receiver.format());
        inlets.push(LaneInlet { sender, budget, memory, meter: Arc::clone(&lane_meter), format });
        let lane = ReceiverLane {
            receiver,
            queue: Gatherer::new(inbox, limits),
            meter: lane_meter,
            stopping: stopping.clone(),
            once,
        };
        lanes.spawn(lane.run());
    }
    let served =
        listener.map(|listener| tokio::spawn(page::serve(listener, Arc::clone(&meter), stopping.clone())));
    let (mut watches, shapes) = (JoinSet::new(), Arc::new(KnownShapes::default()));
    for (server_name, server) in servers {
        let watch = Watch {
            daemon: SourceDaemon::new(server_name, server, credentials.clone())?,
            collector: name.clone(),
            probes: probes.clone().into(),
            lanes: inlets.clone(),
            shapes: Arc::clone(&shapes),
            meter: Arc::clone(&meter),
            stopping: stopping.clone(),
            once,
        };
        watches.spawn(watch.run());
    }
    // Lanes end once nobody can put anything into them.
    drop(inlets);
    let mut is_complete = true;
    while let Some(ended) = watches.join_next().await {
        is_complete &= ended.unwrap_or(false);
    }
    while let Some(ended) = lanes.join_next().await {
        is_complete &= ended.unwrap_or(false);
    }
    stopping.stop();
    if let Some(served) = served {
        let _ = served.await;
    }
    Ok(StreamOutcome { totals: meter.totals(), is_complete })
}
