//! The client commands: what an operator runs against a daemon.

mod cmd;
mod error;
mod files;
mod http;
mod output;
mod problem;
mod server;
mod strict;
mod table;

pub use error::ClientError;
pub use server::Server;

/// Talks to a running daemon.
#[derive(Debug, clap::Subcommand)]
pub enum ClientCommand {
    /// Create or replace probes from files
    Apply(cmd::apply::Apply),
    /// Compile and verify probes without attaching anything
    Validate(cmd::validate::Validate),
    /// List the probes
    List(cmd::list::List),
    /// Show one probe: its status and its configuration
    Get(cmd::get::Get),
    /// Remove a probe
    Delete(cmd::delete::Delete),
    /// Read a probe's metrics
    Metrics(cmd::metrics::Metrics),
    /// List a probe's windows; show, acknowledge or close one
    Windows(cmd::windows::Windows),
    /// Follow a probe's windows as they are closed
    Watch(cmd::watch::Watch),
    /// Follow a probe's events
    Events(cmd::events::Events),
    /// Show what the kernel can do, and how each map type is read
    Capabilities(cmd::capabilities::Capabilities),
}

/// Runs one command. Results go to stdout; what is refused is the error, to be printed with its sources.
pub async fn run(command: ClientCommand, server: &Server) -> Result<(), ClientError> {
    match command {
        ClientCommand::Apply(command) => command.run(server).await,
        ClientCommand::Validate(command) => command.run(server).await,
        ClientCommand::List(command) => command.run(server).await,
        ClientCommand::Get(command) => command.run(server).await,
        ClientCommand::Delete(command) => command.run(server).await,
        ClientCommand::Metrics(command) => command.run(server).await,
        ClientCommand::Windows(command) => command.run(server).await,
        ClientCommand::Watch(command) => command.run(server).await,
        ClientCommand::Events(command) => command.run(server).await,
        ClientCommand::Capabilities(command) => command.run(server).await,
    }
}

#[cfg(test)]
mod tests;
