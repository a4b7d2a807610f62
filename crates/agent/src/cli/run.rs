//! Runs the commands that talk to a running daemon.

use twinprobe_client::{Client, Server};

use super::args::ClientCommand;
use super::error::CommandError;

/// Runs one command. Results go to stdout; what is refused is the error, to be printed with its sources.
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
