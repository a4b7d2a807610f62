//! `twinprobe rules revisions` and `rollback`.

use clap::Args;
use twinprobe_api::{Rollback, RuleRevision};

use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::output::screen::Screen;
use crate::output::table::TextTable;
use crate::output::times;
use crate::output::view::ViewOption;

/// Lists the revisions of a rule
#[derive(Debug, Args)]
pub struct RuleRevisions {
    /// Name of the rule
    name: String,
    #[command(flatten)]
    view: ViewOption,
}

/// Puts an earlier revision of a rule again
#[derive(Debug, Args)]
pub struct RuleRollback {
    /// Name of the rule
    name: String,
    /// Revision to put again; by default the one before the present one
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// Reason for the change, which `rules revisions` shows
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    #[command(flatten)]
    view: ViewOption,
}

impl RuleRevisions {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let list = session
            .fleet
            .one()?
            .rule_revisions(&self.name)
            .await?
            .read()?;
        self.view
            .output
            .show(&list, |screen| table(&list.revisions, screen))
    }
}

impl RuleRollback {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let Self {
            name,
            to,
            message,
            view,
        } = self;
        let client = session.fleet.one()?;
        let status = client
            .roll_rule_back(&name, Rollback { revision: to }, message.as_deref())
            .await?
            .read()?;
        let back = to.map_or_else(
            || "the revision before".to_owned(),
            |to| format!("revision {to}"),
        );
        let line = format!(
            "rolled back rule {name} to {back}; it is revision {}\n",
            status.revision
        );
        view.output.show(&status, |_| line)
    }
}

/// The newest revision comes first.
fn table(revisions: &[RuleRevision], screen: Screen) -> String {
    let mut table = TextTable::default();
    for revision in revisions.iter().rev() {
        let mut row = table.row();
        row.number("REVISION", &revision.revision.to_string());
        row.text("", if revision.current { "runs" } else { "" });
        row.text("PUT", &times::short(&revision.created));
        row.text("BY", &revision.pushed_by);
        row.text("WATCHES", &revision.rule.watch);
        row.text("WHEN", &revision.rule.when);
        row.text("WHY", revision.message.as_deref().unwrap_or_default());
    }
    table.render(screen)
}
