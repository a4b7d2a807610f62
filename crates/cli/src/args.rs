//! The commands.

use clap::Subcommand;

use crate::commands::deploy::apply::{Apply, Validate};
use crate::commands::deploy::delete::Delete;
use crate::commands::deploy::diff::Diff;
use crate::commands::deploy::entries::Entries;
use crate::commands::deploy::history::History;
use crate::commands::deploy::revisions::RevisionsCommand;
use crate::commands::deploy::rollback::RollbackCommand;
use crate::commands::fleet::fleet::FleetCommand;
use crate::commands::local::completions::Completions;
use crate::commands::local::convert::Convert;
use crate::commands::local::man::Man;
use crate::commands::local::probes::Probes;
use crate::commands::local::stream::Stream;
use crate::commands::read::capabilities::CapabilitiesCommand;
use crate::commands::read::events::Events;
use crate::commands::read::get::Get;
use crate::commands::read::list::List;
use crate::commands::read::metrics::Metrics;
use crate::commands::read::names::NamesCommand;
use crate::commands::read::series::SeriesCommand;
use crate::commands::read::watch::WatchCommand;
use crate::commands::read::windows::WindowsCommand;
use crate::commands::rules::rules::RulesCommand;
use crate::commands::trial::bench::Bench;
use crate::commands::trial::propose::Propose;
use crate::commands::trial::replay::ReplayCommand;
use crate::top::top::Top;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Turn a configuration of Polycube dynmon or DeChainy into one for apply
    Convert(Convert),
    /// List the probes of the library, or explain one; `apply --probe` deploys them
    Probes(Probes),
    /// Send windows to other systems: brokers, files, object stores
    Stream(Stream),
    /// Print the completions for a shell
    Completions(Completions),
    /// Write the man pages into a directory
    Man(Man),
    #[command(flatten)]
    Client(Box<ClientCommand>),
}

/// Talks to a running daemon.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Create or replace probes, from files or from the library
    Apply(Apply),
    /// Compile and verify probes without attaching anything
    Validate(Validate),
    /// Write a configuration for a program that exists: its maps become metrics
    Propose(Propose),
    /// List the probes
    List(List),
    /// Show one probe: its status and its configuration
    Get(Get),
    /// Remove probes
    Delete(Delete),
    /// List the present and the earlier configurations of a probe
    Revisions(RevisionsCommand),
    /// Show the changes of one probe or of all probes: who made them, when, from where and why
    History(History),
    /// Show the differences between two configurations of a probe
    Diff(Diff),
    /// Deploy an earlier configuration of a probe again
    Rollback(RollbackCommand),
    /// Show the entries that a probe's configuration gives a map, or replace them
    Entries(Entries),
    /// Read a probe's metrics
    Metrics(Metrics),
    /// List a probe's windows; show, acknowledge or close one
    Windows(WindowsCommand),
    /// Show the numbers of a metric over the retained windows
    Series(SeriesCommand),
    /// Show the names of addresses and ports
    Names(NamesCommand),
    /// Follow a probe's windows as they close
    Watch(WatchCommand),
    /// Follow a probe's events
    Events(Events),
    /// Measure captured packets with a probe, without deploying it
    #[command(visible_alias = "test")]
    Replay(ReplayCommand),
    /// Measure the time that a probe takes for the packets of a capture, without changing its counts
    Bench(Bench),
    /// Roll a probe out over many daemons, a few first, and take it back if it costs too much
    Fleet(FleetCommand),
    /// Work with rules: put, list, test and remove them
    Rules(RulesCommand),
    /// Show all probes live, on the full screen
    Top(Top),
    /// Show what the kernel can do, and how each map type is read
    Capabilities(CapabilitiesCommand),
}
