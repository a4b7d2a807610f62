//! The arguments of the command line.

use clap::{Parser, Subcommand, ValueEnum};
use twinprobe_client::Server;

use crate::cli::commands::apply::Apply;
use crate::cli::commands::capabilities::Capabilities;
use crate::cli::commands::delete::Delete;
use crate::cli::commands::events::Events;
use crate::cli::commands::get::Get;
use crate::cli::commands::list::List;
use crate::cli::commands::metrics::Metrics;
use crate::cli::commands::token::Token;
use crate::cli::commands::validate::Validate;
use crate::cli::commands::watch::Watch;
use crate::cli::commands::windows::Windows;
use crate::serve::Serve;

/// Fully adaptive network monitoring: eBPF probes pushed over HTTP, exact windows out.
#[derive(Debug, Parser)]
#[command(name = "twinprobe", version, about)]
pub struct Cli {
    /// The daemon that client commands talk to
    #[arg(long, global = true, env = "TWINPROBE_SERVER", value_name = "URL", default_value = Server::DEFAULT)]
    pub server: Server,
    /// How log lines look
    #[arg(long, global = true, value_enum, default_value = "text")]
    pub log_format: LogFormat,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon in the foreground
    Serve(Serve),
    /// Make a token: print it, and the line of --tokens that knows it
    Token(Token),
    #[command(flatten)]
    Client(ClientCommand),
}

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}
