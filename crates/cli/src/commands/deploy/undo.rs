//! The undoing of earlier steps after a failure.

use twinprobe_api::Rollback;
use twinprobe_client::{Client, ClientError};

use crate::commands::deploy::outcome::DeployOutcome;
use crate::error::CommandError;
use crate::files::files::ProbeFile;
use crate::fleet::fleet::Node;
use crate::fleet::session::Session;
use crate::output::print;

const WHY: &str = "taken back: an apply failed elsewhere";

/// The state of a probe at a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeBefore {
    node: String,
    probe: String,
    state: EarlierState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EarlierState {
    Absent,
    Revision(u64),
    /// The daemon gave no answer about the probe.
    Unknown,
}

async fn state(client: &Client, name: &str) -> EarlierState {
    match client.status(name).await.and_then(|answer| answer.read()) {
        Ok(status) => EarlierState::Revision(status.revision),
        Err(ClientError::Refused(problem)) if problem.status == 404 => EarlierState::Absent,
        Err(_) => EarlierState::Unknown,
    }
}

/// Asks all daemons for the revisions of the probes.
pub async fn revisions(session: &Session, probes: &[ProbeFile]) -> Vec<NodeBefore> {
    let ask = async |node: &Node| {
        let mut found = Vec::new();
        for probe in probes {
            let state = state(&node.client, &probe.name).await;
            found.push(NodeBefore {
                node: node.name.clone(),
                probe: probe.name.clone(),
                state,
            });
        }
        found
    };
    session
        .fleet
        .each(ask)
        .await
        .into_iter()
        .flatten()
        .collect()
}

/// If anything failed, restores the earlier state of the probes: created probes are removed, and
/// replaced probes get their earlier configuration. Prints the actions on stderr.
pub async fn on_failure(
    session: &Session,
    probes: &[ProbeFile],
    sent: &Result<Vec<DeployOutcome>, CommandError>,
    before: &[NodeBefore],
) {
    if sent
        .as_ref()
        .is_ok_and(|outcomes| outcomes.iter().all(|outcome| outcome.result.is_ok()))
    {
        return;
    }
    let undo = async |node: &Node| {
        let mut lines = Vec::new();
        for probe in probes {
            let was = before
                .iter()
                .find(|before| before.node == node.name && before.probe == probe.name);
            let Some(was) = was else { continue };
            lines.extend(undo_one(&node.client, &probe.name, was.state).await);
        }
        lines
            .into_iter()
            .map(|line| format!("{}: {line}", node.name))
            .collect::<Vec<_>>()
    };
    for line in session.fleet.each(undo).await.into_iter().flatten() {
        print::complain(&line);
    }
}

/// Brings one probe back. The daemon is asked for the present revision: an answer that was lost may
/// have been a success.
async fn undo_one(client: &Client, name: &str, was: EarlierState) -> Option<String> {
    let is = state(client, name).await;
    let undone = match (was, is) {
        (EarlierState::Unknown, _) => {
            return Some(format!(
                "{name} stays as it is: its earlier state is unknown"
            ));
        }
        (_, EarlierState::Unknown) => {
            return Some(format!(
                "{name} could not be changed back: the daemon does not answer"
            ));
        }
        (was, is) if was == is => return None,
        (_, EarlierState::Absent) => return Some(format!("{name} was deleted by somebody else")),
        (EarlierState::Absent, EarlierState::Revision(_)) => client
            .delete(name, Some(WHY))
            .await
            .map(|()| format!("deleted {name} again")),
        (EarlierState::Revision(revision), EarlierState::Revision(_)) => {
            let back = Rollback {
                revision: Some(revision),
            };
            let done = client.roll_back(name, back, Some(WHY)).await;
            done.map(|_| format!("rolled back {name} to revision {revision}"))
        }
    };
    Some(undone.unwrap_or_else(|error| format!("{name} could not be changed back: {error}")))
}
