//! `stream`: hands over to the program `twinprobe-stream`, so that this program does not contain
//! the libraries of all receivers.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::error::CommandError;

/// The program that sends windows.
const PROGRAM: &str = "twinprobe-stream";

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Stream {
    /// Arguments of twinprobe-stream; `twinprobe stream --help` shows them
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARG"
    )]
    arguments: Vec<OsString>,
}

impl Stream {
    /// Replaces this process by the program. Returns only if that fails.
    pub fn run(self) -> Result<(), CommandError> {
        Err(hand_over(self.arguments))
    }
}

/// Runs `twinprobe-stream` in place of this process: the one beside this program, else the one in
/// PATH. Returns why that failed.
pub fn hand_over(arguments: impl IntoIterator<Item = OsString>) -> CommandError {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let program = beside
        .filter(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(program).args(arguments).exec();
    match error.kind() {
        std::io::ErrorKind::NotFound => CommandError::NoStream,
        _ => CommandError::Stream(error),
    }
}
