//! The arguments of the command line.

use clap::{Args, Subcommand, ValueEnum};
use twinprobe_client::Server;

use crate::commands::apply::Files;
use crate::commands::build::Build;
use crate::commands::capabilities::Capabilities;
use crate::commands::convert::Convert;
use crate::commands::probes::Probes;
use crate::commands::replay::Replay;
use crate::commands::token::Token;
use crate::commands::watch::Watch;
use crate::commands::windows::Windows;
use crate::credentials::CredentialOptions;
use crate::output::format::OutputFormat;

/// The options of all commands.
#[derive(Debug, Args)]
pub struct Options {
    /// The daemon that client commands talk to
    #[arg(long, global = true, env = "TWINPROBE_SERVER", value_name = "URL", default_value = Server::DEFAULT)]
    pub server: Server,
    #[command(flatten)]
    pub credentials: CredentialOptions,
    /// Format of log lines
    #[arg(long, global = true, value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Compile the sources of configurations, for daemons without a compiler
    Build(Build),
    /// Make a token: print it, and the line of --tokens that knows it
    Token(Token),
    /// Turn a configuration of Polycube dynmon or DeChainy into one for apply
    Convert(Convert),
    /// List the probes of the library, which `apply --probe` deploys
    Probes(Probes),
    #[command(flatten)]
    Client(ClientCommand),
}

/// Talks to a running daemon.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Create or replace probes, from files or from the library
    Apply(Files),
    /// Compile and verify probes without attaching anything
    Validate(Files),
    /// List the probes
    List,
    /// Show one probe: its status and its configuration
    Get {
        /// The probe
        name: String,
    },
    /// Remove a probe
    Delete {
        /// The probe
        name: String,
    },
    /// Read a probe's metrics
    Metrics {
        /// The probe
        name: String,
        /// Format of the metrics
        #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
        output: OutputFormat,
    },
    /// List a probe's windows; show, acknowledge or close one
    Windows(Windows),
    /// Follow a probe's windows as they are closed
    Watch(Watch),
    /// Follow a probe's events
    Events {
        /// The probe
        name: String,
        /// Show only the events of this metric
        #[arg(short, long)]
        metric: Option<String>,
    },
    /// Show what a probe would have measured of captured packets
    Replay(Replay),
    /// Show what the kernel can do, and how each map type is read
    Capabilities(Capabilities),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}
