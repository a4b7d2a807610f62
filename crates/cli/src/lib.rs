//! The command line of twinprobe: the commands that talk to a daemon, and those that need none. The
//! binary adds `serve`.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod credentials;
mod error;
pub mod files;
mod fleet;
mod moment;
mod names;
mod options;
pub mod output;
mod report;
mod run;
mod top;

pub use self::args::Command;
pub use self::commands::deploy::adjust::AdjustmentError;
pub use self::commands::local::stream::hand_over;
pub use self::error::CommandError;
pub use self::files::files::{ProbeFile, read as read_file};
pub use self::fleet::session::Session;
pub use self::options::{LogFormat, Options, for_clients_only, misplaced};
pub use self::report::reporter::Reporter;
pub use self::run::{exit, run, session};
