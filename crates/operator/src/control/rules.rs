//! One look at one rule: the demands of its object, the reports of nodes, and the writes that follow.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use twinprobe_fleet::{FleetRuleView, NodeView, decide_rule, invalid_rule, rule_key};

use crate::control::checked::{check_rule, mistakes};
use crate::control::writes::{ReconcileContext, SHORTLY};
use crate::objects::rule::MonitoringRule;

/// Looks at an object.
pub async fn reconcile_rule(
    object: Arc<MonitoringRule>,
    context: Arc<ReconcileContext>,
) -> kube::Result<Action> {
    let name = object.name_any();
    match context.held::<MonitoringRule>(&name).await? {
        None => Ok(Action::await_change()),
        Some(object) if object.metadata.deletion_timestamp.is_some() => {
            context.remove(&object, &rule_key(&name)).await
        }
        Some(object) => assign(&context, &object).await,
    }
}

async fn assign(context: &ReconcileContext, object: &MonitoringRule) -> kube::Result<Action> {
    let name = object.name_any();
    let generation = object.metadata.generation.unwrap_or_default();
    let before = object.status.clone().unwrap_or_default();
    if let Err(rejection) = check_rule(&name, object) {
        let status = invalid_rule(&before, generation, &mistakes(&rejection), Timestamp::now());
        if status != before {
            context.write_status(object, &status).await?;
        }
        return Ok(Action::await_change());
    }
    let key = rule_key(&name);
    let assigned = context.assigned(&key).await?;
    let decide = |nodes: &[NodeView<'_>]| {
        decide_rule(&FleetRuleView {
            name: &name,
            rule: &object.spec.rule,
            node_selector: &object.spec.node_selector,
            generation,
            status: &before,
            nodes,
            now: Timestamp::now(),
        })
    };
    let Some(decision) = context.world.of_probe(&key, decide) else { return Ok(Action::requeue(SHORTLY)) };
    if decision.status != before {
        context.write_status(object, &decision.status).await?;
    }
    context.write_revision(&key, &decision.name, decision.revision).await?;
    if assigned.as_ref() != Some(&decision.assignment) {
        context.assign(&key, &decision.assignment).await?;
        tracing::info!(rule = name, revision = decision.name, "nodes get the new revision of the rule");
    }
    context.forget(&key).await?;
    if decision.status.counts.silent == 0 && before.counts.silent > 0 {
        context.prune(&key, &[&decision.status.revision]).await?;
    }
    Ok(Action::await_change())
}
