//! `twinprobe delete`.

use clap::Args;
use serde_json::{Value, json};
use twinprobe_client::{Client, ClientError};

use crate::commands::deploy::names::change_everywhere;
use crate::commands::deploy::outcome::Done;
use crate::error::CommandError;
use crate::fleet::fleet::Node;
use crate::fleet::session::Session;
use crate::output::print;
use crate::output::view::ViewOption;

#[derive(Debug, Args)]
pub struct Delete {
    /// The probes
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Reason for the change, which `history` shows
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    #[command(flatten)]
    view: ViewOption,
}

async fn delete(client: &Client, name: &str, message: Option<&str>) -> Result<Done, ClientError> {
    client.delete(name, message).await?;
    Ok(Done {
        verb: "deleted",
        places: String::new(),
        warnings: vec![],
        ns_per_packet: None,
        answer: Value::Null,
    })
}

impl Delete {
    /// Removes each probe, and continues after a refusal.
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let [Node { client, .. }] = session.fleet.nodes() else {
            let remove = async |client: &Client, name: &str| {
                delete(client, name, self.message.as_deref()).await
            };
            return change_everywhere(session, ("PROBE", &self.names), self.view.output, remove)
                .await;
        };
        let (mut values, mut failed) = (Vec::new(), 0);
        let total = self.names.len();
        for name in self.names {
            match client.delete(&name, self.message.as_deref()).await {
                Ok(()) => {
                    values.push(json!({ "name": name, "outcome": "deleted" }));
                    if !self.view.output.is_structured() {
                        print::print(format!("deleted {name}"))?;
                    }
                }
                Err(ClientError::Refused(problem)) if total > 1 => {
                    print::complain(&format!("{name}: {problem}"));
                    values.push(json!({ "name": name, "outcome": "refused", "problem": problem }));
                    failed += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(text) = self.view.output.structured(&values)? {
            print::print(text)?;
        }
        if failed == 0 {
            Ok(())
        } else {
            Err(CommandError::Several { failed, total })
        }
    }
}
