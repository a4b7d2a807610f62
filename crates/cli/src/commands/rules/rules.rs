//! `twinprobe rules`.

use clap::{Args, Subcommand};

use crate::commands::rules::test::RuleTest;
use crate::error::CommandError;
use crate::fleet::session::Session;

/// Works with rules: what is done when the windows of a probe say so.
#[derive(Debug, Args)]
pub struct RulesCommand {
    #[command(subcommand)]
    command: RulesAction,
}

#[derive(Debug, Subcommand)]
enum RulesAction {
    /// Say when a rule would have fired over the windows that a daemon retains
    Test(RuleTest),
}

impl RulesCommand {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        match self.command {
            RulesAction::Test(command) => command.run(session).await,
        }
    }
}
