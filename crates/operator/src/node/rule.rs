//! One look at one rule: the daemon's state, and the next steps.

use std::time::Instant;

use serde_json::Value;
use twinprobe_api::{NodeReport, NodeState, RevisionKind, RuleDocument, RuleStatus};
use twinprobe_client::ClientError;
use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_fleet::{is_decided, refused, rule_of, rule_report};

use crate::node::agent::NodeAgent;
use crate::node::due::{Pending, STARTING};

impl NodeAgent {
    /// Makes sure that the daemon has a rule. Returns the report about it.
    pub async fn have_rule(
        &mut self,
        assignment: &str,
        revision: &str,
        document: Value,
    ) -> anyhow::Result<NodeReport> {
        let failed = |stage: &str, reason: String| self.failed(assignment, revision, stage, reason);
        let wanted: RuleDocument = match serde_json::from_value(document) {
            Ok(wanted) => wanted,
            Err(error) => {
                return Ok(failed(
                    "fetch",
                    format!("this node can't read the rule: {error}"),
                ));
            }
        };
        let name = rule_of(assignment).unwrap_or(assignment);
        let is_starting = self
            .pending
            .get(assignment)
            .is_some_and(|pending| pending.since.elapsed() < STARTING);
        let found = match self.rule_status(name).await {
            Ok(found) => found,
            Err(error) if is_starting => return Err(error.into()),
            Err(error) => return Ok(failed("daemon", with_causes(&error))),
        };
        match found {
            Some(status) if status.rule == wanted => Ok(rule_report(
                assignment,
                &self.options.node_name,
                revision,
                &status,
            )),
            Some(status) if !self.is_own_rule(assignment, &status) => {
                let what = "delete it, or give the object another name";
                let reason = format!(
                    "a rule of this name is there already, from {}; {what}",
                    status.pushed_by
                );
                Ok(failed("conflict", reason))
            }
            _ => self.put_rule(assignment, revision, &wanted).await,
        }
    }

    async fn put_rule(
        &mut self,
        assignment: &str,
        revision: &str,
        rule: &RuleDocument,
    ) -> anyhow::Result<NodeReport> {
        let name = rule_of(assignment).unwrap_or(assignment);
        let message = format!("fleet: revision {revision}");
        let node = self.options.node_name.clone();
        // The API server has checked the configurations within the rule, but neither templates nor
        // changed probes.
        let client = if rule.may_enforce() {
            self.daemon.clone()
        } else {
            self.daemon.at_most("operator")
        };
        let done = match client.put_rule(name, rule, Some(&message)).await {
            Ok(answer) => answer.read(),
            Err(error) => Err(error),
        };
        match done {
            Ok(status) => {
                self.pending
                    .entry(assignment.to_owned())
                    .or_default()
                    .begin(revision);
                tracing::info!(rule = name, revision, "the daemon has the revision");
                Ok(rule_report(assignment, &node, revision, &status))
            }
            Err(ClientError::Refused(problem)) if is_decided(&problem) => {
                let report = refused(assignment, &node, revision, &problem);
                tracing::warn!(
                    rule = name,
                    revision,
                    reason = report.reason,
                    "the daemon refuses the revision"
                );
                self.pending
                    .entry(assignment.to_owned())
                    .or_default()
                    .refuse(report.clone());
                Ok(report)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a rule from the daemon, if it is the agent's own. The rule's actions end with it.
    pub async fn remove_rule(&mut self, assignment: &str) -> Result<(), ClientError> {
        let name = rule_of(assignment).unwrap_or(assignment);
        let Some(status) = self.rule_status(name).await? else {
            return Ok(());
        };
        if self.is_own_rule(assignment, &status) {
            self.daemon
                .delete_rule(name, Some("fleet: the rule is not for this node any more"))
                .await?;
            tracing::info!(rule = name, "the rule is removed");
        }
        Ok(())
    }

    /// Tries again to put the rules that the daemon has refused: the probe that a rule watches may
    /// exist now.
    pub fn try_rules_again(&mut self) {
        let rules = self
            .held
            .iter()
            .filter(|(_, held)| held.kind() == RevisionKind::Rule);
        let names: Vec<String> = rules.map(|(name, _)| name.clone()).collect();
        for name in names {
            if let Some(Pending {
                refused: refused @ Some(_),
                ..
            }) = self.pending.get_mut(&name)
            {
                *refused = None;
                self.look_at(&name, Instant::now());
            }
        }
    }

    /// Tells whether a rule of this node has changed a probe that the agent has put and reported.
    /// With `revision`, only a probe in this revision counts.
    pub async fn is_changed(
        &self,
        name: &str,
        revision: Option<&str>,
    ) -> Result<bool, ClientError> {
        let reported = self.held.get(name).and_then(|held| held.reported.as_ref());
        let is_own = reported.is_some_and(|last| {
            last.state == NodeState::Running
                && revision.is_none_or(|revision| last.revision == revision)
        });
        if !is_own {
            return Ok(false);
        }
        let rules = self.daemon.rules().await?.read()?.rules;
        Ok(rules
            .iter()
            .any(|rule| rule.changed.iter().any(|changed| changed == name)))
    }

    async fn rule_status(&self, name: &str) -> Result<Option<RuleStatus>, ClientError> {
        match self
            .daemon
            .rule(name)
            .await
            .and_then(|answer| answer.read())
        {
            Ok(status) => Ok(Some(status)),
            Err(ClientError::Refused(problem)) if problem.status == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Tells whether the daemon has a rule from this agent.
    fn is_own_rule(&self, assignment: &str, status: &RuleStatus) -> bool {
        let found = serde_json::to_value(&status.rule).ok();
        let mut revisions = self
            .held
            .get(assignment)
            .into_iter()
            .flat_map(|held| held.revisions.values());
        revisions.any(|revision| Some(&revision.config) == found.as_ref())
    }
}
