//! Runs the commands that talk to a running daemon.

#[cfg(test)]
mod tests;

use twinprobe_client::{Client, Server};

use crate::cli::args::ClientCommand;
use crate::cli::error::CommandError;

/// Runs one command. Results go to stdout; a refusal is returned as the error, to be printed with its sources.
pub async fn run(command: ClientCommand, server: Server) -> Result<(), CommandError> {
    let client = Client::new(server)?;
    match command {
        ClientCommand::Apply(command) => command.run(&client).await,
        ClientCommand::Validate(command) => command.run(&client).await,
        ClientCommand::List(command) => command.run(&client).await,
        ClientCommand::Get(command) => command.run(&client).await,
        ClientCommand::Delete(command) => command.run(&client).await,
        ClientCommand::Metrics(command) => command.run(&client).await,
        ClientCommand::Windows(command) => command.run(&client).await,
        ClientCommand::Watch(command) => command.run(&client).await,
        ClientCommand::Events(command) => command.run(&client).await,
        ClientCommand::Capabilities(command) => command.run(&client).await,
    }
}
