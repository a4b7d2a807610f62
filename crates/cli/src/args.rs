//! The arguments of the command line.

use clap::{Args, Subcommand, ValueEnum};

use crate::commands::deploy::apply::{Apply, Validate};
use crate::commands::deploy::delete::Delete;
use crate::commands::deploy::diff::Diff;
use crate::commands::deploy::revisions::Revisions;
use crate::commands::deploy::rollback::Rollback;
use crate::commands::local::build::Build;
use crate::commands::local::completions::Completions;
use crate::commands::local::convert::Convert;
use crate::commands::local::doctor::Doctor;
use crate::commands::local::man::Man;
use crate::commands::local::probes::Probes;
use crate::commands::local::token::Token;
use crate::commands::read::capabilities::Capabilities;
use crate::commands::read::events::Events;
use crate::commands::read::get::Get;
use crate::commands::read::list::List;
use crate::commands::read::metrics::Metrics;
use crate::commands::read::watch::Watch;
use crate::commands::read::windows::Windows;
use crate::commands::trial::bench::Bench;
use crate::commands::trial::replay::Replay;
use crate::credentials::CredentialOptions;
use crate::fleet::servers::ServerOptions;
use crate::top::top::Top;

/// The options of all commands.
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    pub servers: ServerOptions,
    #[command(flatten)]
    pub credentials: CredentialOptions,
    /// Show the whole output of the compiler or of the verifier
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Format of log lines
    #[arg(long, global = true, value_enum, default_value = "text")]
    pub log_format: LogFormat,
    /// Least severe log lines that are written: error, warn, info, debug or trace, or such levels by module as in RUST_LOG
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log_level: Option<String>,
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
    /// Print the completions for a shell
    Completions(Completions),
    /// Write the man pages into a directory
    Man(Man),
    /// Show what this kernel, privileges, file systems and limits allow, and what to change
    Doctor(Doctor),
    #[command(flatten)]
    Client(ClientCommand),
}

/// Talks to a running daemon.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Create or replace probes, from files or from the library
    Apply(Apply),
    /// Compile and verify probes without attaching anything
    Validate(Validate),
    /// List the probes
    List(List),
    /// Show one probe: its status and its configuration
    Get(Get),
    /// Remove probes
    Delete(Delete),
    /// List the configurations that a probe has and had
    Revisions(Revisions),
    /// Show what differs between two configurations of a probe
    Diff(Diff),
    /// Deploy an earlier configuration of a probe again
    Rollback(Rollback),
    /// Read a probe's metrics
    Metrics(Metrics),
    /// List a probe's windows; show, acknowledge or close one
    Windows(Windows),
    /// Follow a probe's windows as they are closed
    Watch(Watch),
    /// Follow a probe's events
    Events(Events),
    /// Show what a probe would have measured of captured packets
    #[command(visible_alias = "test")]
    Replay(Replay),
    /// Measure what a probe takes for the packets of a capture, without touching its counts
    Bench(Bench),
    /// Show all probes live, full screen
    Top(Top),
    /// Show what the kernel can do, and how each map type is read
    Capabilities(Capabilities),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}
