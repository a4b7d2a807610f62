//! One look at one rule over the fleet: the wishes in its object, the state of the running rule,
//! and the writes that follow.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use tokio::sync::watch;
use twinprobe_api::{FleetFailure, FleetRuleStatus};
use twinprobe_fleet::{
    FleetNews, JudgedRule, NodeView, invalid_rule, judged_rule, matches, rule_key, rule_revision,
};
use twinprobe_rules::FleetEvent;
use twinprobe_streams::{DaemonList, FleetRuleOrder, RuleStanding};

use crate::control::reconcile::tell;
use crate::control::writes::{ReconcileContext, SHORTLY};
use crate::judge::runs::{Judges, RunFault};
use crate::objects::rule::MonitoringRule;

/// The time before another attempt to begin.
const LATER: Duration = Duration::from_secs(31);
const NO_NODE: &str = "no daemon has answered yet";

/// Looks at a rule whose object has no mistake.
pub async fn judge(
    context: &ReconcileContext,
    judges: &Judges,
    object: &MonitoringRule,
) -> kube::Result<Action> {
    let (name, before) = (object.name_any(), object.status.clone().unwrap_or_default());
    let revision = rule_revision(&name, &object.spec.0.document());
    let selected = |nodes: &[NodeView<'_>]| -> BTreeSet<String> {
        let selected = nodes
            .iter()
            .filter(|node| matches(&object.spec.0.node_selector, node.labels));
        selected.map(|node| node.name.to_owned()).collect()
    };
    let selected = context.world.of_probe(&rule_key(&name), selected);
    let (Some(daemons), Some(selected)) = (judges.daemons(&name), selected) else {
        return Ok(Action::requeue(SHORTLY));
    };
    let judged = JudgedRule {
        revision: revision.clone(),
        selected: u64::try_from(selected.len()).unwrap_or(u64::MAX),
        fired: before.fired.clone(),
        ended: before.ended.clone(),
        stopped: before.stopped.clone(),
        ..JudgedRule::default()
    };
    let Some(since) = before
        .since
        .clone()
        .filter(|_| before.revision.as_ref() == Some(&revision))
    else {
        return begin(context, judges, object, judged).await;
    };
    let judged = JudgedRule { since, ..judged };
    if judged.stopped.is_some() {
        judges.stop(&name).await;
        return write(context, object, judged).await;
    }
    let chosen = daemons
        .into_iter()
        .filter(|(node, _)| selected.contains(node))
        .collect::<DaemonList>();
    match judges.run(&name, &revision, chosen, |daemons| {
        order(judges, object, &judged.since, daemons)
    }) {
        Ok(standing) => {
            if standing.stopped.is_some() {
                judges.withdraw(&name).await;
            }
            write(context, object, shown(standing, judged)).await
        }
        Err(fault) => try_later(context, object, judged, &fault).await,
    }
}

fn order(
    judges: &Judges,
    object: &MonitoringRule,
    since: &str,
    daemons: watch::Receiver<DaemonList>,
) -> FleetRuleOrder {
    let name = object.name_any();
    FleetRuleOrder {
        collector: rule_key(&name),
        name,
        document: object.spec.0.document(),
        since: nanoseconds(since),
        events: object.status.as_ref().map(events).unwrap_or_default(),
        credentials: judges.access.credentials.clone(),
        daemons,
        memory: judges.access.memory,
        keys: judges.access.keys.clone(),
    }
}

/// Ends everything of an earlier revision or scope. From now on the operator judges windows by this
/// revision.
async fn begin(
    context: &ReconcileContext,
    judges: &Judges,
    object: &MonitoringRule,
    judged: JudgedRule,
) -> kube::Result<Action> {
    let name = object.name_any();
    let key = rule_key(&name);
    judges.withdraw(&name).await;
    if context.assigned(&key).await?.is_some() {
        context.unassign(&key).await?;
    }
    context.prune(&key, &[]).await?;
    let now = Timestamp::now().to_string();
    let waits = Some(NO_NODE.to_owned());
    let judged = JudgedRule {
        since: now,
        waits,
        fired: None,
        ended: None,
        stopped: None,
        ..judged
    };
    write(context, object, judged).await?;
    Ok(Action::requeue(SHORTLY))
}

/// Writes into the status why a rule does not run. Another attempt follows later.
async fn try_later(
    context: &ReconcileContext,
    object: &MonitoringRule,
    judged: JudgedRule,
    fault: &RunFault,
) -> kube::Result<Action> {
    let reason = fault.to_string();
    match fault {
        RunFault::TooMany => {
            let before = object.status.clone().unwrap_or_default();
            let generation = object.metadata.generation.unwrap_or_default();
            let status = invalid_rule(&before, generation, &reason, Timestamp::now());
            if status != before {
                context.write_status(object, &status).await?;
            }
        }
        RunFault::Failed | RunFault::Start(_) => {
            let waits = Some(reason);
            write(context, object, JudgedRule { waits, ..judged }).await?;
        }
    }
    Ok(Action::requeue(LATER))
}

