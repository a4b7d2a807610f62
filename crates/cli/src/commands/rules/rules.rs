//! `twinprobe rules`.

use clap::{Args, Subcommand};

use crate::commands::rules::library::RuleLibrary;
use crate::commands::rules::manage::{RuleApply, RuleDelete, RuleGet, RuleListing};
use crate::commands::rules::revisions::{RuleRevisions, RuleRollback};
use crate::commands::rules::templates::RuleTemplates;
use crate::commands::rules::test::RuleTest;
use crate::error::CommandError;
use crate::fleet::session::Session;

/// Works with rules. A rule takes actions when the windows of a probe fulfil its condition.
#[derive(Debug, Args)]
pub struct RulesCommand {
    #[command(subcommand)]
    command: RulesAction,
}

#[derive(Debug, Subcommand)]
enum RulesAction {
    /// Put a rule into daemons, which run it from now on
    Apply(RuleApply),
    /// List the rules of daemons
    List(RuleListing),
    /// Show a rule, its state and its last firings
    Get(RuleGet),
    /// Remove rules, and the probes that they have made
    Delete(RuleDelete),
    /// List the revisions of a rule
    Revisions(RuleRevisions),
    /// Put an earlier revision of a rule again
    Rollback(RuleRollback),
    /// Test a rule: show when it would have fired over the retained windows of a daemon, or over
    /// captured packets
    Test(RuleTest),
    /// Work with templates: configurations that rules deploy after filling in values of windows
    Templates(RuleTemplates),
    /// List the rules of the library, or show one
    Library(RuleLibrary),
}

impl RulesCommand {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        match self.command {
            RulesAction::Apply(command) => command.run(session).await,
            RulesAction::List(command) => command.run(session).await,
            RulesAction::Get(command) => command.run(session).await,
            RulesAction::Delete(command) => command.run(session).await,
            RulesAction::Revisions(command) => command.run(session).await,
            RulesAction::Rollback(command) => command.run(session).await,
            RulesAction::Test(command) => command.run(session).await,
            RulesAction::Templates(command) => command.run(session).await,
            RulesAction::Library(command) => command.run(),
        }
    }
}
