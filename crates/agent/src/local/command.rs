//! The choice among the commands of this folder.

use std::process::ExitCode;

use clap::Subcommand;
use twinprobe_cli::{CommandError, Options, Reporter, exit, session};

use crate::local::build::Build;
use crate::local::doctor::Doctor;
use crate::local::token::TokenCommand;

#[derive(Debug, Subcommand)]
pub enum LocalCommand {
    /// Compile the sources of configurations, for daemons without a compiler
    Build(Build),
    /// Make a token: print it, and its line for the file of --tokens
    Token(TokenCommand),
    /// Show what this kernel, the privileges, file systems and limits allow, and what to change
    Doctor(Doctor),
}

impl LocalCommand {
    pub async fn run(self, options: &Options) -> ExitCode {
        let reporter = Reporter::new(options.client.verbose);
        exit(self.done(options, &reporter).await, &reporter)
    }

    async fn done(self, options: &Options, reporter: &Reporter) -> Result<(), CommandError> {
        match self {
            Self::Build(command) => command.run(reporter).await,
            Self::Token(command) => command.run(),
            Self::Doctor(command) => command.run(&session(options)?).await,
        }
    }
}