async fn write(
    context: &ReconcileContext,
    object: &MonitoringRule,
    judged: JudgedRule,
) -> kube::Result<Action> {
    let before = object.status.clone().unwrap_or_default();
    let generation = object.metadata.generation.unwrap_or_default();
    let status = judged_rule(judged, generation, &before, Timestamp::now());
    if status != before {
        context.write_status(object, &status).await?;
        tell(context, object, &news(&before, &status)).await;
    }
    Ok(Action::await_change())
}

/// Adds the state of the running rule to a status.
fn shown(standing: RuleStanding, judged: JudgedRule) -> JudgedRule {
    let failure = |node, stage: &str, reason| FleetFailure {
        node,
        stage: stage.to_owned(),
        reason,
    };
    let absent = standing
        .absent
        .into_iter()
        .map(|(node, fault)| failure(node, fault.stage, fault.reason));
    let failed = standing
        .failed
        .into_iter()
        .map(|(node, reason)| failure(node, JudgedRule::ACTION, reason));
    let waits = standing
        .fault
        .or_else(|| standing.nodes.is_empty().then(|| NO_NODE.to_owned()));
    JudgedRule {
        running: u64::try_from(standing.nodes.len()).unwrap_or(u64::MAX),
        failures: absent.chain(failed).collect(),
        firing: u64::try_from(standing.acting.len()).unwrap_or(u64::MAX),
        fired: standing.fired.map(time).or(judged.fired),
        ended: standing.ended.map(time).or(judged.ended),
        waits,
        stopped: standing.stopped,
        ..judged
    }
}

/// Returns the changes that are worth an Event.
fn news(before: &FleetRuleStatus, status: &FleetRuleStatus) -> Vec<FleetNews> {
    let about = status.revision.clone().unwrap_or_default();
    let event = |reason, is_warning, message| FleetNews {
        reason,
        message,
        is_warning,
        about: about.clone(),
    };
    let mut news = Vec::new();
    if let Some(fired) = status
        .fired
        .as_ref()
        .filter(|_| status.fired != before.fired)
    {
        let failed = status
            .failures
            .iter()
            .filter(|failure| failure.stage == JudgedRule::ACTION);
        let failed: Vec<&str> = failed.map(|failure| failure.node.as_str()).collect();
        let firing = status.firing;
        news.push(event(
            "Fires",
            false,
            format!("the windows until {fired}: actions at {firing} nodes"),
        ));
        if !failed.is_empty() {
            news.push(event(
                "ActionFailed",
                true,
                format!("actions failed at {}", failed.join(", ")),
            ));
        }
    }
    if let Some(ended) = status
        .ended
        .as_ref()
        .filter(|_| status.ended != before.ended)
    {
        news.push(event(
            "Ends",
            false,
            format!("the windows until {ended}: the actions have ended"),
        ));
    }
    if let Some(stopped) = status.stopped.as_ref().filter(|_| before.stopped.is_none()) {
        news.push(event("Stopped", true, stopped.clone()));
    }
    news
}

/// Ends the actions of a rule, if the object is, or was, a rule over the fleet.
pub async fn leave(context: &ReconcileContext, object: &MonitoringRule) -> Withdrawal {
    let was = object
        .status
        .as_ref()
        .is_some_and(|status| status.since.is_some());
    let name = object.name_any();
    let left = match &context.judges {
        Some(judges) if was => judges.withdraw(&name).await,
        None if was => {
            tracing::warn!(
                rule = name,
                "without --daemons-token-file nothing ends the rule's actions at nodes"
            );
            return Withdrawal::Whole;
        }
        _ => Some(BTreeMap::new()),
    };
    let Some(left) = left else {
        return Withdrawal::Later;
    };
    if let Some(judges) = context.judges.as_ref().filter(|_| left.is_empty()) {
        judges.forget(&name);
    }
    if left.is_empty() {
        Withdrawal::Whole
    } else {
        Withdrawal::Partial
    }
}

/// The end of a rule's actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// The nodes have nothing of the rule any more.
    Whole,
    /// Some daemons did not answer.
    Partial,
    /// The daemons are not known yet.
    Later,
}

/// Returns the firing and the end that the object records. Daemons do not record the firings of
/// rules that only notify.
fn events(status: &FleetRuleStatus) -> Vec<FleetEvent> {
    let event = |time: &Option<String>, has_begun| {
        time.as_deref().map(|time| FleetEvent {
            end: nanoseconds(time),
            has_begun,
        })
    };
    [event(&status.fired, true), event(&status.ended, false)]
        .into_iter()
        .flatten()
        .collect()
}

fn nanoseconds(time: &str) -> i64 {
    let time = time.parse::<Timestamp>().unwrap_or_default();
    i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX)
}

fn time(nanoseconds: i64) -> String {
    Timestamp::from_nanosecond(nanoseconds.into())
        .unwrap_or_default()
        .to_string()
}
