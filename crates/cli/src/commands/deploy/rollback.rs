//! `twinprobe rollback`.

use clap::Args;
use twinprobe_api::Rollback as To;
use twinprobe_client::Client;

use crate::commands::deploy::names::change_everywhere;
use crate::commands::deploy::outcome::{Done, content, places};
use crate::error::CommandError;
use crate::files::sources::Sources;
use crate::fleet::fleet::Node;
use crate::fleet::session::Session;
use crate::output::print;
use crate::output::view::ViewOption;

#[derive(Debug, Args)]
pub struct RollbackCommand {
    /// The probe
    name: String,
    /// The revision to deploy again; by default the one before the present one
    revision: Option<u64>,
    /// Reason for the change, which `revisions` shows
    #[arg(short, long, value_name = "WHY")]
    message: Option<String>,
    #[command(flatten)]
    view: ViewOption,
}

impl RollbackCommand {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let Self {
            name,
            revision,
            message,
            view,
        } = self;
        let [Node { client, .. }] = session.fleet.nodes() else {
            let back = async |client: &Client, name: &str| {
                let answer = client
                    .roll_back(name, To { revision }, message.as_deref())
                    .await?;
                let status = answer.read()?;
                Ok(Done {
                    verb: "rolled back",
                    places: places(&status),
                    warnings: status.warnings,
                    ns_per_packet: None,
                    answer: content(&answer),
                })
            };
            return change_everywhere(session, ("PROBE", &[name]), view.output, back).await;
        };
        let answer = client
            .roll_back(&name, To { revision }, message.as_deref())
            .await?;
        let status = answer.read()?;
        let back = match revision {
            Some(revision) => format!("revision {revision}"),
            None => "the revision before".to_owned(),
        };
        let line = |_| {
            format!(
                "rolled back {name} to {back} on {}; it is revision {}",
                places(&status),
                status.revision
            )
        };
        view.output.show(&print::value(&answer)?, line)?;
        session
            .reporter
            .warnings(&status.warnings, &Sources::default());
        Ok(())
    }
}
