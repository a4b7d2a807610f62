//! The numbers of the overview for Prometheus.

use std::sync::atomic::AtomicU64;

use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use twinprobe_api::{FleetCounts, FleetObject, FleetOverview};

const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodesOf {
    kind: String,
    name: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConditionOf {
    kind: String,
    name: String,
    condition: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfObject {
    name: String,
}

/// The families of a fleet's metrics.
#[derive(Debug, Default)]
struct FleetFamilies {
    nodes: Family<NodesOf, Gauge>,
    conditions: Family<ConditionOf, Gauge>,
    costs: Family<OfObject, Gauge<f64, AtomicU64>>,
}

/// Answers with the page of metrics.
pub fn page(overview: &FleetOverview) -> Response {
    ([(header::CONTENT_TYPE, MEDIA_TYPE)], text_of(overview)).into_response()
}

fn text_of(overview: &FleetOverview) -> String {
    let families = FleetFamilies::default();
    overview
        .objects
        .iter()
        .for_each(|object| families.add(object));
    let mut registry = Registry::with_prefix("twinprobe");
    let version = Info::new([("version", overview.version.clone())]);
    registry.register("operator", "The version of the operator", version);
    families.register(registry.sub_registry_with_prefix("fleet"));
    let mut page = String::new();
    // Writing to a String does not fail.
    let _ = text::encode(&mut page, &registry);
    page
}

impl FleetFamilies {
    fn register(self, registry: &mut Registry) {
        let Self {
            nodes,
            conditions,
            costs,
        } = self;
        registry.register("nodes", "Nodes of an object, by their state", nodes);
        let help = "Condition of an object: 1 if it is True, 0 if it is False, -1 if it is Unknown";
        registry.register("condition", help, conditions);
        let help = "Highest time per packet of a probe on any node";
        registry.register_with_unit("worst_packet_time", help, Unit::Seconds, costs);
    }

    fn add(
        &self,
        FleetObject {
            kind,
            name,
            counts,
            firing,
            worst,
            conditions,
            ..
        }: &FleetObject,
    ) {
        let FleetCounts {
            selected,
            updated,
            running,
            failed,
            excluded,
            silent,
        } = *counts;
        let states = [
            ("selected", Some(selected)),
            ("updated", Some(updated)),
            ("running", Some(running)),
            ("failed", Some(failed)),
            ("excluded", Some(excluded)),
            ("silent", Some(silent)),
            ("firing", *firing),
        ];
        for (state, count) in states {
            let Some(count) = count else { continue };
            let labels = NodesOf {
                kind: kind.clone(),
                name: name.clone(),
                state,
            };
            self.nodes
                .get_or_create(&labels)
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        for condition in conditions {
            let labels = ConditionOf {
                kind: kind.clone(),
                name: name.clone(),
                condition: condition.kind.clone(),
            };
            let value = match condition.status.as_str() {
                "True" => 1,
                "False" => 0,
                _ => -1,
            };
            self.conditions.get_or_create(&labels).set(value);
        }
        if let Some(worst) = worst {
            let seconds = worst.ns_per_packet / 1e9;
            self.costs
                .get_or_create(&OfObject { name: name.clone() })
                .set(seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_have_their_nodes_conditions_and_costs() {
        let overview: FleetOverview = serde_json::from_value(json!({
            "version": "0.1.0",
            "objects": [
                { "kind": "MonitoringProbe", "name": "flows", "counts": { "selected": 200, "failed": 1 },
                    "worst": { "nsPerPacket": 131.5, "node": "n7" },
                    "conditions": [{ "type": "Degraded", "status": "True" }, { "type": "Available", "status": "Unknown" }] },
                { "kind": "MonitoringRule", "name": "alarm", "firing": 4 },
            ],
        }))
        .unwrap();
        let page = text_of(&overview);
        for line in [
            "twinprobe_operator_info{version=\"0.1.0\"} 1",
            "twinprobe_fleet_nodes{kind=\"MonitoringProbe\",name=\"flows\",state=\"selected\"} 200",
            "twinprobe_fleet_nodes{kind=\"MonitoringProbe\",name=\"flows\",state=\"failed\"} 1",
            "twinprobe_fleet_nodes{kind=\"MonitoringRule\",name=\"alarm\",state=\"firing\"} 4",
            "twinprobe_fleet_condition{kind=\"MonitoringProbe\",name=\"flows\",condition=\"Degraded\"} 1",
            "twinprobe_fleet_condition{kind=\"MonitoringProbe\",name=\"flows\",condition=\"Available\"} -1",
            "twinprobe_fleet_worst_packet_time_seconds{name=\"flows\"} 1.315e-7",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
        assert!(
            !page.contains("name=\"flows\",state=\"firing\""),
            "a probe does not fire: {page}"
        );
    }
}
