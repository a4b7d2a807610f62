//! The steps of a rollout over daemons. The crate `fleet` makes the decisions. No state is kept
//! between two runs, because daemons report their revisions.

use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use twinprobe_api::{FleetFailure, OnFailure, Rollback};
use twinprobe_client::ClientError;
use twinprobe_ebpf_common::finding::with_causes;
use twinprobe_fleet::{
    FleetPlan, NodeView, RolloutStep, StepVerdict, canaries, digest, judge, members,
};

use crate::commands::fleet::document::FleetProbeFile;
use crate::commands::fleet::outcome::{FleetOutcome, Reached};
use crate::commands::fleet::survey::Survey;
use crate::error::CommandError;
use crate::fleet::fleet::Node;
use crate::output::print;

/// The time between two looks at the nodes of a step.
const LOOK: Duration = Duration::from_millis(500);

/// Rolls a probe out. With `says`, each step is a line on stdout.
pub async fn roll_out(
    mut survey: Survey<'_>,
    file: &FleetProbeFile,
    message: Option<&str>,
    says: bool,
) -> Result<FleetOutcome, CommandError> {
    let say = |line: String| if says { print::print(line) } else { Ok(()) };
    survey.ask().await;
    if file.is_paused {
        return Ok(FleetOutcome::reached(&survey, Reached::Paused));
    }
    let plan = &file.plan;
    let revision = format!("fleet: revision {}", plan.revision);
    let message = message.map_or(revision.clone(), |message| {
        format!("{message} ({revision})")
    });
    for step in &plan.rollout.steps {
        match take(&mut survey, step, &message).await {
            StepVerdict::Failed(failures) => {
                say(format!("{}: failed", step.name))?;
                let taken_back = match plan.rollout.on_failure {
                    OnFailure::Pause => None,
                    OnFailure::Rollback => Some(take_back(&survey, &failures).await),
                };
                return Ok(FleetOutcome::failed(
                    &survey,
                    step,
                    failures,
                    taken_back.as_deref(),
                ));
            }
            StepVerdict::Good | StepVerdict::Wait(_) => {
                let count = names(&survey, step).len();
                say(format!(
                    "{}: good on {count} of {} nodes",
                    step.name,
                    survey.nodes.len()
                ))?;
            }
        }
    }
    Ok(FleetOutcome::reached(&survey, Reached::Complete))
}

/// Takes one step, and waits for its verdict.
async fn take(survey: &mut Survey<'_>, step: &RolloutStep, message: &str) -> StepVerdict {
    let began = Timestamp::now();
    let names = names(survey, step);
    loop {
        survey.put(&names, message).await;
        let views = survey.views();
        let members: Vec<NodeView<'_>> = views
            .into_iter()
            .filter(|node| names.iter().any(|name| name == node.name))
            .collect();
        let verdict = judge(&survey.plan.rollout, &members, began, Timestamp::now());
        match verdict {
            StepVerdict::Wait(_) => {
                tokio::time::sleep(LOOK).await;
                survey.ask().await;
            }
            StepVerdict::Good => return verdict,
            StepVerdict::Failed(failures) => {
                return StepVerdict::Failed(with_reasons(survey, failures));
            }
        }
    }
}

/// Returns the nodes of a step.
fn names(survey: &Survey<'_>, step: &RolloutStep) -> Vec<String> {
    let FleetPlan {
        rollout, revision, ..
    } = survey.plan;
    let views = survey.views();
    let canaries = canaries(rollout, revision, &views, &[]);
    members(rollout, step, revision, &views, &canaries)
        .iter()
        .map(|node| node.name.to_owned())
        .collect()
}

/// Adds why a node gave no answer.
fn with_reasons(survey: &Survey<'_>, mut failures: Vec<FleetFailure>) -> Vec<FleetFailure> {
    for failure in failures
        .iter_mut()
        .filter(|failure| failure.stage == "silent")
    {
        if let Some(reason) = survey.silent.get(&failure.node) {
            failure.reason = format!("{}: {reason}", failure.reason);
        }
    }
    failures
}

/// Takes the revision back wherever it is, even if the answer to a PUT was lost. Returns the nodes
/// where that failed, with the reasons.
async fn take_back(survey: &Survey<'_>, failures: &[FleetFailure]) -> Vec<(String, String)> {
    let first = failures
        .first()
        .map(|failed| format!("{}: {}", failed.node, failed.reason))
        .unwrap_or_default();
    let message = format!(
        "fleet: revision {} taken back; {first}",
        survey.plan.revision
    );
    let back = survey.nodes.iter().map(|node| async {
        let done = take_back_one(survey, node, &message).await;
        done.err()
            .map(|error| (node.name.clone(), with_causes(&error)))
    });
    join_all(back).await.into_iter().flatten().collect()
}

/// Gives a node its previous configuration, or removes the probe if there was none.
async fn take_back_one(survey: &Survey<'_>, node: &Node, message: &str) -> Result<(), ClientError> {
    let name = &survey.plan.name;
    let unwanted = digest(&survey.plan.config);
    let revisions = match node.client.revisions(name).await {
        Ok(answer) => answer.read()?.revisions,
        Err(ClientError::Refused(problem)) if problem.status == 404 => return Ok(()),
        Err(error) => return Err(error),
    };
    let is_unwanted = revisions
        .iter()
        .any(|revision| revision.current && digest(&revision.config) == unwanted);
    if !is_unwanted {
        return Ok(());
    }
    let others = revisions
        .iter()
        .filter(|revision| digest(&revision.config) != unwanted);
    match others.map(|revision| revision.revision).max() {
        Some(revision) => {
            let to = Rollback {
                revision: Some(revision),
            };
            node.client
                .roll_back(name, to, Some(message))
                .await
                .map(drop)
        }
        None => node.client.delete(name, Some(message)).await,
    }
}
