//! The reasons why a command failed.

use std::io;
use std::path::PathBuf;

use twinprobe_client::ClientError;
use twinprobe_ebpf_common::finding::Rejection;

use crate::commands::deploy::adjust::AdjustmentError;
use crate::files::files::ProbeFileError;
use crate::files::sources::Sources;
use twinprobe_library::{LibraryError, NoSuchRule};

/// The exit statuses for a failure, for wrong usage, and for `rules test` if the rule would not
/// have fired.
const FAILURE: u8 = 1;
const USAGE: u8 = 2;
const NOT_FIRED: u8 = 3;

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A daemon's refusal of a configuration, and the sources in the refusal.
    #[error("{error}")]
    Probe {
        error: ClientError,
        sources: Box<Sources>,
    },
    #[error("a configuration is needed: --file FILE, or --probe NAME for one of the library")]
    NoChoice,
    #[error(
        "a probe is needed: the NAME of one that runs, --file FILE, or --probe NAME for one of the library"
    )]
    NoProbe,
    /// Mistakes that were found without a daemon.
    #[error("the configuration is refused")]
    Rejected {
        rejection: Rejection,
        sources: Box<Sources>,
    },
    #[error(transparent)]
    File(#[from] ProbeFileError),
    #[error(
        "there is no `twinprobe-stream`, neither beside this program nor in PATH; the Debian package \
            twinprobe contains it, and \
         `cargo build --release -p twinprobe-streams` makes it"
    )]
    NoStream,
    #[error("`twinprobe-stream` can't be run: {0}")]
    Stream(#[source] io::Error),
    #[error("nothing can be compiled here: {0}")]
    NoCompiler(String),
    #[error(
        "the command needs the source of the probe, and the daemon shows sources to the role operator only"
    )]
    NoSources,
    #[error("the daemon has an earlier version, which does not report the run time of programs")]
    NoTiming,
    #[error("the probe sees none of the packets in {}", path.display())]
    NoPackets { path: PathBuf },
    #[error("the terminal can't be used for a live view; `twinprobe list` and `watch` need none")]
    Terminal(#[source] io::Error),
    #[error("{failed} of {total} checks failed")]
    Unfit { failed: usize, total: usize },
    #[error("{0}")]
    Servers(String),
    #[error("this command needs exactly one daemon, but {0} are given; give one --server")]
    OneServer(usize),
    #[error("documents of several daemons are shown as table, wide, json or yaml")]
    NotOfMany,
    #[error("rates are shown as table, wide, json or yaml")]
    NoRates,
    #[error("the daemon has no sources of names; start it with --names hosts,services,dns,pods")]
    NoNames,
    #[error("{failed} of {total} servers failed")]
    Nodes { failed: usize, total: usize },
    #[error("no table has a column {column}; there are {known}")]
    NoColumn { column: String, known: String },
    #[error("{name} has no metric {metric}; it has {known}")]
    NoMetric {
        name: String,
        metric: String,
        known: String,
    },
    #[error(
        "--metric chooses what table, wide, json and yaml show; leave it out, or take one of these formats"
    )]
    NotOneMetric,
    #[error("{name} has several metrics, and `series` shows one: {known}")]
    WhichMetric { name: String, known: String },
    #[error(
        "{name} has no window of {time}: {why}; `twinprobe windows {name}` lists those that are retained"
    )]
    NoWindowThen {
        name: String,
        time: String,
        why: String,
    },
    #[error("{metric} has no key {key} in these windows; it has {known}")]
    NoKey {
        metric: String,
        key: String,
        known: String,
    },
    #[error("--from is not before --to")]
    NoTime,
    #[error("{name} has no revision {number}; it has {known}")]
    NoRevision {
        name: String,
        number: u64,
        known: String,
    },
    #[error("{name} has had only one configuration; a comparison needs an earlier one")]
    OneRevision { name: String },
    #[error("could not write {}", path.display())]
    Written { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Library(#[from] LibraryError),
    #[error(transparent)]
    LibraryRule(#[from] NoSuchRule),
    /// An end without a failure, which scripts read from the exit status.
    #[error("the rule would not have fired (exit status 3)")]
    NotFired,
    #[error(transparent)]
    Adjustment(#[from] AdjustmentError),
    #[error("could not read {}", path.display())]
    Credential { path: PathBuf, source: io::Error },
    #[error("could not read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} has no entries for a map: {problem}", path.display())]
    Entries { path: PathBuf, problem: String },
    #[error("{} is refused as a rule:\n  {problem}", path.display())]
    Rule { path: PathBuf, problem: String },
    #[error("{} is refused as an object of a fleet:\n  {problem}", path.display())]
    FleetObject { path: PathBuf, problem: String },
    #[error("{0}")]
    Rollout(String),
    #[error(transparent)]
    Convert(twinprobe_client::ConvertError),
    /// Some probes of several were refused. Each refusal has been printed already.
    #[error("{failed} of {total} probes were refused")]
    Several { failed: usize, total: usize },
    #[error("{} has {total} configurations; give one configuration for a replay", path.display())]
    OneProbe { path: PathBuf, total: usize },
    #[error("probe {name} was deleted")]
    Deleted { name: String },
    #[error("could not prepare for being interrupted")]
    Signal(#[source] io::Error),
    #[error("could not write the output")]
    Output(#[from] io::Error),
}

impl CommandError {
    /// Returns the exit status.
    pub const fn status(&self) -> u8 {
        match self {
            Self::NotFired => NOT_FIRED,
            error if error.is_usage() => USAGE,
            _ => FAILURE,
        }
    }

    /// Tells whether the arguments are wrong in themselves, for any daemons and files.
    const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Servers(_)
                | Self::OneServer(_)
                | Self::NotOfMany
                | Self::NoRates
                | Self::NoChoice
                | Self::NoProbe
                | Self::NoTime
        )
    }
}
