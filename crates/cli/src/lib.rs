//! The command line of twinprobe: the commands that talk to a daemon, and those that need none. The binary adds `serve`.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod credentials;
mod error;
mod files;
mod fleet;
mod library;
mod output;
mod report;
mod run;
mod top;

pub use self::args::{Command, LogFormat, Options};
pub use self::commands::local::check::Check;
pub use self::commands::local::doctor::Doctor;
pub use self::error::CommandError;
pub use self::files::files::{ProbeFile, read as read_file};
pub use self::run::run;
