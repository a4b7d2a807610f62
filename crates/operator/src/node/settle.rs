//! One look at one probe: the assignment, the daemon's state, and the next steps.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Resource as _;
use kube::api::GetParams;
use kube::core::Request;
use twinprobe_api::{
    AssignmentSpec, ConfigDocument, NodeReport, NodeState, ProbeStatus, RevisionKind, RevisionSpec,
};
use twinprobe_client::{ClientError, NodeAnswer, WantedProbe, deployed};
use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_fleet::{
    NodeMachine, Wanted, digest, for_node, is_decided, is_form_of, is_over, refused, wanted,
};

use crate::node::agent::NodeAgent;
use crate::node::due::{REST, STARTING};
use crate::node::server::ApiServerError;
use crate::objects::nodes::ProbeRevision;

/// The reason why a probe for pods does not run where the agent may not follow pods.
const WITHOUT_PODS: &str = "the probe goes to pods, and the agent of this node does not follow pods; set fleet.pods of the chart, \
                            which starts it with --pods";

impl NodeAgent {
    /// Looks at a probe. Returns the time until the next look; `None` if nothing can change without
    /// a message from a watch.
    pub async fn settle(&mut self, name: &str) -> anyhow::Result<Option<Duration>> {
        let Some(held) = self.held.get(name) else {
            return Ok(None);
        };
        let Some(assignment) = held.assignment.clone() else {
            return self.end(name).await;
        };
        let Some(labels) = &self.labels else {
            return Ok(None);
        };
        let revision = match wanted(&assignment, &self.options.node_name, labels) {
            // The daemon removes the probe itself at the end of its lease. The agent does not put
            // it again until somebody renews the lease.
            Wanted::Revision(_) if is_over(&assignment, Timestamp::now()) => return Ok(Some(REST)),
            Wanted::Revision(revision) => Some(revision.to_owned()),
            Wanted::Nothing | Wanted::NotSelected => None,
        };
        let Some(revision) = revision else {
            self.remove(name).await?;
            self.take_report_back(name).await?;
            return Ok(None);
        };
        let report = self.have(name, &assignment, &revision).await?;
        self.report(name, report, assignment.windows).await
    }

    /// Removes everything of a probe whose assignment was deleted.
    async fn end(&mut self, name: &str) -> anyhow::Result<Option<Duration>> {
        self.remove(name).await?;
        self.take_report_back(name).await?;
        self.folder.forget(name)?;
        self.held.remove(name);
        self.pending.remove(name);
        Ok(None)
    }

    /// Makes sure that the daemon has a revision. Returns the report about it.
    async fn have(
        &mut self,
        name: &str,
        assignment: &AssignmentSpec,
        revision: &str,
    ) -> anyhow::Result<NodeReport> {
        let spec = match self.fetch(name, revision).await {
            Ok(spec) => spec,
            Err(error) if error.is_passing() => return Err(error.into()),
            Err(error) => return Ok(self.failed(name, revision, "fetch", with_causes(&error))),
        };
        let pending = self.pending.entry(name.to_owned()).or_default();
        if pending.revision != revision {
            pending.begin(revision);
        }
        match &pending.refused {
            Some((report, again)) if report.revision == revision && Instant::now() < *again => {
                Ok(report.clone())
            }
            _ if spec.kind == RevisionKind::Rule => {
                self.have_rule(name, revision, spec.config).await
            }
            _ => match self.form(&spec).await {
                Err(error) => self.unanswered(name, revision, error),
                Ok(Ok(config)) if config.pods.is_some() && !self.options.pods => {
                    Ok(self.failed(name, revision, "pods", WITHOUT_PODS.to_owned()))
                }
                Ok(Ok(config)) => self.compare(name, assignment, revision, &config).await,
                Ok(Err(error)) => {
                    let reason = format!("this node can't read the configuration: {error}");
                    Ok(self.failed(name, revision, "fetch", reason))
                }
            },
        }
    }

    /// Returns the configuration of a revision as this node puts it, with objects for the node's
    /// kernel if the revision has some.
    async fn form(
        &mut self,
        spec: &RevisionSpec,
    ) -> Result<serde_json::Result<ConfigDocument>, ClientError> {
        let objects = spec.compiled.iter().flat_map(|compiled| &compiled.objects);
        let frags = match self.frags {
            Some(frags) => frags,
            None if objects.clone().any(|objects| objects.frags.is_some()) => {
                let capabilities = self.daemon.capabilities().await?.read()?;
                let frags = capabilities["kernel"]["xdp_frags"] == true;
                *self.frags.insert(frags)
            }
            None => false,
        };
        Ok(for_node(
            spec,
            NodeMachine {
                architecture: std::env::consts::ARCH,
                frags,
            },
        ))
    }

    /// Reports that the daemon does not answer, unless it may still be starting.
    fn unanswered(
        &self,
        name: &str,
        revision: &str,
        error: ClientError,
    ) -> anyhow::Result<NodeReport> {
        let pending = self.pending.get(name);
        if pending.is_some_and(|pending| pending.since.elapsed() < STARTING) {
            return Err(error.into());
        }
        Ok(self.failed(name, revision, "daemon", with_causes(&error)))
    }

