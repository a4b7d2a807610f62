//! The commands that talk to a running daemon.

use clap::Subcommand;
use twinprobe_client::{Client, Server};

use super::commands::apply::Apply;
use super::commands::capabilities::Capabilities;
use super::commands::delete::Delete;
use super::commands::events::Events;
use super::commands::get::Get;
use super::commands::list::List;
use super::commands::metrics::Metrics;
use super::commands::validate::Validate;
use super::commands::watch::Watch;
use super::commands::windows::Windows;
use super::error::CommandError;

/// Talks to a running daemon.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Create or replace probes from files
    Apply(Apply),
    /// Compile and verify probes without attaching anything
    Validate(Validate),
    /// List the probes
    List(List),
    /// Show one probe: its status and its configuration
    Get(Get),
    /// Remove a probe
    Delete(Delete),
    /// Read a probe's metrics
    Metrics(Metrics),
    /// List a probe's windows; show, acknowledge or close one
    Windows(Windows),
    /// Follow a probe's windows as they are closed
    Watch(Watch),
    /// Follow a probe's events
    Events(Events),
    /// Show what the kernel can do, and how each map type is read
    Capabilities(Capabilities),
}

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
