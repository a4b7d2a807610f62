//! One look at one probe: the wishes in its object, the known states of nodes, and the writes that
//! follow.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::object::HasSpec as _;
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType};
use twinprobe_api::{AssignmentSpec, FleetStatus};
use twinprobe_ebpf_common::finding::Rejection;
use twinprobe_fleet::{
    FleetDecision, FleetNews, FleetView, NodeView, compiled_condition, decide, invalid,
};

use crate::control::checked::{mistakes, of_the_object, plan};
use crate::control::writes::{ReconcileContext, SHORTLY, Wished};
use crate::objects::probe::MonitoringProbe;

/// The annotation by which people stop a rollout.
pub const PAUSED: &str = "twinprobe.dev/paused";
/// The annotation by which people declare a step good: `REVISION/STEP`.
pub const PROMOTE: &str = "twinprobe.dev/promote";

/// Looks at an object.
pub async fn reconcile(
    object: Arc<MonitoringProbe>,
    context: Arc<ReconcileContext>,
) -> kube::Result<Action> {
    let name = object.name_any();
    match context.held::<MonitoringProbe>(&name).await? {
        None => Ok(Action::await_change()),
        Some(object) if object.metadata.deletion_timestamp.is_some() => {
            context.remove(&object, &name).await
        }
        Some(object) => roll_out(&context, &object).await,
    }
}

async fn roll_out(context: &ReconcileContext, object: &MonitoringProbe) -> kube::Result<Action> {
    let name = object.name_any();
    let generation = object.metadata.generation.unwrap_or_default();
    let before = object.status.clone().unwrap_or_default();
    let plan = match plan(&name, object) {
        Ok(plan) => plan,
        Err(rejection) => return refuse(context, object, &before, &rejection).await,
    };
    let assigned = context.assigned(&name).await?;
    let annotation = |name: &str| object.annotations().get(name).map(String::as_str);
    let decide = |nodes: &[NodeView<'_>]| {
        decide(&FleetView {
            plan: &plan,
            generation,
            is_paused: object.spec().0.paused || annotation(PAUSED) == Some("true"),
            promoted: annotation(PROMOTE),
            status: &before,
            assignment: assigned.as_ref(),
            nodes,
            now: Timestamp::now(),
        })
    };
    let Some(mut decision) = context.world.of_probe(&name, decide) else {
        return Ok(Action::requeue(SHORTLY));
    };
    let mut revision = None;
    if decision.assignment.is_some() {
        let prepared = match context.prepare(&plan).await? {
            Ok(prepared) => prepared,
            Err(rejection) => {
                return refuse(context, object, &before, &of_the_object(object, rejection)).await;
            }
        };
        let by = prepared.compiled.clone();
        let compiled = compiled_condition(by, &before.conditions, Timestamp::now());
        decision.status.conditions.push(compiled);
        revision = Some(prepared);
    }
    // The status is written first. The assignment follows from the status: if this look ends here,
    // the next look writes the assignment.
    if decision.status != before {
        context.write_status(object, &decision.status).await?;
    }
    tell(context, object, &decision.news).await;
    if let Some(revision) = revision {
        context.write_prepared(revision).await?;
    }
    carry_out(context, &name, assigned.as_ref(), &decision).await?;
    Ok(decision
        .again
        .map_or_else(Action::await_change, Action::requeue))
}

/// Gives nodes the decided assignment, and deletes reports and revisions that nobody needs.
async fn carry_out(
    context: &ReconcileContext,
    name: &str,
    assigned: Option<&AssignmentSpec>,
    decision: &FleetDecision,
) -> kube::Result<()> {
    match &decision.assignment {
        Some(wanted) if assigned != Some(wanted) => context.assign(name, wanted).await?,
        None if assigned.is_some() => context.unassign(name).await?,
        _ => {}
    }
    context.forget(name).await?;
    if decision.news.iter().any(|news| news.reason == "Complete") {
        let status = &decision.status;
        // Neither the rollout nor a rollback needs the other revisions.
        let kept = [&status.revision, &status.stable, &status.failed_revision];
        context.prune(name, &kept).await?;
    }
    Ok(())
}

/// Writes into the status why an object can't be rolled out. Nodes keep their present revision.
async fn refuse(
    context: &ReconcileContext,
    object: &MonitoringProbe,
    before: &FleetStatus,
    rejection: &Rejection,
) -> kube::Result<Action> {
    let generation = object.metadata.generation.unwrap_or_default();
    let status = invalid(before, generation, &mistakes(rejection), Timestamp::now());
    if status != *before {
        context.write_status(object, &status).await?;
    }
    Ok(Action::await_change())
}

/// Reports changes as Events.
pub async fn tell<K: Wished>(context: &ReconcileContext, object: &K, news: &[FleetNews]) {
    for news in news {
        let event = Event {
            type_: if news.is_warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: news.reason.to_owned(),
            note: Some(cut(&news.message)),
            // Kubernetes joins Events of one action and reason, and counts them.
            action: news.about.clone(),
            secondary: None,
        };
        tracing::info!(
            object = object.name_any(),
            reason = news.reason,
            "{}",
            news.message
        );
        if let Err(error) = context
            .recorder
            .publish(&event, &object.object_ref(&()))
            .await
        {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "an Event can't be written"
            );
        }
    }
}

/// Events have notes of 1 KB at most.
fn cut(text: &str) -> String {
    text.chars().take(900).collect()
}
