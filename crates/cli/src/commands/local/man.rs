//! `twinprobe man`.

use std::path::PathBuf;

use clap::Args;

use crate::error::CommandError;

/// Writes a man page for the program, and one for each command, into a directory.
#[derive(Debug, Args)]
pub struct Man {
    /// The directory; it is made if it does not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Man {
    pub fn run(self, whole: clap::Command) -> Result<(), CommandError> {
        let failed = |source| CommandError::Written {
            path: self.directory.clone(),
            source,
        };
        std::fs::create_dir_all(&self.directory).map_err(failed)?;
        clap_mangen::generate_to(whole.disable_help_subcommand(true), &self.directory)
            .map_err(failed)
    }
}
