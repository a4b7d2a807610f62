//! The operator's knowledge about nodes: their labels, and their reports about this operator's
//! objects.

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

/// The nodes and their reports, from the watches.
#[derive(Debug, Default)]
pub struct World {
    known: Mutex<KnownNodes>,
}

#[derive(Debug, Default)]
struct KnownNodes {
    nodes: BTreeMap<String, Listed<NodeLabels>>,
    node_lists: Lists,
    /// The reports by probe, then by node.
    reports: BTreeMap<String, BTreeMap<String, Listed<NodeReport>>>,
    report_lists: Lists,
}

/// An object, with the number of the last list that began before the object was seen. A later list
/// changes the objects in place: a second copy of all objects would take as much memory again.
#[derive(Debug)]
struct Listed<T> {
    list: u64,
    object: T,
}

/// The lists of the objects of one kind. A watch begins with a list, and begins again after it was
/// cut off.
#[derive(Debug, Default)]
struct Lists {
    begun: u64,
    /// True once a list was read to its end.
    has_ended: bool,
}

impl Lists {
    fn place<T>(&self, object: T) -> Listed<T> {
        Listed {
            list: self.begun,
            object,
        }
    }

    fn has<T>(&self, listed: &Listed<T>) -> bool {
        listed.list == self.begun
    }
}

impl KnownNodes {
    /// Tells whether nodes and reports were listed.
    fn are_listed(&self) -> bool {
        self.node_lists.has_ended && self.report_lists.has_ended
    }
}

impl World {
    /// Takes a change of the nodes. Returns whether a rollout may depend on the change.
    pub fn take_node(&self, event: Event<PartialObjectMeta<Node>>) -> bool {
        let KnownNodes {
            nodes,
            node_lists: lists,
            ..
        } = &mut *self.known.lock();
        match event {
            Event::Init => {
                lists.begun += 1;
                false
            }
            Event::InitDone => {
                nodes.retain(|_, node| lists.has(node));
                lists.has_ended = true;
                true
            }
            Event::InitApply(node) => {
                nodes.insert(
                    node.name_any(),
                    lists.place(node.metadata.labels.unwrap_or_default()),
                );
                false
            }
            Event::Apply(node) => {
                let (name, labels) = (node.name_any(), node.metadata.labels.unwrap_or_default());
                let before = nodes.insert(name, lists.place(labels.clone()));
                // Each node changes its object every few minutes to show that it is alive.
                before.is_none_or(|before| before.object != labels)
            }
            Event::Delete(node) => nodes.remove(&node.name_any()).is_some(),
        }
    }

    /// Takes a change of the reports. Returns the name of the probe that the change is about;
    /// `None` after a list, which is about all probes.
    pub fn take_report(&self, event: Event<ProbeReport>) -> Option<Option<String>> {
        let KnownNodes {
            reports,
            report_lists: lists,
            ..
        } = &mut *self.known.lock();
        let mut insert = |lists: &Lists, report: NodeReport| {
            let of_probe = reports.entry(report.probe.clone()).or_default();
            of_probe.insert(report.node.clone(), lists.place(report));
        };
        match event {
            Event::Init => {
                lists.begun += 1;
                None
            }
            Event::InitDone => {
                reports
                    .values_mut()
                    .for_each(|reports| reports.retain(|_, report| lists.has(report)));
                reports.retain(|_, reports| !reports.is_empty());
                lists.has_ended = true;
                Some(None)
            }
            Event::InitApply(report) => {
                insert(lists, report.spec.0);
                None
            }
            Event::Apply(report) => {
                let probe = report.spec.0.probe.clone();
                insert(lists, report.spec.0);
                Some(Some(probe))
            }
            Event::Delete(report) => {
                let report = report.spec.0;
                let of_probe = reports.get_mut(&report.probe);
                of_probe.and_then(|reports| reports.remove(&report.node));
                Some(Some(report.probe))
            }
        }
    }

