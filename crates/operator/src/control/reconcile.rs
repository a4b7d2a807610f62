//! One look at one object: what it asks for, what is known of the nodes, and the writes that follow.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::object::HasSpec as _;
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Client, Resource as _, ResourceExt as _};
use serde_json::json;
use twinprobe_api::{AssignmentSpec, FleetStatus, RevisionSpec};
use twinprobe_fleet::{FleetNews, FleetPlan, FleetView, NodeView, decide, digest, invalid};

use crate::control::checked::{mistakes, plan};
use crate::control::world::World;
use crate::objects::nodes::{
    ProbeAssignment, ProbeAssignmentSpec, ProbeReport, ProbeRevision, ProbeRevisionSpec,
};
use crate::objects::probe::MonitoringProbe;

/// The manager of the fields that the operator applies.
pub const MANAGER: &str = "twinprobe-operator";
/// The finalizer, which keeps an object until no node has its probe.
pub const FINALIZER: &str = "twinprobe.dev/nodes";
/// The label of a revision that names its probe.
const PROBE: &str = "twinprobe.dev/probe";
/// The annotation by which people stop a rollout.
pub const PAUSED: &str = "twinprobe.dev/paused";
/// The annotation by which people declare a step good: `REVISION/STEP`.
pub const PROMOTE: &str = "twinprobe.dev/promote";
/// The time that nodes have to remove a probe. One that comes back later does it then.
const REMOVAL: Duration = Duration::from_mins(5);
/// The time between two looks while something else has to come first.
const SHORTLY: Duration = Duration::from_millis(300);

/// What every look needs.
pub struct ReconcileContext {
    pub client: Client,
    pub world: Arc<World>,
    pub recorder: Recorder,
}

/// Looks at an object. It reads the object itself: a copy from a cache may be older than the last decision.
pub async fn reconcile(object: Arc<MonitoringProbe>, context: Arc<ReconcileContext>) -> kube::Result<Action> {
    let name = object.name_any();
    let probes: Api<MonitoringProbe> = context.all();
    let Some(mut object) = probes.get_opt(&name).await? else { return Ok(Action::await_change()) };
    if object.metadata.deletion_timestamp.is_some() {
        return context.remove(&object).await;
    }
    if !object.finalizers().iter().any(|it| it == FINALIZER) {
        let finalizers: Vec<_> = object.finalizers().iter().cloned().chain([FINALIZER.to_owned()]).collect();
        let metadata = json!({ "finalizers": finalizers, "resourceVersion": object.resource_version() });
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        object = probes.patch(&name, &PatchParams::default(), &patch).await?;
    }
    context.roll_out(&object).await
}

impl ReconcileContext {
    fn all<K: kube::Resource<Scope = kube::core::ClusterResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    async fn roll_out(&self, object: &MonitoringProbe) -> kube::Result<Action> {
        let name = object.name_any();
        let generation = object.metadata.generation.unwrap_or_default();
        let before = object.status.clone().unwrap_or_default();
        let plan = match plan(&name, object) {
            Ok(plan) => plan,
            Err(rejection) => {
                let status = invalid(&before, generation, &mistakes(&rejection), Timestamp::now());
                self.write_status(object, &before, &status).await?;
                return Ok(Action::await_change());
            }
        };
        let assignments: Api<ProbeAssignment> = self.all();
        let assigned = assignments.get_opt(&name).await?;
        let annotation = |name: &str| object.annotations().get(name).map(String::as_str);
        let decide = |nodes: &[NodeView<'_>]| {
            decide(&FleetView {
                plan: &plan,
                generation,
                is_paused: object.spec().0.paused || annotation(PAUSED) == Some("true"),
                promoted: annotation(PROMOTE),
                status: &before,
                assignment: assigned.as_ref().map(|it| &it.spec.0),
                nodes,
                now: Timestamp::now(),
            })
        };
        let Some(decision) = self.world.of_probe(&name, decide) else { return Ok(Action::requeue(SHORTLY)) };
        // The status first: the assignment follows from it, and is written again by the next look if this one ends here.
        self.write_status(object, &before, &decision.status).await?;
        self.tell(object, &decision.news).await;
        match &decision.assignment {
            Some(wanted) => {
                self.write_revision(&plan).await?;
                if assigned.as_ref().map(|it| &it.spec.0) != Some(wanted) {
                    self.assign(&name, wanted).await?;
                }
            }
            None if assigned.is_some() => drop(assignments.delete(&name, &DeleteParams::default()).await?),
            None => {}
        }
        self.forget(&name).await?;
        if decision.news.iter().any(|news| news.reason == "Complete") {
            self.prune(&name, &decision.status).await?;
        }
        Ok(decision.again.map_or_else(Action::await_change, Action::requeue))
    }

    /// Writes a status that has changed. It fails if somebody has changed the object meanwhile: then another look follows.
    async fn write_status(
        &self,
        object: &MonitoringProbe,
        before: &FleetStatus,
        status: &FleetStatus,
    ) -> kube::Result<()> {
        if before == status {
            return Ok(());
        }
        let patch = json!({
            "apiVersion": MonitoringProbe::api_version(&()), "kind": MonitoringProbe::kind(&()),
            "metadata": { "name": object.name_any(), "resourceVersion": object.resource_version() },
            "status": status,
        });
        let apply = PatchParams::apply(MANAGER).force();
        let probes: Api<MonitoringProbe> = self.all();
        probes.patch_status(&object.name_any(), &apply, &Patch::Apply(patch)).await.map(drop)
    }

