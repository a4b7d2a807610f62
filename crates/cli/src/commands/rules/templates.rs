//! `twinprobe rules templates`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use twinprobe_api::TemplateStatus;
use twinprobe_client::StatusCode;

use crate::error::CommandError;
use crate::files::files;
use crate::fleet::session::Session;
use crate::output::print;
use crate::output::screen::Screen;
use crate::output::table::TextTable;
use crate::output::times;
use crate::output::view::ViewOption;

/// Works with templates: configurations that rules deploy after filling in values of windows
#[derive(Debug, Args)]
pub struct RuleTemplates {
    #[command(subcommand)]
    command: TemplateAction,
}

#[derive(Debug, Subcommand)]
enum TemplateAction {
    /// Put configurations into a daemon as templates, by their names
    Apply {
        /// Configurations in YAML or JSON; - reads standard input. Repeatable
        #[arg(short, long, value_name = "FILE", required = true)]
        file: Vec<PathBuf>,
        /// Reason for the change, which the audit log shows
        #[arg(short, long, value_name = "TEXT")]
        message: Option<String>,
    },
    /// List the templates of a daemon, each with the rules that name it
    List {
        #[command(flatten)]
        view: ViewOption,
    },
    /// Show a template
    Get {
        /// Name of the template
        name: String,
        #[command(flatten)]
        view: ViewOption,
    },
    /// Remove templates that no rule names
    Delete {
        /// Names of the templates
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Reason for the change, which the audit log shows
        #[arg(short, long, value_name = "TEXT")]
        message: Option<String>,
    },
}

impl RuleTemplates {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let client = session.fleet.one()?;
        match self.command {
            TemplateAction::Apply { file, message } => {
                for template in files::read_all(&file)? {
                    let sent = client
                        .put_template(&template.name, &template.config, message.as_deref())
                        .await;
                    let sources = Box::new(template.sources);
                    let answer = sent.map_err(|error| CommandError::Probe { error, sources })?;
                    let verb = match answer.status {
                        StatusCode::CREATED => "created",
                        _ if answer.is_unchanged => "unchanged",
                        _ => "replaced",
                    };
                    print::print(format!("{verb} template {}", template.name))?;
                }
                Ok(())
            }
            TemplateAction::List { view } => {
                let list = client.templates().await?.read()?;
                view.output
                    .show(&list, |screen| table(&list.templates, screen))
            }
            TemplateAction::Get { name, view } => {
                let status = client.template(&name).await?.read()?;
                view.output.show(&status, |screen| {
                    table(std::slice::from_ref(&status), screen)
                })
            }
            TemplateAction::Delete { names, message } => {
                for name in &names {
                    client.delete_template(name, message.as_deref()).await?;
                    print::print(format!("deleted template {name}"))?;
                }
                Ok(())
            }
        }
    }
}

fn table(templates: &[TemplateStatus], screen: Screen) -> String {
    if templates.is_empty() {
        return "no templates\n".to_owned();
    }
    let mut table = TextTable::default();
    for template in templates {
        let mut row = table.row();
        row.text("NAME", &template.name);
        row.number("REVISION", &template.revision.to_string());
        row.text("CHANGED", &times::short(&template.changed));
        row.text("BY", &template.pushed_by);
        row.text("RULES", &template.rules.join(", "));
    }
    table.render(screen)
}
