//! The sending of configurations to one daemon or many.

use std::collections::BTreeMap;

use twinprobe_client::{Client, ClientError};

use crate::commands::deploy::outcome::{self, DeployOutcome, Done};
use crate::error::CommandError;
use crate::files::files::ProbeFile;
use crate::files::sources::Sources;
use crate::fleet::fleet::Node;
use crate::fleet::session::Session;
use crate::output::print;
use crate::output::progress::ProgressLine;
use crate::output::view::OutputView;

/// Sends each configuration to each daemon, to all daemons at the same time. Continues after a
/// refusal if there are other probes. Prints the outcomes of a single daemon as they come, and
/// those of several daemons as a table. Prints refusals on stderr. Returns all outcomes. With a
/// single daemon and a single probe, a failure is returned as an error.
pub async fn send(
    session: &Session,
    probes: &[ProbeFile],
    view: OutputView,
    send: impl AsyncFn(&Client, &ProbeFile) -> Result<Done, ClientError>,
) -> Result<Vec<DeployOutcome>, CommandError> {
    let nodes = session.fleet.nodes().len();
    let progress = ProgressLine::steps(nodes * probes.len());
    let at_once = nodes == 1 && !view.is_structured();
    let send_all = async |node: &Node| {
        let mut outcomes = Vec::new();
        for probe in probes {
            progress.at(probe.name.clone());
            let result = send(&node.client, probe).await;
            progress.done();
            let outcome = DeployOutcome {
                node: node.name.clone(),
                name: probe.name.clone(),
                result,
            };
            if at_once && let Ok(done) = &outcome.result {
                progress.pause(|| say(session, done, probe))?;
            }
            let is_over = !matches!(outcome.result, Ok(_) | Err(ClientError::Refused(_)));
            outcomes.push(outcome);
            // A daemon that does not answer is not asked for the next probe.
            if is_over {
                break;
            }
        }
        Ok(outcomes)
    };
    let found: Result<Vec<Vec<DeployOutcome>>, CommandError> =
        session.fleet.each(send_all).await.into_iter().collect();
    let mut outcomes: Vec<DeployOutcome> = found?.into_iter().flatten().collect();
    drop(progress);
    let sources: BTreeMap<&str, &Sources> = probes
        .iter()
        .map(|probe| (probe.name.as_str(), &probe.sources))
        .collect();
    let of = |outcome: &DeployOutcome| {
        sources
            .get(outcome.name.as_str())
            .copied()
            .cloned()
            .unwrap_or_default()
    };
    show(&outcomes, nodes, view, of)?;
    if nodes == 1
        && let Some(failure) = take_failure(&mut outcomes, probes.len(), of)
    {
        return Err(failure);
    }
    complain(session, &outcomes, of);
    Ok(outcomes)
}

/// Prints the outcomes that were not printed as they came.
fn show(
    outcomes: &[DeployOutcome],
    nodes: usize,
    view: OutputView,
    sources: impl Fn(&DeployOutcome) -> Sources,
) -> Result<(), CommandError> {
    if view.is_structured() {
        let values: Vec<_> = outcomes
            .iter()
            .map(|outcome| outcome.value(nodes == 1, &sources(outcome)))
            .collect();
        view.show(&values, |_| String::new())?;
    } else if nodes > 1 {
        print::print(outcome::table("PROBE", outcomes).render(view.screen()))?;
    }
    Ok(())
}

/// Takes the last outcome of a single daemon if it is the error of the command: any failure of a
/// single probe, and of several probes a failure other than a refusal.
fn take_failure(
    outcomes: &mut Vec<DeployOutcome>,
    probes: usize,
    sources: impl Fn(&DeployOutcome) -> Sources,
) -> Option<CommandError> {
    let last = outcomes.pop_if(|last| {
        let is_refusal = matches!(last.result, Err(ClientError::Refused(_)));
        last.result.is_err() && (probes == 1 || !is_refusal)
    })?;
    let sources = Box::new(sources(&last));
    let error = last.result.err()?;
    Some(CommandError::Probe { error, sources })
}

fn say(session: &Session, done: &Done, probe: &ProbeFile) -> Result<(), CommandError> {
    print::print(done.line(&probe.name))?;
    session.reporter.warnings(&done.warnings, &probe.sources);
    Ok(())
}

/// Prints the refusals on stderr, each once for all daemons that gave it.
pub fn complain(
    session: &Session,
    outcomes: &[DeployOutcome],
    sources: impl Fn(&DeployOutcome) -> Sources,
) {
    let mut said: Vec<(String, Vec<&str>)> = Vec::new();
    for outcome in outcomes {
        let Err(error) = &outcome.result else {
            continue;
        };
        let text = match error {
            ClientError::Refused(problem) => session.reporter.problem(problem, &sources(outcome)),
            error => twinprobe_ebpf_common::finding::with_causes(error),
        };
        let text = format!("{}: {text}", outcome.name);
        match said.iter_mut().find(|(known, _)| *known == text) {
            Some((_, nodes)) => nodes.push(&outcome.node),
            None => said.push((text, vec![&outcome.node])),
        }
    }
    for (text, nodes) in said {
        let on = if session.fleet.nodes().len() > 1 {
            format!("{}: ", nodes.join(", "))
        } else {
            String::new()
        };
        print::complain(&format!("{on}{text}"));
    }
}
