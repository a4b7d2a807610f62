//! `twinprobe fleet`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::commands::fleet::document::FleetFile;
use crate::commands::fleet::engine;
use crate::commands::fleet::outcome::FleetOutcome;
use crate::commands::fleet::survey::Survey;
use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::output::view::ViewOption;

/// Rolls a probe out over the daemons of `--servers`: a few first, and judges each step by the cost of the
/// probe there.
#[derive(Debug, Args)]
pub struct FleetCommand {
    #[command(subcommand)]
    command: FleetAction,
}

#[derive(Debug, Subcommand)]
enum FleetAction {
    /// Roll a probe out, step by step; the same command continues after an interruption
    Apply(FleetApply),
    /// Show which daemons have the probe in this revision, and its cost there
    Status(FleetShow),
}

#[derive(Debug, Args)]
struct FleetApply {
    #[command(flatten)]
    file: FleetFileOption,
    /// Reason for the change, which `revisions` and `history` show
    #[arg(short, long, value_name = "WHY")]
    message: Option<String>,
    #[command(flatten)]
    view: ViewOption,
}

#[derive(Debug, Args)]
struct FleetShow {
    #[command(flatten)]
    file: FleetFileOption,
    #[command(flatten)]
    view: ViewOption,
}

#[derive(Debug, Args)]
struct FleetFileOption {
    /// MonitoringProbe in YAML or JSON; - reads standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
}

impl FleetCommand {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        match self.command {
            FleetAction::Apply(command) => command.run(session).await,
            FleetAction::Status(command) => command.run(session).await,
        }
    }
}

impl FleetApply {
    async fn run(self, session: &Session) -> Result<(), CommandError> {
        let file = FleetFile::read(&self.file.file)?;
        let survey = Survey::new(session, &file.plan)?;
        let view = self.view.output;
        let says = !view.is_structured();
        let outcome = engine::roll_out(survey, &file, self.message.as_deref(), says).await?;
        view.show(&outcome, |screen| outcome.table(screen))?;
        outcome.result()
    }
}

impl FleetShow {
    async fn run(self, session: &Session) -> Result<(), CommandError> {
        let file = FleetFile::read(&self.file.file)?;
        let mut survey = Survey::new(session, &file.plan)?;
        survey.ask().await;
        let outcome = FleetOutcome::found(&survey);
        self.view.output.show(&outcome, |screen| outcome.table(screen))
    }
}
