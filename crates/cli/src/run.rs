//! Runs the commands.

#[cfg(test)]
mod tests;

use twinprobe_client::{Client, Server};

use crate::args::{ClientCommand, Command, Options};
use crate::commands::list;
use crate::credentials::CredentialOptions;
use crate::error::CommandError;
use crate::output::print::{self, PipeState};

/// Runs one command. Results go to stdout; a refusal is returned as the error, to be printed with its sources.
pub async fn run(command: Command, options: Options) -> Result<(), CommandError> {
    match command {
        Command::Build(command) => command.run().await,
        Command::Token(command) => command.run(),
        Command::Convert(command) => command.run(),
        Command::Probes(command) => command.run(),
        Command::Client(command) => ask(command, options.server, &options.credentials).await,
    }
}

/// Runs a command that talks to a running daemon.
async fn ask(
    command: ClientCommand,
    server: Server,
    credentials: &CredentialOptions,
) -> Result<(), CommandError> {
    let client = Client::new(server, &credentials.read()?)?;
    match command {
        ClientCommand::Apply(files) => files.apply(&client).await,
        ClientCommand::Validate(files) => files.validate(&client).await,
        ClientCommand::List => list::list(&client).await,
        ClientCommand::Get { name } => print::json(&client.status(&name).await?),
        ClientCommand::Delete { name } => {
            client.delete(&name).await?;
            print::print(format!("deleted {name}"))
        }
        ClientCommand::Metrics { name, output } => {
            let document = client.metrics(&name, output.media_type()).await?;
            print::print(output.show(&document)?)
        }
        ClientCommand::Windows(command) => command.run(&client).await,
        ClientCommand::Watch(command) => command.run(&client).await,
        // The events end when the probe is deleted or replaced, or the daemon stops.
        ClientCommand::Events { name, metric } => {
            let mut events = client.events(&name, metric.as_deref()).await?;
            while let Some(lines) = events.next().await? {
                if print::write_part(&[&lines])? == PipeState::Gone {
                    break;
                }
            }
            Ok(())
        }
        ClientCommand::Replay(command) => command.run(&client).await,
        ClientCommand::Capabilities(command) => command.run(&client).await,
    }
}
