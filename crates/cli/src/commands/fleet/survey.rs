//! The answers of a fleet's daemons about its probe.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, stream};
use twinprobe_api::{NodeReport, NodeState};
use twinprobe_client::{ClientError, KnownDeployment, NodeAnswer, WantedProbe, deployed};
use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_fleet::{FleetPlan, NodeView, is_decided, matches, refused};

use crate::error::CommandError;
use crate::fleet::fleet::Node;
use crate::fleet::session::Session;

/// The number of daemons that get a request at the same time.
pub const AT_ONCE: usize = 64;

/// The selected daemons and their last answers.
pub struct Survey<'a> {
    pub plan: &'a FleetPlan,
    pub nodes: Vec<&'a Node>,
    /// The reports about the plan's revision, by node.
    pub reports: BTreeMap<String, NodeReport>,
    /// The reasons why nodes gave no answer, at the last attempt.
    pub silent: BTreeMap<String, String>,
    /// The nodes that have had the revision since the survey began.
    had: BTreeSet<String>,
    /// The answers that need not be asked for again, by node.
    known: BTreeMap<String, KnownDeployment>,
}

impl<'a> Survey<'a> {
    /// Selects the daemons. Sends no request yet.
    pub fn new(session: &'a Session, plan: &'a FleetPlan) -> Result<Self, CommandError> {
        let nodes = selected(session, &plan.node_selector)?;
        let (reports, silent, had, known) = Default::default();
        Ok(Self {
            plan,
            nodes,
            reports,
            silent,
            had,
            known,
        })
    }

    /// Returns the probe for each node.
    pub fn wanted(&self) -> WantedProbe<'a> {
        let FleetPlan {
            name,
            revision,
            config,
            rollout,
            ..
        } = self.plan;
        let reads_inserts = rollout.budget.failed_inserts.is_some();
        WantedProbe {
            name,
            revision,
            config,
            windows: rollout.windows,
            reads_inserts,
        }
    }

    /// Asks all nodes, except nodes that have refused the revision: a refusal is final.
    pub async fn ask(&mut self) {
        let wanted = self.wanted();
        let has_refused = |node: &&&Node| {
            self.reports
                .get(&node.name)
                .is_some_and(|report| report.stage.is_some())
        };
        let nodes: Vec<&Node> = self
            .nodes
            .iter()
            .filter(|node| !has_refused(node))
            .copied()
            .collect();
        let known = &mut self.known;
        let nodes: Vec<_> = nodes
            .into_iter()
            .map(|node| (node, known.remove(&node.name).unwrap_or_default()))
            .collect();
        let asked = stream::iter(nodes).map(|(node, mut known)| async move {
            let answer = deployed(&node.client, &node.name, wanted, &mut known).await;
            (node, answer, known)
        });
        let answers: Vec<_> = asked.buffer_unordered(AT_ONCE).collect().await;
        for (node, answer, known) in answers {
            self.known.insert(node.name.clone(), known);
            let answer = answer.map(|deployed| match deployed {
                NodeAnswer::Wanted(report) => Some(*report),
                NodeAnswer::Absent | NodeAnswer::Other(_) => None,
            });
            self.take(node, answer);
        }
    }

    /// Puts the probe on those of the named nodes that lack it.
    pub async fn put(&mut self, names: &[String], message: &str) {
        let is_named =
            |node: &&&Node| names.contains(&node.name) && !self.reports.contains_key(&node.name);
        let nodes: Vec<&Node> = self.nodes.iter().filter(is_named).copied().collect();
        let (wanted, config) = (self.wanted(), &self.plan.config);
        let put = stream::iter(nodes).map(|node| async move {
            let done = node.client.put(wanted.name, config, Some(message)).await;
            let found =
                match done {
                    Ok(_) => deployed(
                        &node.client,
                        &node.name,
                        wanted,
                        &mut KnownDeployment::default(),
                    )
                    .await
                    .map(|deployed| match deployed {
                        NodeAnswer::Wanted(report) => Some(*report),
                        NodeAnswer::Absent | NodeAnswer::Other(_) => None,
                    }),
                    Err(ClientError::Refused(problem)) if is_decided(&problem) => Ok(Some(
                        refused(wanted.name, &node.name, wanted.revision, &problem),
                    )),
                    Err(error) => Err(error),
                };
            (node, found)
        });
        let answers: Vec<_> = put.buffer_unordered(AT_ONCE).collect().await;
        for (node, answer) in answers {
            self.take(node, answer);
        }
    }

    fn take(&mut self, node: &Node, answer: Result<Option<NodeReport>, ClientError>) {
        self.silent.remove(&node.name);
        match answer {
            Ok(Some(report)) => {
                if report.stage.is_none() {
                    self.had.insert(node.name.clone());
                }
                self.reports.insert(node.name.clone(), report);
            }
            // Somebody else has replaced the revision. The command sends no more requests to this
            // node: two clients that both put their revision again would never end.
            Ok(None) if self.had.contains(&node.name) => {
                let report = replaced(&self.wanted(), &node.name);
                self.reports.insert(node.name.clone(), report);
            }
            Ok(None) => drop(self.reports.remove(&node.name)),
            // The last report of the node counts, because the node may answer the next time.
            Err(error) => drop(self.silent.insert(node.name.clone(), with_causes(&error))),
        }
    }

    /// The nodes with their known states.
    pub fn views(&self) -> Vec<NodeView<'_>> {
        let view = |node: &&'a Node| NodeView {
            name: &node.name,
            labels: &node.labels,
            report: self.reports.get(&node.name),
        };
        self.nodes.iter().map(view).collect()
    }
}

/// Returns the daemons that have these labels. Fails if no daemon has them.
pub fn selected<'a>(
    session: &'a Session,
    labels: &BTreeMap<String, String>,
) -> Result<Vec<&'a Node>, CommandError> {
    let nodes = session.fleet.nodes().iter();
    let nodes: Vec<&Node> = nodes.filter(|node| matches(labels, &node.labels)).collect();
    if nodes.is_empty() {
        let wanted: Vec<String> = labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        return Err(CommandError::Rollout(format!(
            "none of {} servers has the labels {}; a line of --servers is NAME URL KEY=VALUE",
            session.fleet.nodes().len(),
            wanted.join(" "),
        )));
    }
    Ok(nodes)
}

/// The report of a node on which somebody else has replaced or deleted the revision.
fn replaced(wanted: &WantedProbe<'_>, node: &str) -> NodeReport {
    NodeReport {
        probe: wanted.name.to_owned(),
        node: node.to_owned(),
        revision: wanted.revision.to_owned(),
        state: NodeState::Failed,
        stage: Some("replaced".to_owned()),
        reason: Some(
            "somebody else has replaced or deleted it; `twinprobe history` says who".to_owned(),
        ),
        ..NodeReport::default()
    }
}
