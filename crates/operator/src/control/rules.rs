//! One look at one rule: the wishes in its object, the reports of nodes, and the writes that
//! follow.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use twinprobe_api::{FleetRuleStatus, RuleScope};
use twinprobe_ebpf_common::finding::Rejection;
use twinprobe_fleet::{FleetRuleView, NodeView, decide_rule, invalid_rule, rule_key};

use crate::control::checked::{check_rule, mistakes};
use crate::control::writes::{ReconcileContext, SHORTLY, is_late};
use crate::judge::settle::{Withdrawal, judge, leave};
use crate::objects::rule::MonitoringRule;

/// The time before another attempt to end actions at nodes that do not answer.
const AGAIN: Duration = Duration::from_secs(2);

/// Looks at an object.
pub async fn reconcile_rule(
    object: Arc<MonitoringRule>,
    context: Arc<ReconcileContext>,
) -> kube::Result<Action> {
    let name = object.name_any();
    match context.held::<MonitoringRule>(&name).await? {
        None => Ok(Action::await_change()),
        Some(object) if object.metadata.deletion_timestamp.is_some() => {
            match leave(&context, &object).await {
                Withdrawal::Partial | Withdrawal::Later if !is_late(&object) => {
                    Ok(Action::requeue(AGAIN))
                }
                _ => context.remove(&object, &rule_key(&name)).await,
            }
        }
        Some(object) => assign(&context, &object).await,
    }
}

async fn assign(context: &ReconcileContext, object: &MonitoringRule) -> kube::Result<Action> {
    let name = object.name_any();
    let generation = object.metadata.generation.unwrap_or_default();
    let before = object.status.clone().unwrap_or_default();
    let checked = check_rule(&name, object, context.judges.is_some());
    if let (Ok(()), Some(judges), RuleScope::Fleet) =
        (&checked, &context.judges, object.spec.0.scope)
    {
        return judge(context, judges, object).await;
    }
    // The object may have been a rule over the fleet before. A node that does not answer keeps the
    // rule's actions until their leases end.
    if leave(context, object).await == Withdrawal::Later {
        return Ok(Action::requeue(SHORTLY));
    }
    if let Err(rejection) = checked {
        return refuse(context, object, before, &rejection).await;
    }
    let key = rule_key(&name);
    let assigned = context.assigned(&key).await?;
    let decide = |nodes: &[NodeView<'_>]| {
        decide_rule(&FleetRuleView {
            name: &name,
            rule: &object.spec.0.rule,
            node_selector: &object.spec.0.node_selector,
            generation,
            status: &before,
            assignment: assigned.as_ref(),
            nodes,
            now: Timestamp::now(),
        })
    };
    let Some(decision) = context.world.of_probe(&key, decide) else {
        return Ok(Action::requeue(SHORTLY));
    };
    if decision.status != before {
        context.write_status(object, &decision.status).await?;
    }
    context
        .write_revision(&key, &decision.name, decision.revision)
        .await?;
    if assigned.as_ref() != Some(&decision.assignment) {
        context.assign(&key, &decision.assignment).await?;
        tracing::info!(
            rule = name,
            revision = decision.name,
            "nodes get the new revision of the rule"
        );
    }
    context.forget(&key).await?;
    if decision.status.counts.silent == 0 && before.counts.silent > 0 {
        context.prune(&key, &[&decision.status.revision]).await?;
    }
    Ok(Action::await_change())
}

/// Writes into the status why nodes can't get a rule. Nodes keep their present revision.
async fn refuse(
    context: &ReconcileContext,
    object: &MonitoringRule,
    before: FleetRuleStatus,
    rejection: &Rejection,
) -> kube::Result<Action> {
    let before = FleetRuleStatus {
        since: None,
        ..before
    };
    let generation = object.metadata.generation.unwrap_or_default();
    let status = invalid_rule(&before, generation, &mistakes(rejection), Timestamp::now());
    if Some(&status) != object.status.as_ref() {
        context.write_status(object, &status).await?;
    }
    Ok(Action::await_change())
}
