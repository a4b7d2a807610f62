//! Readings of all probes together, for `GET /metrics`.

use std::sync::Arc;
use std::time::Duration;

use twinprobe_api::{ConfigDocument, DirectionDocument};
use twinprobe_ebpf_common::Direction;

use crate::engine::engine::Engine;
use crate::engine::error::{EngineError, describe};
use crate::engine::events::probe_events::ProbeEvents;
use crate::engine::pods::names::InterfacePods;
use crate::engine::probe::probe::Probe;
use crate::engine::window::delivery::Delivery;
use crate::telemetry::counters::Counters;
use crate::telemetry::page::ProbeFacts;

/// The time within which the reading of one probe must begin. Scrapers usually wait 10 s.
const PATIENCE: Duration = Duration::from_secs(5);

/// The reading of one probe.
#[derive(Debug)]
pub struct Scraped {
    pub delivery: Delivery,
    pub counters: Arc<Counters>,
    /// True if a part of the probe could not be read.
    pub broken: bool,
}

impl Engine {
    /// Reads all probes together, without any effect on other readers. A probe that can't be read
    /// is left out and counted.
    pub async fn read_all(self: &Arc<Self>) -> Vec<Scraped> {
        let readings = self.registry.list().into_iter().map(|probe| {
            let engine = Arc::clone(self);
            let name = probe.name.clone();
            let reading = tokio::spawn(async move {
                tokio::time::timeout(PATIENCE, engine.read_for_page(&probe.name)).await
            });
            (name, reading)
        });
        let mut scraped = Vec::new();
        for (name, reading) in readings.collect::<Vec<_>>() {
            let reason = match reading.await {
                Ok(Ok(Ok(reading))) => {
                    scraped.push(reading);
                    continue;
                }
                // The probe was deleted since the listing.
                Ok(Ok(Err(EngineError::NotFound { .. }))) => continue,
                Ok(Ok(Err(error))) => describe(&error),
                Ok(Err(_)) => format!("it took longer than {} s", PATIENCE.as_secs()),
                Err(error) => describe(&error.into()),
            };
            tracing::warn!(
                probe = name,
                reason,
                "a probe is left out of this answer to GET /metrics"
            );
            self.telemetry.probe(&name).read_failures.inc();
        }
        scraped
    }

    async fn read_for_page(self: &Arc<Self>, name: &str) -> Result<Scraped, EngineError> {
        let counters = self.telemetry.probe(name);
        let delivery = self.in_turn(name, Probe::read_for_page).await?;
        Ok(Scraped {
            delivery,
            counters,
            broken: false,
        })
    }

    /// Returns the daemon's metrics about itself and its probes, in OpenMetrics without `# EOF`.
    pub async fn own_metrics(self: &Arc<Self>) -> Result<String, EngineError> {
        let engine = Arc::clone(self);
        // The facts include the lost events, which come from event maps. So this does not run on a
        // thread that serves requests.
        Ok(tokio::task::spawn_blocking(move || {
            let facts: Vec<ProbeFacts> = engine
                .registry
                .list()
                .iter()
                .map(|probe| facts(probe, &engine.deployer.pods.names))
                .collect();
            engine.telemetry.render(&facts)
        })
        .await?)
    }
}

/// Returns the facts about a probe that are available even while a reading holds the probe's locks.
fn facts(probe: &Probe, names: &InterfacePods) -> ProbeFacts {
    let sums = probe.sums.lock().clone();
    let shown = probe.shown.lock().clone();
    let ConfigDocument {
        ingress, egress, ..
    } = &probe.stored.config;
    let directions = [(Direction::Ingress, ingress), (Direction::Egress, egress)];
    let sample = |(direction, config): (_, &Option<DirectionDocument>)| {
        Some((direction, config.as_ref()?.sample?))
    };
    let budget = |(direction, config): (_, &Option<DirectionDocument>)| {
        Some((direction, config.as_ref()?.max_ns_per_packet?))
    };
    ProbeFacts {
        name: probe.name.clone(),
        origin: Arc::clone(&probe.origin),
        samples: directions.into_iter().filter_map(sample).collect(),
        budgets: directions.into_iter().filter_map(budget).collect(),
        lags: probe.windows.lags(),
        running: probe.running.is_some(),
        windows: probe.windows.statistics(),
        sums,
        cost: probe.cost_status(),
        events: probe.events().map(ProbeEvents::status).unwrap_or_default(),
        attachments: shown.facts(),
        approximate: shown.approximate(),
        pods: names.of(shown.indices().filter(|_| probe.namespace() == Some(&None))),
    }
}
