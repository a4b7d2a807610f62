//! The time that running probes take. The kernel counts it for a short while now and then, for a dispatcher as a whole;
//! it is shared out among the probes that the dispatcher calls, in proportion to what their trials took.

use std::sync::Arc;
use std::time::Duration;

use twinprobe_client::LiveCost;
use twinprobe_ebpf_common::Direction;
use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_kernel::clock::rfc3339;
use twinprobe_kernel::{LiveRuns, clock};

use crate::engine::engine::Engine;
use crate::engine::probe::probe::Probe;

/// The time between two measurements, and the time that one takes: the kernel counts for 1 % of the time.
const PAUSE: Duration = Duration::from_millis(4_950);
const MEASURE: Duration = Duration::from_millis(50);

/// The options of `serve` about the cost of probes.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct CostOptions {
    /// Measure what probes cost while they run, for 50 ms every 5 s; needs CAP_SYS_ADMIN
    #[arg(long)]
    pub measure_cost: bool,
}

impl Engine {
    /// Starts the task that measures what probes cost, if the options ask for it.
    pub fn measure_costs(self: &Arc<Self>, options: CostOptions) {
        if !options.measure_cost {
            return;
        }
        let engine = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut failing = false;
            loop {
                tokio::time::sleep(PAUSE).await;
                let Some(engine) = engine.upgrade() else { return };
                let kernel = Arc::clone(&engine.kernel);
                let measured = tokio::task::spawn_blocking(move || kernel.measure(MEASURE)).await;
                let error = match measured {
                    Ok(Ok(measured)) => {
                        engine.share_out(&measured);
                        failing = false;
                        continue;
                    }
                    Ok(Err(error)) => with_causes(&error),
                    Err(error) => with_causes(&error),
                };
                if !std::mem::replace(&mut failing, true) {
                    tracing::error!(error, "what probes cost can't be measured; is there CAP_SYS_ADMIN?");
                }
            }
        });
    }

    /// Tells each probe its share of what the dispatchers took.
    fn share_out(&self, measured: &[LiveRuns]) {
        let (now, probes) = (rfc3339(clock::now()), self.list());
        let by_serial = |serial| probes.iter().find(|probe| probe.serial() == Some(serial));
        for probe in &probes {
            let Some(serial) = probe.serial() else { continue };
            let live = measured.iter().filter(|runs| runs.serials.contains(&serial)).map(|runs| {
                let direction = Direction::from(runs.hook);
                let weight = |serial| by_serial(serial).map_or(1.0, |probe| weight(probe, direction));
                let all: f64 = runs.serials.iter().copied().map(weight).sum();
                let per_packet = runs.nanoseconds as f64 / runs.packets.max(1) as f64;
                LiveCost {
                    interface: runs.interface.clone(),
                    direction,
                    hook: runs.hook.kind().section().into(),
                    ns_per_packet: tenths(per_packet * weight(serial) / all),
                    dispatcher_ns_per_packet: tenths(per_packet),
                    packets: runs.packets,
                    measured: now.clone(),
                }
            });
            probe.set_live(live.collect());
        }
    }
}

/// Returns the nanoseconds that the trial of a direction took, for each packet that the dispatcher sees; 1 if nothing is
/// known of it.
fn weight(probe: &Arc<Probe>, direction: Direction) -> f64 {
    let cost = probe.cost().and_then(|cost| cost.directions.get(&direction));
    let tried = cost.and_then(|cost| cost.run.as_ref()).map_or(1.0, |run| run.ns_per_packet as f64);
    let config = &probe.stored.config;
    let config = if direction == Direction::Ingress { &config.ingress } else { &config.egress };
    let one_in = config.as_ref().and_then(|config| config.sample).unwrap_or(1);
    tried / one_in as f64
}

fn tenths(number: f64) -> f64 {
    (10.0 * number).round() / 10.0
}
