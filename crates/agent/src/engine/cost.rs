//! The time that running probes take. At intervals, the kernel counts the time for a short while,
//! for a dispatcher as a whole. Samples of the CPUs' clocks from the same period show the part of
//! each program. If there are too few samples, the probes of the dispatcher share the time in
//! proportion to the results of their trials.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use twinprobe_api::LiveCost;
use twinprobe_ebpf_common::Direction;
use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_kernel::clock::rfc3339;
use twinprobe_kernel::{LiveCall, LiveRuns, clock};

use crate::engine::engine::Engine;
use crate::engine::probe::probe::Probe;

/// The time between two measurements, and the time that one takes: the kernel counts for 1 % of the
/// time.
const PAUSE: Duration = Duration::from_millis(4_950);
const MEASURE: Duration = Duration::from_millis(50);
/// The least number of samples of a dispatcher with its programs from which shares are computed.
/// With this number, a share of a half has a standard error of a seventh of the share.
const ENOUGH: f64 = 50.0;
/// The weight that samples keep at the next measurement. A measurement takes 200 samples of each
/// CPU, and with this weight the samples of about 20 measurements count. So some minutes are enough
/// for a dispatcher that takes 1.3 % of one CPU.
const DECAY: f64 = 0.95;

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
            let (mut failing, mut samples) = (false, LiveSamples::default());
            loop {
                tokio::time::sleep(PAUSE).await;
                let Some(engine) = engine.upgrade() else {
                    return;
                };
                let kernel = Arc::clone(&engine.deployer.kernel);
                let measured = tokio::task::spawn_blocking(move || kernel.measure(MEASURE)).await;
                let error = match measured {
                    Ok(Ok(measured)) => {
                        samples.add(&measured);
                        engine.share_out(&measured, &samples);
                        failing = false;
                        continue;
                    }
                    Ok(Err(error)) => with_causes(&error),
                    Err(error) => with_causes(&error),
                };
                if !std::mem::replace(&mut failing, true) {
                    tracing::error!(
                        error,
                        "the cost of probes can't be measured; does the daemon have CAP_SYS_ADMIN?"
                    );
                }
            }
        });
    }

    /// Gives each probe its share of the time of the dispatchers.
    fn share_out(&self, measured: &[LiveRuns], samples: &LiveSamples) {
        let (now, probes) = (rfc3339(clock::now()), self.registry.list());
        let by_serial = |serial| probes.iter().find(|probe| probe.serial() == Some(serial));
        for probe in &probes {
            let Some(serial) = probe.serial() else {
                continue;
            };
            let called =
                |runs: &LiveRuns| runs.called.iter().position(|call| call.serial == serial);
            let live = measured
                .iter()
                .filter_map(|runs| Some((runs, called(runs)?)))
                .map(|(runs, place)| {
                    let direction = Direction::from(runs.hook);
                    let weight = |call: &LiveCall| {
                        by_serial(call.serial).map_or(1.0, |probe| weight(probe, direction))
                    };
                    let tried = || {
                        weight(&runs.called[place]) / runs.called.iter().map(weight).sum::<f64>()
                    };
                    let sampled = samples.share(runs, place);
                    let per_packet = runs.nanoseconds as f64 / runs.packets.max(1) as f64;
                    LiveCost {
                        by: if sampled.is_some() {
                            "samples"
                        } else {
                            "trial"
                        }
                        .into(),
                        interface: runs.interface.clone(),
                        direction,
                        hook: runs.hook.kind().section().into(),
                        ns_per_packet: tenths(per_packet * sampled.unwrap_or_else(tried)),
                        dispatcher_ns_per_packet: tenths(per_packet),
                        packets: runs.packets,
                        measured: now.clone(),
                    }
                });
            probe.set_live(live.collect());
        }
    }
}

/// The samples that met programs. Older samples count less.
#[derive(Debug, Default)]
struct LiveSamples {
    /// The samples of the programs of a direction, by deployment.
    called: HashMap<[u32; 2], f64>,
    /// The samples of the programs of dispatchers.
    own: HashMap<u32, f64>,
}

impl LiveSamples {
    /// Adds a measurement. Forgets programs that the measurement did not find.
    fn add(&mut self, measured: &[LiveRuns]) {
        let (mut called, mut own) = (HashMap::new(), HashMap::new());
        for LiveRuns {
            called: calls,
            own: (program, samples),
            ..
        } in measured
        {
            let before = self.own.get(program).copied().unwrap_or(0.0);
            own.insert(*program, before.mul_add(DECAY, *samples as f64));
            for LiveCall {
                programs, samples, ..
            } in calls
            {
                let before = self.called.get(programs).copied().unwrap_or(0.0);
                called.insert(*programs, before.mul_add(DECAY, *samples as f64));
            }
        }
        *self = Self { called, own };
    }

    /// Returns the share that one of the programs has in the time of a dispatcher; `None` while
    /// there are too few samples.
    fn share(&self, runs: &LiveRuns, place: usize) -> Option<f64> {
        let of = |call: &LiveCall| self.called.get(&call.programs).copied().unwrap_or(0.0);
        let own = self.own.get(&runs.own.0).copied().unwrap_or(0.0);
        let all = own + runs.called.iter().map(of).sum::<f64>();
        (all >= ENOUGH).then(|| of(&runs.called[place]) / all)
    }
}

/// Returns the nanoseconds that the trial of a direction took, for each packet that the dispatcher
/// sees; 1 without a result.
fn weight(probe: &Arc<Probe>, direction: Direction) -> f64 {
    let cost = probe
        .cost()
        .and_then(|cost| cost.directions.get(&direction));
    let tried = cost
        .and_then(|cost| cost.run.as_ref())
        .map_or(1.0, |run| run.ns_per_packet as f64);
    let config = &probe.stored.config;
    let config = if direction == Direction::Ingress {
        &config.ingress
    } else {
        &config.egress
    };
    let one_in = config
        .as_ref()
        .and_then(|config| config.sample)
        .unwrap_or(1);
    tried / one_in as f64
}

fn tenths(number: f64) -> f64 {
    (10.0 * number).round() / 10.0
}

#[cfg(test)]
mod tests {
    use twinprobe_ebpf_common::hook::Hook;

    use super::*;

    fn runs(own: u64, called: &[(u32, u64)]) -> LiveRuns {
        let call = |&(program, samples): &(u32, u64)| LiveCall {
            serial: u64::from(program),
            programs: [program, program + 1],
            samples,
        };
        let called = called.iter().map(call).collect();
        let interface = "eth0".into();
        LiveRuns {
            interface,
            hook: Hook::Xdp,
            called,
            own: (9, own),
            packets: 1,
            nanoseconds: 1,
        }
    }

    #[test]
    fn shares_follow_from_enough_samples() {
        let mut samples = LiveSamples::default();
        let few = runs(4, &[(10, 30), (20, 15)]);
        samples.add(std::slice::from_ref(&few));
        assert_eq!(samples.share(&few, 0), None, "49 samples");
        // Dispatchers with equal calls have the same samples, which count once.
        samples.add(&[
            runs(1, &[(10, 46), (20, 60)]),
            runs(1, &[(10, 46), (20, 60)]),
        ]);
        let share = |place| {
            samples
                .share(&few, place)
                .map(|share| (1000.0 * share).round())
        };
        assert_eq!(
            [share(0), share(1)],
            [Some(485.0), Some(484.0)],
            "74.5 and 74.25 of 153.55, with the dispatcher's 4.8"
        );
        samples.add(&[]);
        assert_eq!(samples.share(&few, 0), None, "what is gone is forgotten");
    }
}
