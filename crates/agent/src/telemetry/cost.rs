//! The metric families about the cost of probes.

use std::collections::BTreeMap;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use twinprobe_api::CostStatus;
use twinprobe_ebpf_common::Direction;

use crate::telemetry::counters::{Amount, OfProbe};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OfDirection {
    pub probe: String,
    pub direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPlace {
    probe: String,
    interface: String,
    direction: &'static str,
    hook: String,
}

/// Adds the costs that trials before the attachment have found, and the costs that were measured
/// since. A program that was not run has no time.
pub fn register<'a>(
    costs: impl Iterator<Item = (&'a String, &'a CostStatus)>,
    registry: &mut Registry,
) {
    let [instructions, verified, stack] =
        [(); 3].map(|()| Family::<OfDirection, Amount<u64>>::default());
    let time = Family::<OfDirection, Amount<f64>>::default();
    let maps = Family::<OfProbe, Amount<u64>>::default();
    let live = Family::<OfPlace, Amount<f64>>::default();
    let packets = Family::<OfPlace, Amount<u64>>::default();
    for (name, cost) in costs {
        maps.get_or_create(&OfProbe {
            probe: name.clone(),
        })
        .set(cost.tried.map_bytes);
        for (direction, cost) in &cost.tried.directions {
            let label = OfDirection {
                probe: name.clone(),
                direction: direction.name(),
            };
            if let Some(run) = &cost.run {
                time.get_or_create(&label)
                    .set(seconds(run.ns_per_packet as f64));
            }
            instructions.get_or_create(&label).set(cost.instructions);
            verified.get_or_create(&label).set(cost.verified);
            stack.get_or_create(&label).set(cost.stack_bytes);
        }
        for at in &cost.live {
            let (interface, hook) = (at.interface.clone(), at.hook.to_string());
            let label = OfPlace {
                probe: name.clone(),
                interface,
                direction: at.direction.name(),
                hook,
            };
            packets.get_or_create(&label).set(at.packets);
            live.get_or_create(&label).set(seconds(at.ns_per_packet));
        }
    }
    let help = "Time of the program for the slowest sample packet in a trial";
    registry.register("twinprobe_probe_seconds_per_packet", help, time);
    let help = "Instructions of the program";
    registry.register("twinprobe_probe_instructions", help, instructions);
    let help = "Instructions that the verifier has followed";
    registry.register("twinprobe_probe_verified", help, verified);
    let help = "Stack of the deepest chain of calls";
    registry.register_with_unit("twinprobe_probe_stack", help, Unit::Bytes, stack);
    let help = "Memory of all maps once they are full";
    registry.register_with_unit("twinprobe_probe_map", help, Unit::Bytes, maps);
    let help = "Measured time per packet while the probe runs (--measure-cost)";
    registry.register("twinprobe_probe_live_seconds_per_packet", help, live);
    let help = "Packets in the measurement of the time per packet";
    registry.register("twinprobe_probe_live_packets", help, packets);
}

/// Adds the limits for programs' time per packet in the configuration.
pub fn register_budgets<'a>(
    budgets: impl Iterator<Item = (&'a String, &'a BTreeMap<Direction, u64>)>,
    registry: &mut Registry,
) {
    let most = Family::<OfDirection, Amount<f64>>::default();
    for (name, by_direction) in budgets {
        for (direction, nanoseconds) in by_direction {
            let label = OfDirection {
                probe: name.clone(),
                direction: direction.name(),
            };
            most.get_or_create(&label).set(seconds(*nanoseconds as f64));
        }
    }
    let help = "Time that the program may take for a packet (max_ns_per_packet)";
    registry.register("twinprobe_probe_max_seconds_per_packet", help, most);
}

/// Converts nanoseconds to seconds. A division gives the number nearest to the decimal fraction,
/// while a multiplication does not.
fn seconds(nanoseconds: f64) -> f64 {
    nanoseconds / 1e9
}
