//! The objects of a fleet and their statuses, from the caches of two watches. People write these
//! objects, so there are few.

use kube::ResourceExt as _;
use kube::runtime::reflector::Store;
use twinprobe_api::{FleetObject, FleetOverview};

use crate::objects::probe::MonitoringProbe;
use crate::objects::rule::MonitoringRule;

/// Lists the content of the caches, probes first, by name.
pub fn overview(probes: &Store<MonitoringProbe>, rules: &Store<MonitoringRule>) -> FleetOverview {
    let mut objects: Vec<FleetObject> = probes
        .state()
        .iter()
        .map(|object| of_probe(object))
        .collect();
    objects.extend(rules.state().iter().map(|object| of_rule(object)));
    objects.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
    FleetOverview {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        objects,
    }
}

fn of_probe(object: &MonitoringProbe) -> FleetObject {
    let status = object.status.clone().unwrap_or_default();
    FleetObject {
        kind: "MonitoringProbe".to_owned(),
        name: object.name_any(),
        is_current: status.observed_generation == object.metadata.generation,
        is_leaving: object.metadata.deletion_timestamp.is_some(),
        revision: status.revision,
        step: status.step,
        step_began: status.step_began,
        counts: status.counts,
        firing: None,
        worst: status.worst,
        conditions: status.conditions,
        failures: status.failures,
    }
}

fn of_rule(object: &MonitoringRule) -> FleetObject {
    let status = object.status.clone().unwrap_or_default();
    FleetObject {
        kind: "MonitoringRule".to_owned(),
        name: object.name_any(),
        is_current: status.observed_generation == object.metadata.generation,
        is_leaving: object.metadata.deletion_timestamp.is_some(),
        revision: status.revision,
        counts: status.counts,
        firing: Some(status.firing),
        conditions: status.conditions,
        failures: status.failures,
        ..FleetObject::default()
    }
}
