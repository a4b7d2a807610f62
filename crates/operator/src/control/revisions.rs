//! The revision of a probe: an existing one, or a new one with its objects.

use kube::api::{Api, PostParams};
use kube::{Resource as _, ResourceExt as _};
use twinprobe_api::{CompiledRevision, RevisionSpec};
use twinprobe_ebpf_common::finding::Rejection;
use twinprobe_fleet::{FleetPlan, digest};

use crate::control::compile::{Compilations, Compiled};
use crate::control::writes::{PROBE, ReconcileContext};
use crate::objects::nodes::{ProbeRevision, ProbeRevisionSpec};

/// The annotation that names the compiler of a revision's objects.
const COMPILED_BY: &str = "twinprobe.dev/compiled-by";
/// The annotation that says why nodes compile the sources of a revision.
const ON_NODES: &str = "twinprobe.dev/compiled-on-nodes";
/// The most bytes of a revision. etcd accepts requests of up to 1.5 MiB.
const LARGEST: usize = 1 << 20;

/// A revision that exists or must be written.
pub struct PreparedRevision {
    /// The name of the compiler that has compiled once for all nodes, or the reason why each node
    /// compiles.
    pub compiled: Result<String, String>,
    new: Option<ProbeRevision>,
}

impl ReconcileContext {
    /// Finds the revision of a plan, or makes it. An existing revision stays as it is, even if the
    /// operator has another compiler now.
    pub async fn prepare(
        &self,
        plan: &FleetPlan,
    ) -> kube::Result<Result<PreparedRevision, Rejection>> {
        let revisions: Api<ProbeRevision> = self.all();
        if let Some(known) = revisions.get_metadata_opt(&plan.revision).await? {
            let annotation = |name: &str| known.annotations().get(name).cloned();
            let compiled = annotation(COMPILED_BY)
                .map(Ok)
                .or_else(|| annotation(ON_NODES).map(Err));
            let earlier = || Err("an earlier operator has made the revision".to_owned());
            return Ok(Ok(PreparedRevision {
                compiled: compiled.unwrap_or_else(earlier),
                new: None,
            }));
        }
        match made(&self.compilations, plan).await {
            Ok(done) => done.map(Ok),
            Err(rejection) => Ok(Err(rejection)),
        }
    }

    /// Writes a new revision.
    pub async fn write_prepared(&self, prepared: PreparedRevision) -> kube::Result<()> {
        let Some(object) = prepared.new else {
            return Ok(());
        };
        let revisions: Api<ProbeRevision> = self.all();
        match revisions.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            done => done.map(drop),
        }
    }
}

async fn made(
    compilations: &Compilations,
    plan: &FleetPlan,
) -> Result<kube::Result<PreparedRevision>, Rejection> {
    let (compiled, objects) = match compilations
        .compile(&plan.name, &plan.config, plan.on_nodes)
        .await?
    {
        Compiled::Already => (Ok("the configuration has an object".to_owned()), None),
        Compiled::OnNodes(why) => (Err(why), None),
        Compiled::Once(objects) => (Ok(by(&objects)), Some(objects)),
    };
    let config = match serde_json::to_value(&plan.config) {
        Ok(config) => config,
        Err(error) => return Ok(Err(kube::Error::SerdeError(error))),
    };
    let digest = digest(&plan.config);
    let mut spec = RevisionSpec {
        probe: plan.name.clone(),
        digest,
        config,
        ..RevisionSpec::default()
    };
    let (fitting, why) = fitting(&spec, objects);
    spec.compiled = fitting;
    let compiled = why.map_or(compiled, Err);
    let mut object = ProbeRevision::new(&plan.revision, ProbeRevisionSpec(spec));
    object
        .labels_mut()
        .insert(PROBE.to_owned(), plan.name.clone());
    let (annotation, words) = match &compiled {
        Ok(by) => (COMPILED_BY, by.clone()),
        Err(why) => (ON_NODES, why.clone()),
    };
    object
        .annotations_mut()
        .insert(annotation.to_owned(), words);
    tracing::info!(revision = object.meta().name, compiled = ?compiled, "a revision is made");
    Ok(Ok(PreparedRevision {
        compiled,
        new: Some(object),
    }))
}

fn by(objects: &CompiledRevision) -> String {
    format!(
        "compiled once for all nodes with {}, by {}",
        objects.architecture, objects.compiler
    )
}

/// Returns the objects that fit into an object of Kubernetes together with the configuration.
/// Objects for new kernels come before objects for old kernels. If no object fits, returns the
/// reason.
fn fitting(
    spec: &RevisionSpec,
    objects: Option<CompiledRevision>,
) -> (Option<CompiledRevision>, Option<String>) {
    let Some(mut compiled) = objects else {
        return (None, None);
    };
    let length = |compiled: &CompiledRevision| {
        let with = RevisionSpec {
            compiled: Some(compiled.clone()),
            ..spec.clone()
        };
        serde_json::to_vec(&with).map_or(usize::MAX, |text| text.len())
    };
    let whole = length(&compiled);
    if whole > LARGEST {
        compiled.objects.truncate(1);
    }
    if length(&compiled) <= LARGEST {
        return (Some(compiled), None);
    }
    let (whole, most) = (whole >> 10, LARGEST >> 10);
    let why = format!(
        "with its objects the revision takes {whole} KiB, and the limit is {most} KiB; make the programs smaller"
    );
    (None, Some(why))
}

#[cfg(test)]
mod tests {
    use twinprobe_api::RevisionObjects;

    use super::*;

    fn objects(lengths: [usize; 2]) -> CompiledRevision {
        let object = |frags, length| RevisionObjects {
            frags: Some(frags),
            ingress: Some("A".repeat(length)),
            ..RevisionObjects::default()
        };
        let objects = vec![object(true, lengths[0]), object(false, lengths[1])];
        CompiledRevision {
            objects,
            ..CompiledRevision::default()
        }
    }

    #[test]
    fn objects_that_etcd_has_no_room_for_are_left_out() {
        let spec = RevisionSpec::default();
        for (lengths, count) in [
            ([5, 5], 2),
            ([LARGEST / 2, LARGEST / 2], 1),
            ([LARGEST, 5], 0),
        ] {
            let (fitting, why) = fitting(&spec, Some(objects(lengths)));
            assert_eq!(
                fitting.map_or(0, |it| it.objects.len()),
                count,
                "{lengths:?}"
            );
            assert_eq!(
                why.is_some_and(|why| why.contains("the limit is 1024 KiB")),
                count == 0
            );
        }
        assert_eq!(fitting(&spec, None), (None, None));
    }
}