    /// Calls `with` with all nodes and their reports about a probe. Does nothing before nodes and
    /// reports were listed.
    pub fn of_probe<T>(&self, probe: &str, with: impl FnOnce(&[NodeView<'_>]) -> T) -> Option<T> {
        let known = self.known.lock();
        if !known.are_listed() {
            return None;
        }
        let reports = known.reports.get(probe);
        let report = |name: &String| Some(&reports?.get(name)?.object);
        let nodes = known.nodes.iter();
        let nodes = nodes.map(|(name, node)| NodeView {
            name,
            labels: &node.object,
            report: report(name),
        });
        Some(with(&nodes.collect::<Vec<_>>()))
    }

    /// Returns the nodes that have reported about a probe and are not there any more.
    pub fn gone(&self, probe: &str) -> Vec<String> {
        let known = self.known.lock();
        if !known.are_listed() {
            return Vec::new();
        }
        let reported = known
            .reports
            .get(probe)
            .into_iter()
            .flat_map(BTreeMap::keys);
        reported
            .filter(|node| !known.nodes.contains_key(*node))
            .cloned()
            .collect()
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
        ProbeReport::new(
            &name,
            crate::ProbeReportSpec(NodeReport {
                probe,
                node,
                ..NodeReport::default()
            }),
        )
    }

    #[test]
    fn nothing_is_decided_before_both_lists_were_read() {
        let world = World::default();
        assert!(
            !world.take_node(Event::Init) && !world.take_node(Event::InitApply(node("a", "x")))
        );
        assert!(world.take_node(Event::InitDone));
        assert!(world.of_probe("p", |_| ()).is_none());
        assert_eq!(world.take_report(Event::InitApply(report("p", "b"))), None);
        assert_eq!(world.take_report(Event::InitDone), Some(None));
        let seen = world.of_probe("p", |nodes| {
            nodes
                .iter()
                .map(|it| it.report.is_some())
                .collect::<Vec<_>>()
        });
        assert_eq!(
            (seen, world.gone("p")),
            (Some(vec![false]), vec!["b".to_owned()])
        );
        assert_eq!(
            world.take_report(Event::Apply(report("p", "a"))),
            Some(Some("p".to_owned()))
        );
        assert_eq!(
            world.of_probe("p", |nodes| nodes[0].report.is_some()),
            Some(true)
        );
    }

    #[test]
    fn a_later_list_forgets_what_it_does_not_have() {
        let world = World::default();
        world.take_node(Event::Init);
        for name in ["a", "b", "c"] {
            world.take_node(Event::InitApply(node(name, "x")));
        }
        world.take_node(Event::InitDone);
        world.take_report(Event::Init);
        for name in ["a", "b"] {
            world.take_report(Event::InitApply(report("p", name)));
        }
        world.take_report(Event::InitDone);
        let seen = || {
            let names = |nodes: &[NodeView<'_>]| {
                nodes
                    .iter()
                    .map(|node| (node.name.to_owned(), node.report.is_some()))
                    .collect::<Vec<_>>()
            };
            world.of_probe("p", names).unwrap()
        };
        let all = [("a", true), ("b", true), ("c", false)]
            .map(|(name, report)| (name.to_owned(), report));
        assert_eq!(seen(), all);
        // The list that follows a cut watch: until its end nothing is forgotten.
        world.take_report(Event::Init);
        world.take_report(Event::InitApply(report("p", "b")));
        assert_eq!(seen(), all);
        world.take_report(Event::InitDone);
        world.take_node(Event::Init);
        for name in ["b", "c"] {
            world.take_node(Event::InitApply(node(name, "x")));
        }
        assert_eq!(seen().len(), 3);
        world.take_node(Event::InitDone);
        assert_eq!(seen(), all[1..]);
        assert!(world.gone("p").is_empty());
    }

    #[test]
    fn a_sign_of_life_changes_nothing() {
        let world = World::default();
        world.take_node(Event::InitDone);
        assert!(world.take_node(Event::Apply(node("a", "x"))));
        assert!(!world.take_node(Event::Apply(node("a", "x"))));
        assert!(
            world.take_node(Event::Apply(node("a", "y")))
                && world.take_node(Event::Delete(node("a", "y")))
        );
        assert!(!world.take_node(Event::Delete(node("a", "y"))));
    }
}