    /// Makes the revision of a plan, unless it is there.
    async fn write_revision(&self, plan: &FleetPlan) -> kube::Result<()> {
        let config = serde_json::to_value(&plan.config).map_err(kube::Error::SerdeError)?;
        let digest = digest(&plan.config);
        let spec = RevisionSpec { probe: plan.name.clone(), digest, config };
        let mut revision = ProbeRevision::new(&plan.revision, ProbeRevisionSpec(spec));
        revision.labels_mut().insert(PROBE.to_owned(), plan.name.clone());
        let revisions: Api<ProbeRevision> = self.all();
        if revisions.get_metadata_opt(&plan.revision).await?.is_some() {
            return Ok(());
        }
        match revisions.create(&PostParams::default(), &revision).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            done => done.map(drop),
        }
    }

    async fn assign(&self, name: &str, wanted: &AssignmentSpec) -> kube::Result<()> {
        let object = ProbeAssignment::new(name, ProbeAssignmentSpec(wanted.clone()));
        let apply = PatchParams::apply(MANAGER).force();
        let assignments: Api<ProbeAssignment> = self.all();
        assignments.patch(name, &apply, &Patch::Apply(object)).await.map(drop)
    }

    /// Says in Events what has happened.
    async fn tell(&self, object: &MonitoringProbe, news: &[FleetNews]) {
        for news in news {
            let event = Event {
                type_: if news.is_warning { EventType::Warning } else { EventType::Normal },
                reason: news.reason.to_owned(),
                note: Some(cut(&news.message)),
                // Events of one action and reason are one Event that counts.
                action: news.about.clone(),
                secondary: None,
            };
            tracing::info!(probe = object.name_any(), reason = news.reason, "{}", news.message);
            if let Err(error) = self.recorder.publish(&event, &object.object_ref(&())).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "an Event can't be written");
            }
        }
    }

    /// Deletes the reports of nodes that are not there any more.
    async fn forget(&self, name: &str) -> kube::Result<()> {
        let reports: Api<ProbeReport> = self.all();
        for node in self.world.gone(name) {
            without(reports.delete(&format!("{name}.{node}"), &DeleteParams::default()).await)?;
        }
        Ok(())
    }

    /// Deletes the revisions of a probe that lead nowhere any more.
    async fn prune(&self, name: &str, status: &FleetStatus) -> kube::Result<()> {
        let revisions: Api<ProbeRevision> = self.all();
        let all = revisions.list_metadata(&ListParams::default().labels(&format!("{PROBE}={name}"))).await?;
        let kept = [&status.revision, &status.stable, &status.failed_revision];
        for revision in all.items.iter().map(|it| it.name_any()) {
            if !kept.iter().any(|kept| kept.as_ref() == Some(&revision)) {
                without(revisions.delete(&revision, &DeleteParams::default()).await)?;
            }
        }
        Ok(())
    }

    /// Takes a probe from all nodes, and then lets its object go.
    async fn remove(&self, object: &MonitoringProbe) -> kube::Result<Action> {
        let name = object.name_any();
        if !object.finalizers().iter().any(|it| it == FINALIZER) {
            return Ok(Action::await_change());
        }
        let assignments: Api<ProbeAssignment> = self.all();
        without(assignments.delete(&name, &DeleteParams::default()).await)?;
        self.forget(&name).await?;
        let having =
            self.world.of_probe(&name, |nodes| nodes.iter().filter(|node| node.report.is_some()).count());
        let since = object.metadata.deletion_timestamp.as_ref().map(|since| since.0);
        let spent = since.map(|since| Timestamp::now().duration_since(since).unsigned_abs());
        let is_late = spent.is_some_and(|spent| spent >= REMOVAL);
        if having != Some(0) && !is_late {
            return Ok(Action::requeue(Duration::from_secs(2)));
        }
        self.prune(&name, &FleetStatus::default()).await?;
        let finalizers: Vec<_> = object.finalizers().iter().filter(|it| *it != FINALIZER).collect();
        let metadata = json!({ "finalizers": finalizers, "resourceVersion": object.resource_version() });
        let probes: Api<MonitoringProbe> = self.all();
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        without(probes.patch(&name, &PatchParams::default(), &patch).await)?;
        tracing::info!(probe = name, "removed from all nodes");
        Ok(Action::await_change())
    }
}

/// Takes a missing object for a deleted one.
fn without<T>(done: kube::Result<T>) -> kube::Result<()> {
    match done {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        done => done.map(drop),
    }
}

/// Events have notes of 1 KB at most.
fn cut(text: &str) -> String {
    text.chars().take(900).collect()
}

/// What follows a look that failed.
#[expect(clippy::needless_pass_by_value, reason = "the controller gives them")]
pub fn again(object: Arc<MonitoringProbe>, error: &kube::Error, _: Arc<ReconcileContext>) -> Action {
    let is_conflict = matches!(error, kube::Error::Api(status) if status.code == 409);
    if is_conflict {
        return Action::requeue(SHORTLY);
    }
    let name = object.name_any();
    tracing::warn!(probe = name, error = error as &dyn std::error::Error, "it is tried again");
    Action::requeue(Duration::from_secs(5))
}
