//! The outcome of a rollout, for people and programs.

use jiff::Timestamp;
use serde::Serialize;
use twinprobe_api::{FleetFailure, FleetStatus, NodeReport};
use twinprobe_fleet::{NodeView, RolloutStep, Standing, conditions, tally};

use crate::commands::fleet::survey::Survey;
use crate::error::CommandError;
use crate::output::screen::Screen;
use crate::output::table::TextTable;
use crate::output::units;

/// The end of a rollout without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    Complete,
    Paused,
}

/// The status of a rollout, as the object in Kubernetes has it, and the nodes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetOutcome {
    probe: String,
    status: FleetStatus,
    nodes: Vec<FleetNode>,
    #[serde(skip)]
    failure: Option<String>,
}

/// A node in an outcome.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetNode {
    pub node: String,
    /// `running`, `refused`, `failed`, `excluded`, `not updated` or `silent`.
    pub state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<NodeReport>,
}

impl FleetNode {
    /// A node by its last report, or by the reason why it gave no answer.
    pub fn new(node: &str, report: Option<&NodeReport>, silent: Option<&String>) -> Self {
        let state = match (report, silent) {
            (_, Some(_)) => "silent",
            (Some(report), _) => report.state.name(),
            (None, None) => "not updated",
        };
        let reason = silent.or_else(|| report.and_then(|report| report.reason.as_ref()));
        Self {
            node: node.to_owned(),
            state,
            reason: reason.cloned(),
            report: report.cloned(),
        }
    }
}

impl FleetOutcome {
    /// Returns the present state, without a rollout.
    pub fn found(survey: &Survey<'_>) -> Self {
        let is_complete = survey
            .nodes
            .iter()
            .all(|node| survey.reports.contains_key(&node.name));
        match is_complete {
            true => Self::reached(survey, Reached::Complete),
            false => Self::new(
                survey,
                Standing::Step("not on every node"),
                Vec::new(),
                "partial",
            ),
        }
    }

    pub fn reached(survey: &Survey<'_>, reached: Reached) -> Self {
        match reached {
            Reached::Complete => Self::new(survey, Standing::Complete, Vec::new(), "complete"),
            Reached::Paused => Self::new(survey, Standing::Paused("start"), Vec::new(), "paused"),
        }
    }

    /// The outcome of a rollout that failed. `taken_back` has the nodes where the rollback failed;
    /// `None` if no node needed a rollback.
    pub fn failed(
        survey: &Survey<'_>,
        step: &RolloutStep,
        failures: Vec<FleetFailure>,
        taken_back: Option<&[(String, String)]>,
    ) -> Self {
        let first = failures.first();
        let first =
            first.map(|failed| format!("{}: {}: {}", failed.node, failed.stage, failed.reason));
        let reason = format!(
            "step {} failed at {} nodes, {}",
            step.name,
            failures.len(),
            first.unwrap_or_default()
        );
        let (standing, name, then) = match taken_back {
            None => (
                Standing::Stopped(&reason),
                "stopped",
                "nodes keep their configurations".to_owned(),
            ),
            Some([]) => (
                Standing::RolledBack(&reason),
                "rolled back",
                "every node has its earlier revision".to_owned(),
            ),
            Some(left) => {
                let left: Vec<_> = left
                    .iter()
                    .map(|(node, reason)| format!("{node} ({reason})"))
                    .collect();
                (
                    Standing::RolledBack(&reason),
                    "rolled back",
                    format!("not taken back: {}", left.join(", ")),
                )
            }
        };
        let mut outcome = Self::new(survey, standing, failures, name);
        outcome.failure = Some(format!(
            "{} is {name}: {reason}; {then}",
            survey.plan.revision
        ));
        outcome
    }

    fn new(
        survey: &Survey<'_>,
        standing: Standing<'_>,
        failures: Vec<FleetFailure>,
        step: &str,
    ) -> Self {
        let views = survey.views();
        let members: Vec<NodeView<'_>> = views
            .iter()
            .filter(|node| survey.silent.contains_key(node.name))
            .copied()
            .collect();
        let (counts, worst, found) = tally(&survey.plan.rollout, &views, &members);
        let failures = if failures.is_empty() {
            found
        } else {
            failures.into_iter().take(10).collect()
        };
        let status = FleetStatus {
            revision: Some(survey.plan.revision.clone()),
            step: Some(step.to_owned()),
            counts,
            worst,
            conditions: conditions(standing, counts, &[], Timestamp::now()),
            failures,
            ..FleetStatus::default()
        };
        let nodes = survey.nodes.iter().map(|node| {
            FleetNode::new(
                &node.name,
                survey.reports.get(&node.name),
                survey.silent.get(&node.name),
            )
        });
        Self {
            probe: survey.plan.name.clone(),
            status,
            nodes: nodes.collect(),
            failure: None,
        }
    }

    /// Returns the error of a rollout that failed.
    pub fn result(&self) -> Result<(), CommandError> {
        self.failure.as_ref().map_or(Ok(()), |failure| {
            Err(CommandError::Rollout(failure.clone()))
        })
    }

    pub fn table(&self, screen: Screen) -> String {
        let mut table = TextTable::default();
        for node in &self.nodes {
            let mut row = table.row();
            row.text("NODE", &node.node);
            row.text("STATE", node.state);
            if let Some(report) = &node.report {
                row.number("WINDOWS", &report.windows.to_string());
                if let Some(cost) = report.ns_per_packet {
                    row.amount("COST", cost, units::nanoseconds(cost));
                }
                row.text("AT", report.at.as_deref().unwrap_or("trial"));
            }
            if let Some(reason) = &node.reason {
                row.text("REASON", reason);
            }
        }
        let counts = self.status.counts;
        let revision = self.status.revision.as_deref().unwrap_or_default();
        let step = self.status.step.as_deref().unwrap_or_default();
        format!(
            "{}{revision}: {step}, running on {} of {} nodes\n",
            table.render(screen),
            counts.running,
            counts.selected
        )
    }
}
