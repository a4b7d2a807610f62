//! Changes of probes and rules by their names at many daemons.

use twinprobe_client::{Client, ClientError};

use crate::commands::deploy::outcome::{self, DeployOutcome, Done};
use crate::commands::deploy::send::complain;
use crate::error::CommandError;
use crate::files::sources::Sources;
use crate::fleet::fleet::Node;
use crate::fleet::session::Session;
use crate::output::print;
use crate::output::view::OutputView;

/// Changes the probes or rules at all daemons at the same time, and continues after a refusal.
/// Prints a table with a row for each daemon and name, below `title`, and refusals on stderr. Fails
/// if one daemon failed.
pub async fn change_everywhere(
    session: &Session,
    (title, names): (&'static str, &[String]),
    view: OutputView,
    change: impl AsyncFn(&Client, &str) -> Result<Done, ClientError>,
) -> Result<(), CommandError> {
    let change_all = async |node: &Node| {
        let mut outcomes = Vec::new();
        for name in names {
            let result = change(&node.client, name).await;
            let is_over = !matches!(result, Ok(_) | Err(ClientError::Refused(_)));
            outcomes.push(DeployOutcome {
                node: node.name.clone(),
                name: name.clone(),
                result,
            });
            // A daemon that does not answer gets no request for the next probe.
            if is_over {
                break;
            }
        }
        outcomes
    };
    let outcomes: Vec<DeployOutcome> = session
        .fleet
        .each(change_all)
        .await
        .into_iter()
        .flatten()
        .collect();
    if view.is_structured() {
        let values: Vec<_> = outcomes
            .iter()
            .map(|outcome| outcome.value(false, &Sources::default()))
            .collect();
        view.show(&values, |_| String::new())?;
    } else {
        print::print(outcome::table(title, &outcomes).render(view.screen()))?;
    }
    complain(session, &outcomes, |_| Sources::default());
    outcome::failure(&outcomes, session.fleet.nodes().len())
}
