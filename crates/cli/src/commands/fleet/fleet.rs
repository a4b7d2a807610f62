//! `twinprobe fleet`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::commands::fleet::document::FleetFile;
use crate::commands::fleet::engine;
use crate::commands::fleet::outcome::FleetOutcome;
use crate::commands::fleet::rule::{RuleOutcome, spread_rule};
use crate::commands::fleet::survey::Survey;
use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::output::screen::Screen;
use crate::output::view::{OutputView, ViewOption};

/// Rolls a probe out over the daemons of `--servers`: a few first, and judges each step by the cost
/// of the probe there. Gives them a rule, all at once.
#[derive(Debug, Args)]
pub struct FleetCommand {
    #[command(subcommand)]
    command: FleetAction,
}

#[derive(Debug, Subcommand)]
enum FleetAction {
    /// Roll a probe out, step by step, or a rule; the same command continues after an interruption
    Apply(FleetApply),
    /// Show which daemons have the probe or rule in this revision, and its cost there
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
    /// MonitoringProbe or MonitoringRule in YAML or JSON, or several of them; - reads standard
    /// input
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
        let (view, message) = (self.view.output, self.message.as_deref());
        let says = !view.is_structured();
        let mut shown = Vec::new();
        for file in objects(&self.file.file)? {
            let outcome = match &file {
                FleetFile::Probe(file) => {
                    let survey = Survey::new(session, &file.plan)?;
                    ObjectOutcome::Probe(engine::roll_out(survey, file, message, says).await?)
                }
                FleetFile::Rule(file) => {
                    ObjectOutcome::Rule(spread_rule(session, file, message, true).await?)
                }
            };
            let result = outcome.result();
            shown.push(outcome);
            // An object may need an earlier object of the list, as a rule needs the probe that it
            // watches.
            if let Err(error) = result {
                show(view, &shown)?;
                return Err(error);
            }
        }
        show(view, &shown)
    }
}

impl FleetShow {
    async fn run(self, session: &Session) -> Result<(), CommandError> {
        let mut shown = Vec::new();
        for file in objects(&self.file.file)? {
            shown.push(match &file {
                FleetFile::Probe(file) => {
                    let mut survey = Survey::new(session, &file.plan)?;
                    survey.ask().await;
                    ObjectOutcome::Probe(FleetOutcome::found(&survey))
                }
                FleetFile::Rule(file) => {
                    ObjectOutcome::Rule(spread_rule(session, file, None, false).await?)
                }
            });
        }
        show(self.view.output, &shown)
    }
}

/// Reads the objects of a file, probes before rules: a rule needs the probe that it watches.
fn objects(path: &Path) -> Result<Vec<FleetFile>, CommandError> {
    let mut objects = FleetFile::read(path)?;
    objects.sort_by_key(|object| matches!(object, FleetFile::Rule(_)));
    Ok(objects)
}

/// The outcome for an object of a file.
#[derive(Serialize)]
#[serde(untagged)]
enum ObjectOutcome {
    Probe(FleetOutcome),
    Rule(RuleOutcome),
}

impl ObjectOutcome {
    fn result(&self) -> Result<(), CommandError> {
        match self {
            Self::Probe(outcome) => outcome.result(),
            Self::Rule(outcome) => outcome.result(),
        }
    }

    fn table(&self, screen: Screen) -> String {
        match self {
            Self::Probe(outcome) => outcome.table(screen),
            Self::Rule(outcome) => outcome.table(screen),
        }
    }
}

/// Shows the outcomes; programs get a list if there are several.
fn show(view: OutputView, outcomes: &[ObjectOutcome]) -> Result<(), CommandError> {
    let tables = |screen: Screen| {
        let tables: Vec<String> = outcomes
            .iter()
            .map(|outcome| outcome.table(screen))
            .collect();
        tables.join("\n")
    };
    match outcomes {
        [outcome] => view.show(outcome, tables),
        _ => view.show(&outcomes, tables),
    }
}
