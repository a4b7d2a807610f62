//! The families about what probes cost.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::{Registry, Unit};
use twinprobe_client::CostStatus;

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

/// Adds what trials have found before probes were attached, and what was measured since. A program that was not run has
/// no time.
pub fn register<'a>(costs: impl Iterator<Item = (&'a String, &'a CostStatus)>, registry: &mut Registry) {
    let [time, instructions, verified, stack] =
        [(); 4].map(|()| Family::<OfDirection, Amount<u64>>::default());
    let maps = Family::<OfProbe, Amount<u64>>::default();
    let live = Family::<OfPlace, Amount<f64>>::default();
    for (name, cost) in costs {
        maps.get_or_create(&OfProbe { probe: name.clone() }).set(cost.tried.map_bytes);
        for (direction, cost) in &cost.tried.directions {
            let label = OfDirection { probe: name.clone(), direction: direction.name() };
            if let Some(run) = &cost.run {
                time.get_or_create(&label).set(run.ns_per_packet);
            }
            instructions.get_or_create(&label).set(cost.instructions);
            verified.get_or_create(&label).set(cost.verified);
            stack.get_or_create(&label).set(cost.stack_bytes);
        }
        for at in &cost.live {
            let (interface, hook) = (at.interface.clone(), at.hook.to_string());
            let label = OfPlace { probe: name.clone(), interface, direction: at.direction.name(), hook };
            live.get_or_create(&label).set(at.ns_per_packet);
        }
    }
    let help = "Nanoseconds that the program took in a trial for the sample packet that took longest";
    registry.register("twinprobe_probe_ns_per_packet", help, time);
    registry.register("twinprobe_probe_instructions", "Instructions of the program", instructions);
    registry.register("twinprobe_probe_verified", "Instructions that the verifier went through", verified);
    let help = "Stack of the deepest chain of calls";
    registry.register_with_unit("twinprobe_probe_stack", help, Unit::Bytes, stack);
    registry.register_with_unit(
        "twinprobe_probe_map",
        "Memory of all maps once they are full",
        Unit::Bytes,
        maps,
    );
    let help = "Nanoseconds per packet that the probe was found to take while it runs (--measure-cost)";
    registry.register("twinprobe_probe_live_ns_per_packet", help, live);
}
