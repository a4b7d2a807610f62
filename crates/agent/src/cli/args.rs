//! What can be written on the command line.

use clap::{Parser, Subcommand, ValueEnum};
use twinprobe_client::Server;

use super::run::ClientCommand;
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
    #[command(flatten)]
    Client(ClientCommand),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}
