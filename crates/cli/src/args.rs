//! The commands: the help of each, and the file that runs it.

use clap::Subcommand;

use crate::commands::{deploy, fleet, local, read, rules, trial};
use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::top;

/// Declares the commands that talk to a running daemon, and their calls.
macro_rules! client_commands {
    ($($(#[$help:meta])* $name:ident($($arguments:ident)::+),)*) => {
        /// Talks to a running daemon.
        #[derive(Debug, Subcommand)]
        pub enum ClientCommand {
            $($(#[$help])* $name($($arguments)::+),)*
        }

        impl ClientCommand {
            pub async fn run(self, session: &Session) -> Result<(), CommandError> {
                match self {
                    $(Self::$name(command) => command.run(session).await,)*
                }
            }
        }
    };
}

client_commands! {
    /// Create or replace probes, from files or from the library
    Apply(deploy::apply::Apply),
    /// Compile and verify probes without attaching anything
    Validate(deploy::apply::Validate),
    /// Write a configuration for a program that exists: its maps become metrics
    Propose(trial::propose::Propose),
    /// List the probes
    List(read::list::List),
    /// Show one probe: its status and its configuration
    Get(read::get::Get),
    /// Remove probes
    Delete(deploy::delete::Delete),
    /// List the present and the earlier configurations of a probe
    Revisions(deploy::revisions::RevisionsCommand),
    /// Show the changes of one probe or of all probes: who made them, when, from where and why
    History(deploy::history::History),
    /// Show the differences between two configurations of a probe
    Diff(deploy::diff::Diff),
    /// Deploy an earlier configuration of a probe again
    Rollback(deploy::rollback::RollbackCommand),
    /// Show the entries that a probe's configuration gives a map, or replace them
    Entries(deploy::entries::Entries),
    /// Read a probe's metrics
    Metrics(read::metrics::Metrics),
    /// List a probe's windows; show, acknowledge or close one
    Windows(read::windows::WindowsCommand),
    /// Show the numbers of a metric over the retained windows
    Series(read::series::SeriesCommand),
    /// Show the names of addresses and ports
    Names(read::names::NamesCommand),
    /// Follow a probe's windows as they close
    Watch(read::watch::WatchCommand),
    /// Follow a probe's events
    Events(read::events::Events),
    /// Measure captured packets with a probe, without deploying it
    #[command(visible_alias = "test")]
    Replay(trial::replay::ReplayCommand),
    /// Measure the time that a probe takes for the packets of a capture, without changing its
    /// counts
    Bench(trial::bench::Bench),
    /// Roll a probe out over many daemons, a few first, and take it back if it costs too much
    Fleet(fleet::fleet::FleetCommand),
    /// Work with rules: put, list, test and remove them
    Rules(rules::rules::RulesCommand),
    /// Show all probes live, on the full screen
    Top(top::top::Top),
    /// Show what the kernel can do, and how each map type is read
    Capabilities(read::capabilities::CapabilitiesCommand),
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Turn a configuration of Polycube dynmon or DeChainy into one for apply
    Convert(local::convert::Convert),
    /// List the probes of the library, or explain one; `apply --probe` deploys them
    Probes(local::probes::Probes),
    /// Send windows to other systems: brokers, files, object stores
    Stream(local::stream::Stream),
    /// Print the completions for a shell
    Completions(local::completions::Completions),
    /// Write the man pages into a directory
    Man(local::man::Man),
    #[command(flatten)]
    Client(Box<ClientCommand>),
}

impl Command {
    /// Runs the command of the program `whole`. A command that talks to daemons gets them from
    /// `session`.
    pub async fn run(
        self,
        session: impl FnOnce() -> Result<Session, CommandError>,
        whole: clap::Command,
    ) -> Result<(), CommandError> {
        match self {
            Self::Convert(command) => command.run(),
            Self::Probes(command) => command.run(),
            Self::Stream(command) => command.run(),
            Self::Completions(command) => command.run(whole),
            Self::Man(command) => command.run(whole),
            Self::Client(command) => command.run(&session()?).await,
        }
    }
}
