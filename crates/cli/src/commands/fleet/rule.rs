//! A rule at the daemons of a fleet. A rule alone changes no packet path, so all daemons get it at
//! once.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use serde::Serialize;
use twinprobe_api::{FleetRuleStatus, NodeReport};
use twinprobe_client::ClientError;
use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_fleet::{
    FleetRuleView, NodeView, decide_rule, is_decided, refused, rule_key, rule_report, rule_revision,
};

use crate::commands::fleet::document::FleetRuleFile;
use crate::commands::fleet::outcome::FleetNode;
use crate::commands::fleet::survey::{AT_ONCE, selected};
use crate::error::CommandError;
use crate::fleet::fleet::Node;
use crate::fleet::session::Session;
use crate::output::screen::Screen;
use crate::output::table::TextTable;

/// The status of a rule, as the object in Kubernetes has it, and the nodes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleOutcome {
    rule: String,
    status: FleetRuleStatus,
    nodes: Vec<FleetNode>,
}

/// The rule, and the name of its revision.
struct RuleRollout<'a> {
    file: &'a FleetRuleFile,
    revision: String,
    /// The name of the rule in reports.
    key: String,
}

/// Puts a rule into the daemons that do not have it. With `puts` false it only asks them.
pub async fn spread_rule(
    session: &Session,
    file: &FleetRuleFile,
    message: Option<&str>,
    puts: bool,
) -> Result<RuleOutcome, CommandError> {
    let nodes = selected(session, &file.spec.node_selector)?;
    let rollout = RuleRollout {
        file,
        revision: rule_revision(&file.name, &file.spec.rule),
        key: rule_key(&file.name),
    };
    let asked = stream::iter(&nodes).map(|node| {
        let rollout = &rollout;
        async move {
            let answer = match rollout.ask(node).await {
                Ok(None) if puts => rollout.put(node, message).await.map(Some),
                answer => answer,
            };
            (node.name.clone(), answer)
        }
    });
    let answers: Vec<_> = asked.buffer_unordered(AT_ONCE).collect().await;
    let (mut reports, mut silent) = (BTreeMap::new(), BTreeMap::new());
    for (node, answer) in answers {
        match answer {
            Ok(report) => drop(report.map(|report| reports.insert(node, report))),
            Err(error) => drop(silent.insert(node, with_causes(&error))),
        }
    }
    let status = status(file, &nodes, &reports);
    let nodes = nodes
        .iter()
        .map(|node| FleetNode::new(&node.name, reports.get(&node.name), silent.get(&node.name)));
    Ok(RuleOutcome {
        rule: file.name.clone(),
        status,
        nodes: nodes.collect(),
    })
}

/// Returns the status of the rule that follows from the reports of the selected nodes.
fn status(
    file: &FleetRuleFile,
    nodes: &[&Node],
    reports: &BTreeMap<String, NodeReport>,
) -> FleetRuleStatus {
    let views: Vec<NodeView<'_>> = nodes
        .iter()
        .map(|node| NodeView {
            name: &node.name,
            labels: &node.labels,
            report: reports.get(&node.name),
        })
        .collect();
    let decision = decide_rule(&FleetRuleView {
        name: &file.name,
        rule: &file.spec.rule,
        node_selector: &file.spec.node_selector,
        generation: 0,
        status: &FleetRuleStatus::default(),
        assignment: None,
        nodes: &views,
        now: Timestamp::now(),
    });
    FleetRuleStatus {
        observed_generation: None,
        ..decision.status
    }
}

impl RuleRollout<'_> {
    /// Returns the report of a daemon that has the rule; `None` if it has none of this name, or
    /// another document.
    async fn ask(&self, node: &Node) -> Result<Option<NodeReport>, ClientError> {
        let status = match node
            .client
            .rule(&self.file.name)
            .await
            .and_then(|answer| answer.read())
        {
            Ok(status) => status,
            Err(ClientError::Refused(problem)) if problem.status == 404 => return Ok(None),
            Err(error) => return Err(error),
        };
        let is_wanted = status.rule == self.file.spec.rule;
        Ok(is_wanted.then(|| rule_report(&self.key, &node.name, &self.revision, &status)))
    }

    async fn put(&self, node: &Node, message: Option<&str>) -> Result<NodeReport, ClientError> {
        let Self {
            file,
            revision,
            key,
        } = self;
        let reason = format!("fleet: revision {revision}");
        let message =
            message.map_or_else(|| reason.clone(), |message| format!("{message} ({reason})"));
        let answer = node
            .client
            .put_rule(&file.name, &file.spec.rule, Some(&message))
            .await;
        match answer.and_then(|answer| answer.read()) {
            Ok(status) => Ok(rule_report(key, &node.name, revision, &status)),
            Err(ClientError::Refused(problem)) if is_decided(&problem) => {
                Ok(refused(key, &node.name, revision, &problem))
            }
            Err(error) => Err(error),
        }
    }
}

impl RuleOutcome {
    /// Fails if a daemon does not run the rule.
    pub fn result(&self) -> Result<(), CommandError> {
        let is_good = |node: &&FleetNode| node.state == "running";
        let mut missing = self.nodes.iter().filter(|node| !is_good(node));
        let Some(first) = missing.next() else {
            return Ok(());
        };
        let stage = first
            .report
            .as_ref()
            .and_then(|report| report.stage.as_deref())
            .unwrap_or(first.state);
        Err(CommandError::Rollout(format!(
            "rule {} does not run on {} of {} nodes, {}: {stage}: {}; the same command tries again where it is missing",
            self.rule,
            missing.count() + 1,
            self.nodes.len(),
            first.node,
            first.reason.as_deref().unwrap_or("no reason was given"),
        )))
    }

    pub fn table(&self, screen: Screen) -> String {
        let mut table = TextTable::default();
        for node in &self.nodes {
            let mut row = table.row();
            row.text("NODE", &node.node);
            let is_firing = node.report.as_ref().is_some_and(|report| report.firing);
            row.text("STATE", if is_firing { "firing" } else { node.state });
            if let Some(reason) = &node.reason {
                row.text("REASON", reason);
            }
        }
        let FleetRuleStatus {
            revision,
            counts,
            firing,
            ..
        } = &self.status;
        format!(
            "{}{}: running on {} of {} nodes, firing on {firing}\n",
            table.render(screen),
            revision.as_deref().unwrap_or_default(),
            counts.running,
            counts.selected
        )
    }
}
