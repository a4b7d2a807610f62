//! The operator's knowledge about nodes: their labels, and their reports about this operator's objects.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use twinprobe_api::NodeReport;
use twinprobe_fleet::NodeView;

use crate::objects::nodes::ProbeReport;

type NodeLabels = BTreeMap<String, String>;
/// Reports by probe, then by node.
type Reports = BTreeMap<String, BTreeMap<String, NodeReport>>;

/// The nodes and their reports, from the watches.
#[derive(Debug, Default)]
pub struct World {
    known: Mutex<KnownNodes>,
}

#[derive(Debug, Default)]
struct KnownNodes {
    nodes: Option<BTreeMap<String, NodeLabels>>,
    reports: Option<Reports>,
    /// The part of a list that was read so far.
    new_nodes: BTreeMap<String, NodeLabels>,
    new_reports: Reports,
}

impl World {
    /// Takes a change of the nodes. Returns whether a rollout may depend on the change.
    pub fn take_node(&self, event: Event<PartialObjectMeta<Node>>) -> bool {
        let known = &mut *self.known.lock();
        match event {
            Event::Init => {
                known.new_nodes.clear();
                false
            }
            Event::InitApply(node) => {
                known.new_nodes.insert(node.name_any(), node.metadata.labels.unwrap_or_default());
                false
            }
            Event::InitDone => {
                known.nodes = Some(std::mem::take(&mut known.new_nodes));
                true
            }
            Event::Apply(node) => {
                let (name, labels) = (node.name_any(), node.metadata.labels.unwrap_or_default());
                let nodes = known.nodes.get_or_insert_default();
                // Each node changes its object every few minutes to show that it is alive.
                nodes.insert(name, labels.clone()).as_ref() != Some(&labels)
            }
            Event::Delete(node) => known.nodes.get_or_insert_default().remove(&node.name_any()).is_some(),
        }
    }

    /// Takes a change of the reports. Returns the name of the probe that the change is about; `None` after a
    /// list, which is about all probes.
    pub fn take_report(&self, event: Event<ProbeReport>) -> Option<Option<String>> {
        let known = &mut *self.known.lock();
        let insert = |reports: &mut Reports, report: NodeReport| {
            reports.entry(report.probe.clone()).or_default().insert(report.node.clone(), report);
        };
        match event {
            Event::Init => {
                known.new_reports.clear();
                None
            }
            Event::InitApply(report) => {
                insert(&mut known.new_reports, report.spec.0);
                None
            }
            Event::InitDone => {
                known.reports = Some(std::mem::take(&mut known.new_reports));
                Some(None)
            }
            Event::Apply(report) => {
                let probe = report.spec.0.probe.clone();
                insert(known.reports.get_or_insert_default(), report.spec.0);
                Some(Some(probe))
            }
            Event::Delete(report) => {
                let report = report.spec.0;
                let reports = known.reports.get_or_insert_default().get_mut(&report.probe);
                reports.and_then(|reports| reports.remove(&report.node));
                Some(Some(report.probe))
            }
        }
    }

    /// Calls `with` with all nodes and their reports about a probe. Does nothing before nodes and reports
    /// were listed.
    pub fn of_probe<T>(&self, probe: &str, with: impl FnOnce(&[NodeView<'_>]) -> T) -> Option<T> {
        let known = self.known.lock();
        let reports = known.reports.as_ref()?.get(probe);
        let view = |(name, labels)| {
            let name: &String = name;
            NodeView { name, labels, report: reports.and_then(|reports| reports.get(name)) }
        };
        let nodes: Vec<NodeView<'_>> = known.nodes.as_ref()?.iter().map(view).collect();
        Some(with(&nodes))
    }

    /// Returns the nodes that have reported about a probe and are not there any more.
    pub fn gone(&self, probe: &str) -> Vec<String> {
        let known = self.known.lock();
        let (Some(nodes), Some(reports)) = (&known.nodes, &known.reports) else { return Vec::new() };
        let reported = reports.get(probe).into_iter().flat_map(BTreeMap::keys);
        reported.filter(|node| !nodes.contains_key(*node)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, label: &str) -> PartialObjectMeta<Node> {
        let node = serde_json::json!({ "metadata": { "name": name, "labels": { "role": label } } });
        serde_json::from_value(node).unwrap()
    }

    fn report(probe: &str, node: &str) -> ProbeReport {
        let (probe, node) = (probe.to_owned(), node.to_owned());
        let name = format!("{probe}.{node}");
        ProbeReport::new(&name, crate::ProbeReportSpec(NodeReport { probe, node, ..NodeReport::default() }))
    }

    #[test]
    fn nothing_is_decided_before_both_lists_were_read() {
        let world = World::default();
        assert!(!world.take_node(Event::Init) && !world.take_node(Event::InitApply(node("a", "x"))));
        assert!(world.take_node(Event::InitDone));
        assert!(world.of_probe("p", |_| ()).is_none());
        assert_eq!(world.take_report(Event::InitApply(report("p", "b"))), None);
        assert_eq!(world.take_report(Event::InitDone), Some(None));
        let seen =
            world.of_probe("p", |nodes| nodes.iter().map(|it| it.report.is_some()).collect::<Vec<_>>());
        assert_eq!((seen, world.gone("p")), (Some(vec![false]), vec!["b".to_owned()]));
        assert_eq!(world.take_report(Event::Apply(report("p", "a"))), Some(Some("p".to_owned())));
        assert_eq!(world.of_probe("p", |nodes| nodes[0].report.is_some()), Some(true));
    }

    #[test]
    fn a_sign_of_life_changes_nothing() {
        let world = World::default();
        world.take_node(Event::InitDone);
        assert!(world.take_node(Event::Apply(node("a", "x"))));
        assert!(!world.take_node(Event::Apply(node("a", "x"))));
        assert!(
            world.take_node(Event::Apply(node("a", "y"))) && world.take_node(Event::Delete(node("a", "y")))
        );
        assert!(!world.take_node(Event::Delete(node("a", "y"))));
    }
}
