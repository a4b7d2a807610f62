//! `twinprobe metrics`.

use clap::Args;
use serde_json::Value;
use twinprobe_client::Client;

use crate::commands::read::merge;
use crate::commands::read::picture::Picture;
use crate::error::CommandError;
use crate::fleet::fleet::Node;
use crate::fleet::session::Session;
use crate::output::format::OutputFormat;
use crate::output::print;

#[derive(Debug, Args)]
pub struct Metrics {
    /// The probe
    name: String,
    /// Format of the metrics
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    output: OutputFormat,
    #[command(flatten)]
    picture: Picture,
    /// Add up the documents of all servers, by the rules of each metric's `merge`
    #[arg(long)]
    merge: bool,
}

impl Metrics {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        if self.merge || session.fleet.nodes().len() > 1 {
            return self.of_many(session).await;
        }
        let document = session.fleet.one()?.metrics(&self.name, self.output.media_type()).await?;
        if self.output.is_table() {
            return print::print(self.picture.draw(&document.read()?, self.output.screen())?);
        }
        print::print(self.output.show(&document)?)
    }

    /// Shows the documents of all daemons, each by itself or as one.
    async fn of_many(self, session: &Session) -> Result<(), CommandError> {
        let Some(view) = self.output.view() else { return Err(CommandError::NotOfMany) };
        let ask = async |node: &Node| ask(&node.client, &self.name, self.merge).await;
        let (mut found, mut failed) = (Vec::new(), 0);
        for (node, answer) in session.fleet.nodes().iter().zip(session.fleet.each(ask).await) {
            match answer {
                Ok((document, status)) => {
                    found.push(merge::Part { node: node.name.clone(), document, status });
                }
                Err(error) => {
                    print::complain(&format!("{}: {}", node.name, session.reporter.error(&error)));
                    failed += 1;
                }
            }
        }
        if self.merge && !found.is_empty() {
            let merged = merge::merge(&self.name, found);
            let drawn = self.picture.draw(&merged, view.screen())?;
            view.show(&merged, |_| drawn)?;
        } else {
            let documents: Vec<&Value> = found.iter().map(|part| &part.document).collect();
            let mut text = String::new();
            for part in &found {
                text.push_str(&format!(
                    "== {}\n{}\n",
                    part.node,
                    self.picture.draw(&part.document, view.screen())?
                ));
            }
            view.show(&documents, |_| text)?;
        }
        let total = session.fleet.nodes().len();
        if failed == 0 { Ok(()) } else { Err(CommandError::Nodes { failed, total }) }
    }
}

/// Returns the document of one daemon and, to merge it, the status of the probe.
async fn ask(client: &Client, name: &str, merge: bool) -> Result<(Value, Option<Value>), CommandError> {
    let document = client.metrics(name, OutputFormat::Json.media_type()).await?.read()?;
    let status = if merge { Some(client.status(name).await?.json()?) } else { None };
    Ok((document, status))
}
