//! The context of looks at objects, and the writes that probes and rules share.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::ClusterResourceScope;
use kube::runtime::controller::Action;
use kube::runtime::events::Recorder;
use kube::{Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use twinprobe_api::{AssignmentSpec, RevisionSpec};

use crate::control::compile::Compilations;
use crate::control::world::World;
use crate::judge::runs::Judges;
use crate::objects::nodes::{
    ProbeAssignment, ProbeAssignmentSpec, ProbeReport, ProbeRevision, ProbeRevisionSpec,
};

/// The manager of the fields that the operator applies.
pub const MANAGER: &str = "twinprobe-operator";
/// The finalizer, which keeps an object until no node has its probe or rule.
pub const FINALIZER: &str = "twinprobe.dev/nodes";
/// The label of a revision that names its assignment.
pub const PROBE: &str = "twinprobe.dev/probe";
/// The time within which nodes must remove a probe. A node that comes back later removes the probe
/// then.
const REMOVAL: Duration = Duration::from_mins(5);
/// The time until the next look while another step must finish first.
pub const SHORTLY: Duration = Duration::from_millis(300);

/// A kind of the cluster that people write.
pub trait Wished:
    Resource<Scope = ClusterResourceScope, DynamicType = ()> + DeserializeOwned + Clone + Debug
{
}

impl<K: Resource<Scope = ClusterResourceScope, DynamicType = ()> + DeserializeOwned + Clone + Debug>
    Wished for K
{
}

/// The context of a look.
pub struct ReconcileContext {
    pub client: Client,
    pub world: Arc<World>,
    pub recorder: Recorder,
    pub compilations: Compilations,
    /// The rules over the fleet, if the operator may reach the daemons.
    pub judges: Option<Arc<Judges>>,
}

impl ReconcileContext {
    pub fn all<K: Resource<Scope = ClusterResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// Reads an object from the API server, and adds a finalizer, so that the object stays until
    /// all nodes have removed its probe or rule. A copy from a cache may be older than the last
    /// decision.
    pub async fn held<K: Wished>(&self, name: &str) -> kube::Result<Option<K>> {
        let objects: Api<K> = self.all();
        let Some(object) = objects.get_opt(name).await? else {
            return Ok(None);
        };
        let is_held = object.finalizers().iter().any(|it| it == FINALIZER);
        if is_held || object.meta().deletion_timestamp.is_some() {
            return Ok(Some(object));
        }
        let finalizers: Vec<_> = object
            .finalizers()
            .iter()
            .cloned()
            .chain([FINALIZER.to_owned()])
            .collect();
        let metadata =
            json!({ "finalizers": finalizers, "resourceVersion": object.resource_version() });
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        objects
            .patch(name, &PatchParams::default(), &patch)
            .await
            .map(Some)
    }

    /// Writes a status. Fails if somebody has changed the object since it was read: then another
    /// look follows.
    pub async fn write_status<K: Wished>(
        &self,
        object: &K,
        status: &impl Serialize,
    ) -> kube::Result<()> {
        let patch = json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()),
            "metadata": { "name": object.name_any(), "resourceVersion": object.resource_version() },
            "status": status,
        });
        let apply = PatchParams::apply(MANAGER).force();
        let objects: Api<K> = self.all();
        objects
            .patch_status(&object.name_any(), &apply, &Patch::Apply(patch))
            .await
            .map(drop)
    }

    /// Makes the revision of a rule's assignment, unless the revision exists.
    pub async fn write_revision(
        &self,
        assignment: &str,
        revision: &str,
        spec: RevisionSpec,
    ) -> kube::Result<()> {
        let mut object = ProbeRevision::new(revision, ProbeRevisionSpec(spec));
        object
            .labels_mut()
            .insert(PROBE.to_owned(), assignment.to_owned());
        let revisions: Api<ProbeRevision> = self.all();
        if revisions.get_metadata_opt(revision).await?.is_some() {
            return Ok(());
        }
        match revisions.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            done => done.map(drop),
        }
    }

    pub async fn assign(&self, name: &str, wanted: &AssignmentSpec) -> kube::Result<()> {
        let object = ProbeAssignment::new(name, ProbeAssignmentSpec(wanted.clone()));
        let apply = PatchParams::apply(MANAGER).force();
        let assignments: Api<ProbeAssignment> = self.all();
        assignments
            .patch(name, &apply, &Patch::Apply(object))
            .await
            .map(drop)
    }

    pub async fn assigned(&self, name: &str) -> kube::Result<Option<AssignmentSpec>> {
        let assignments: Api<ProbeAssignment> = self.all();
        Ok(assignments
            .get_opt(name)
            .await?
            .map(|assignment| assignment.spec.0))
    }

    pub async fn unassign(&self, name: &str) -> kube::Result<()> {
        let assignments: Api<ProbeAssignment> = self.all();
        without(assignments.delete(name, &DeleteParams::default()).await)
    }

    /// Deletes the reports of nodes that are not there any more.
    pub async fn forget(&self, assignment: &str) -> kube::Result<()> {
        let reports: Api<ProbeReport> = self.all();
        for node in self.world.gone(assignment) {
            without(
                reports
                    .delete(&format!("{assignment}.{node}"), &DeleteParams::default())
                    .await,
            )?;
        }
        Ok(())
    }

    /// Deletes all revisions of an assignment except those in `kept`.
    pub async fn prune(&self, assignment: &str, kept: &[&Option<String>]) -> kube::Result<()> {
        let revisions: Api<ProbeRevision> = self.all();
        let labelled = ListParams::default().labels(&format!("{PROBE}={assignment}"));
        for revision in revisions
            .list_metadata(&labelled)
            .await?
            .items
            .iter()
            .map(|it| it.name_any())
        {
            if !kept.iter().any(|kept| kept.as_ref() == Some(&revision)) {
                without(revisions.delete(&revision, &DeleteParams::default()).await)?;
            }
        }
        Ok(())
    }

    /// Removes an object's probe or rule from all nodes, and then lets Kubernetes delete the
    /// object.
    pub async fn remove<K: Wished>(&self, object: &K, assignment: &str) -> kube::Result<Action> {
        if !object.finalizers().iter().any(|it| it == FINALIZER) {
            return Ok(Action::await_change());
        }
        self.unassign(assignment).await?;
        self.forget(assignment).await?;
        let having = self.world.of_probe(assignment, |nodes| {
            nodes.iter().filter(|node| node.report.is_some()).count()
        });
        if having != Some(0) && !is_late(object) {
            return Ok(Action::requeue(Duration::from_secs(2)));
        }
        self.prune(assignment, &[]).await?;
        let finalizers: Vec<_> = object
            .finalizers()
            .iter()
            .filter(|it| *it != FINALIZER)
            .collect();
        let metadata =
            json!({ "finalizers": finalizers, "resourceVersion": object.resource_version() });
        let objects: Api<K> = self.all();
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        without(
            objects
                .patch(&object.name_any(), &PatchParams::default(), &patch)
                .await,
        )?;
        tracing::info!(assignment, "the assignment is removed from all nodes");
        Ok(Action::await_change())
    }
}

/// Tells whether nodes have had enough time to remove the probe or rule of an object that is being
/// deleted.
pub fn is_late<K: Wished>(object: &K) -> bool {
    let since = object
        .meta()
        .deletion_timestamp
        .as_ref()
        .map(|since| since.0);
    let spent = since.map(|since| Timestamp::now().duration_since(since).unsigned_abs());
    spent.is_some_and(|spent| spent >= REMOVAL)
}

/// Treats an error about a missing object as success: the object is deleted.
fn without<T>(done: kube::Result<T>) -> kube::Result<()> {
    match done {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        done => done.map(drop),
    }
}

/// Returns the time of the next look after a look that failed.
#[expect(clippy::needless_pass_by_value, reason = "the controller gives them")]
pub fn again<K: Wished>(object: Arc<K>, error: &kube::Error, _: Arc<ReconcileContext>) -> Action {
    let is_conflict = matches!(error, kube::Error::Api(status) if status.code == 409);
    if is_conflict {
        return Action::requeue(SHORTLY);
    }
    let (kind, name) = (K::kind(&()), object.name_any());
    tracing::warn!(%kind, name, error = error as &dyn std::error::Error, "a change failed and is tried again");
    Action::requeue(Duration::from_secs(5))
}
