//! The command line of twinprobe: the commands that talk to a daemon, and those that need none. The binary adds `serve`.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod credentials;
mod error;
mod files;
mod library;
mod output;
mod run;

pub use self::args::{Command, LogFormat, Options};
pub use self::error::CommandError;
pub use self::run::run;
