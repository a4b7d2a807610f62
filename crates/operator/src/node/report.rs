//! The reports of a node at the API server.

use std::time::Duration;

use kube::Resource as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use serde_json::{Value, json};
use twinprobe_api::{NodeReport, NodeState, RevisionKind};

use crate::node::agent::{NodeAgent, SOON};
use crate::node::due::{REST, is_due};
use crate::node::server::ApiServerError;
use crate::objects::nodes::{ProbeReport, ProbeReportSpec};

impl NodeAgent {
    /// Writes a report if one is due. Returns the time until the next look.
    pub async fn report(
        &mut self,
        name: &str,
        mut report: NodeReport,
        windows: u32,
    ) -> anyhow::Result<Option<Duration>> {
        report.kernel.clone_from(&self.kernel);
        let is_settled = report.state != NodeState::Running || report.windows >= windows;
        let last = self.held.get(name).and_then(|held| held.reported.clone());
        if let Some(last) = last
            .as_ref()
            .filter(|last| last.revision == report.revision)
        {
            // Only reports about judged windows contain the number of failed insertions.
            report.failed_inserts = report.failed_inserts.max(last.failed_inserts);
        }
        let held = self.held.get(name);
        let is_rule = held.is_some_and(|held| held.kind() == RevisionKind::Rule);
        let jitter = self.options.longest_jitter();
        let pending = self.pending.entry(name.to_owned()).or_default();
        if !is_due(&report, last.as_ref(), windows, pending) {
            // A rule may fire at any time.
            let rest = if is_rule { REST } else { pending.rest() };
            return Ok(Some(if is_settled { rest } else { SOON }));
        }
        if let Some(wait) = pending.wait_to_report(jitter) {
            return Ok(Some(wait));
        }
        if let Some(held) = self.held.get_mut(name).filter(|held| !held.has_report) {
            // The record is written before the report, so that the agent deletes the report later
            // in any case.
            held.has_report = true;
            self.keep(name);
        }
        self.write(name, &report).await?;
        self.pending.entry(name.to_owned()).or_default().reported();
        if let Some(held) = self.held.get_mut(name) {
            // The node needs the daemon's revision, and the revision that a rollback restores. It
            // forgets all other revisions.
            let previous = held
                .assignment
                .as_ref()
                .and_then(|assignment| assignment.previous.clone());
            held.revisions
                .retain(|name, _| previous.as_ref() == Some(name) || report.revision == *name);
            held.reported = Some(report);
        }
        self.keep(name);
        Ok(Some(if is_settled { REST } else { SOON }))
    }

    /// Creates or replaces the object of a report. The agent's record of the object can be wrong in
    /// both directions.
    async fn write(&self, name: &str, report: &NodeReport) -> Result<(), ApiServerError> {
        if self
            .held
            .get(name)
            .is_none_or(|held| held.reported.is_none())
        {
            match self.create(name, report).await {
                Err(error) if error.is_conflict() => self.replace(name, report).await,
                done => done,
            }
        } else {
            match self.replace(name, report).await {
                Err(error) if error.is_not_found() => self.create(name, report).await,
                done => done,
            }
        }
    }

    async fn create(&self, name: &str, report: &NodeReport) -> Result<(), ApiServerError> {
        let spec = ProbeReportSpec(report.clone());
        let object = serde_json::to_vec(&ProbeReport::new(&self.report_name(name), spec))?;
        let request = Request::new(ProbeReport::url_path(&(), None));
        let _: Value = self
            .server
            .call(request.create(&PostParams::default(), object)?)
            .await?;
        Ok(())
    }

    async fn replace(&self, name: &str, report: &NodeReport) -> Result<(), ApiServerError> {
        // Only this agent writes the object, so the object needs no list of fields with their
        // managers. Without that list the object is half as long, and a write takes the API server
        // 40 % less processor time.
        let change = json!([
            { "op": "add", "path": "/metadata/managedFields", "value": [{}] },
            { "op": "add", "path": "/spec", "value": report },
        ]);
        let patch = Patch::Json::<()>(serde_json::from_value(change)?);
        let request = Request::new(ProbeReport::url_path(&(), None));
        let request = request.patch(&self.report_name(name), &PatchParams::default(), &patch)?;
        let _: Value = self.server.call(request).await?;
        Ok(())
    }

    /// Deletes the node's report.
    pub async fn take_report_back(&mut self, name: &str) -> Result<(), ApiServerError> {
        let has_report = self.held.get(name).is_some_and(|held| held.has_report);
        if !has_report {
            return Ok(());
        }
        let request = Request::new(ProbeReport::url_path(&(), None));
        let request = request.delete(&self.report_name(name), &DeleteParams::default())?;
        match self.server.call::<Value>(request).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
        if let Some(held) = self.held.get_mut(name) {
            (held.reported, held.has_report) = (None, false);
        }
        self.keep(name);
        Ok(())
    }

    fn report_name(&self, probe: &str) -> String {
        format!("{probe}.{}", self.options.node_name)
    }
}