    /// Reads the revision that the daemon has, and sends the wanted revision if the two differ.
    async fn compare(
        &mut self,
        name: &str,
        assignment: &AssignmentSpec,
        revision: &str,
        config: &ConfigDocument,
    ) -> anyhow::Result<NodeReport> {
        let probe = WantedProbe {
            name,
            revision,
            config,
            windows: assignment.windows,
            reads_inserts: true,
        };
        let node = self.options.node_name.clone();
        let pending = self.pending.entry(name.to_owned()).or_default();
        let is_renewed = assignment.renewed.is_none()
            || pending
                .put
                .as_ref()
                .is_some_and(|(_, renewed)| *renewed == assignment.renewed);
        match deployed(&self.daemon, &node, probe, &mut pending.known).await {
            Err(error) => return self.unanswered(name, revision, error),
            Ok(NodeAnswer::Wanted(report)) if is_renewed => return Ok(*report),
            Ok(NodeAnswer::Other(_)) if self.is_changed(name, Some(revision)).await? => {
                // A rule of this node has changed the probe, and changes it back later.
                return Ok(self
                    .held
                    .get(name)
                    .and_then(|held| held.reported.clone())
                    .unwrap_or_default());
            }
            Ok(NodeAnswer::Other(status))
                if !self.is_own(name, &status) && !self.is_changed(name, None).await? =>
            {
                let by = status.pushed_by.as_deref().unwrap_or("somebody else");
                let what = "delete it, or give the object another name";
                let reason = format!("a probe of this name is there already, from {by}; {what}");
                return Ok(self.failed(name, revision, "conflict", reason));
            }
            Ok(_) => {
                if let Some(refusal) = self.put(name, assignment, revision, config).await? {
                    return Ok(refusal);
                }
            }
        }
        let pending = self.pending.entry(name.to_owned()).or_default();
        match deployed(&self.daemon, &node, probe, &mut pending.known).await? {
            NodeAnswer::Wanted(report) => Ok(*report),
            NodeAnswer::Absent | NodeAnswer::Other(_) => {
                let reason = "somebody else has replaced or deleted it just now";
                Ok(self.failed(name, revision, "replaced", reason.to_owned()))
            }
        }
    }

    pub fn failed(&self, name: &str, revision: &str, stage: &str, reason: String) -> NodeReport {
        NodeReport {
            probe: name.to_owned(),
            node: self.options.node_name.clone(),
            revision: revision.to_owned(),
            state: NodeState::Failed,
            stage: Some(stage.to_owned()),
            reason: Some(reason),
            ..NodeReport::default()
        }
    }

    /// Puts a revision into the daemon. Returns a report if the daemon refuses the revision.
    async fn put(
        &mut self,
        name: &str,
        assignment: &AssignmentSpec,
        revision: &str,
        config: &ConfigDocument,
    ) -> Result<Option<NodeReport>, ClientError> {
        let message = format!("fleet: revision {revision}");
        let done = self.daemon.put(name, config, Some(&message)).await;
        let pending = self.pending.entry(name.to_owned()).or_default();
        match done {
            Ok(_) => {
                pending.begin(revision);
                pending.put = Some((revision.to_owned(), assignment.renewed.clone()));
                tracing::info!(probe = name, revision, "the daemon has the revision");
                self.try_rules_again();
                Ok(None)
            }
            Err(ClientError::Refused(problem)) if is_decided(&problem) => {
                let report = refused(name, &self.options.node_name, revision, &problem);
                tracing::warn!(
                    probe = name,
                    revision,
                    reason = report.reason,
                    "the daemon refuses the revision"
                );
                pending.refuse(report.clone());
                Ok(Some(report))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns a revision, which the node fetches once.
    async fn fetch(&mut self, name: &str, revision: &str) -> Result<RevisionSpec, ApiServerError> {
        let known = self
            .held
            .get(name)
            .and_then(|held| held.revisions.get(revision).cloned());
        if let Some(known) = known {
            return Ok(known);
        }
        let object = match self.read(revision, &GetParams::any()).await {
            // The server's cache may be behind the assignment.
            Err(error) if error.is_not_found() => self.read(revision, &GetParams::default()).await,
            done => done,
        }?;
        if let Some(held) = self.held.get_mut(name) {
            held.revisions
                .insert(revision.to_owned(), object.spec.0.clone());
        }
        // The agent writes the record before the daemon gets the revision, so that the node
        // recognizes the probe as its own.
        self.keep(name);
        Ok(object.spec.0)
    }

    /// Reads a revision: with [`GetParams::any`] from the API server's cache, where it is ready to
    /// be sent, or else from etcd. A revision never changes.
    async fn read(
        &self,
        revision: &str,
        from: &GetParams,
    ) -> Result<ProbeRevision, ApiServerError> {
        self.server
            .call(Request::new(ProbeRevision::url_path(&(), None)).get(revision, from)?)
            .await
    }

    /// Tells whether the daemon has a probe from this agent.
    fn is_own(&self, name: &str, status: &ProbeStatus) -> bool {
        let Some(found) = status.config.as_ref().map(digest) else {
            return false;
        };
        let mut revisions = self
            .held
            .get(name)
            .into_iter()
            .flat_map(|held| held.revisions.values());
        revisions.any(|revision| is_form_of(revision, &found))
    }

    /// Removes the probe from the daemon, if it is the agent's own.
    async fn remove(&mut self, name: &str) -> Result<(), ClientError> {
        if self
            .held
            .get(name)
            .is_some_and(|held| held.kind() == RevisionKind::Rule)
        {
            return self.remove_rule(name).await;
        }
        let status = match self
            .daemon
            .status(name)
            .await
            .and_then(|answer| answer.read())
        {
            Ok(status) => status,
            Err(ClientError::Refused(problem)) if problem.status == 404 => return Ok(()),
            Err(error) => return Err(error),
        };
        if !self.is_own(name, &status) && !self.is_changed(name, None).await? {
            return Ok(());
        }
        self.daemon
            .delete(name, Some("fleet: the probe is not for this node any more"))
            .await?;
        if let Some(pending) = self.pending.get_mut(name) {
            pending.put = None;
        }
        tracing::info!(probe = name, "the probe is removed");
        Ok(())
    }
}
