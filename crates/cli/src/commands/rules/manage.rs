//! `twinprobe rules apply`, `list`, `get` and `delete`.

use clap::Args;
use serde_json::{Value, json};
use twinprobe_api::{RuleDocument, RuleNotification, RuleStatus};
use twinprobe_client::Client;
use twinprobe_rules::Rule;

use crate::commands::deploy::names::change_everywhere;
use crate::commands::deploy::outcome::Done;
use crate::commands::rules::document::RuleChoice;
use crate::error::CommandError;
use crate::fleet::answers::NodeAnswers;
use crate::fleet::fleet::Node;
use crate::fleet::session::Session;
use crate::output::print;
use crate::output::screen::Screen;
use crate::output::table::TextTable;
use crate::output::times;
use crate::output::view::{OutputView, ViewOption};

/// Puts a rule into daemons, which run it from now on
#[derive(Debug, Args)]
pub struct RuleApply {
    /// Name of the rule; by default the one that it has in the library
    #[arg(required_unless_present = "library")]
    name: Option<String>,
    #[command(flatten)]
    choice: RuleChoice,
    /// Reason for the change, which the audit log shows
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
    #[command(flatten)]
    view: ViewOption,
}

/// Lists the rules of daemons
#[derive(Debug, Args)]
pub struct RuleListing {
    #[command(flatten)]
    view: ViewOption,
}

/// Shows a rule, its state and its last firings
#[derive(Debug, Args)]
pub struct RuleGet {
    /// Name of the rule
    name: String,
    #[command(flatten)]
    view: ViewOption,
}

/// Removes rules, and the probes that they have made
#[derive(Debug, Args)]
pub struct RuleDelete {
    /// Names of the rules
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Reason for the change, which the audit log shows
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
}

impl RuleApply {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let file = self.choice.read()?;
        let name = self
            .name
            .as_deref()
            .or(self.choice.library())
            .unwrap_or_default();
        let [Node { client, .. }] = session.fleet.nodes() else {
            // Daemons know neither the file nor its lines.
            Rule::check(&file.document).map_err(|rejection| file.refused(&rejection))?;
            let put = async |client: &Client, name: &str| {
                let answer = client
                    .put_rule(name, &file.document, self.message.as_deref())
                    .await?;
                Ok(done("runs", answer.json()?))
            };
            let names = [name.to_owned()];
            return change_everywhere(session, ("RULE", &names), self.view.output, put).await;
        };
        let put = client
            .put_rule(name, &file.document, self.message.as_deref())
            .await;
        let answer = put.map_err(|error| file.failed(error))?;
        let status = answer.read()?;
        let (name, watch, revision) = (&status.name, &status.rule.watch, status.revision);
        let line = format!("rule {name} watches {watch} (revision {revision})\n");
        self.view.output.show(&status, |_| line)
    }
}

impl RuleListing {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let view = self.view.output;
        if let [Node { client, .. }] = session.fleet.nodes() {
            let list = client.rules().await?.read()?;
            return view.show(&list, |screen| table(&[(None, &list.rules)], screen));
        }
        let ask = async |node: &Node| {
            let rules = node.client.rules().await?.read()?.rules;
            Ok((json!(rules), rules))
        };
        let answers = NodeAnswers::ask(session, "rules", ask).await;
        let lists: Vec<_> = answers
            .found
            .iter()
            .map(|(node, rules)| (Some(*node), rules))
            .collect();
        view.show(&answers.values, |screen| table(&lists, screen))?;
        answers.ended()
    }
}

impl RuleGet {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let status = session.fleet.one()?.rule(&self.name).await?.read()?;
        self.view
            .output
            .show(&status, |screen| describe(&status, screen))
    }
}

impl RuleDelete {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let [Node { client, .. }] = session.fleet.nodes() else {
            let remove = async |client: &Client, name: &str| {
                client.delete_rule(name, self.message.as_deref()).await?;
                Ok(done("deleted", Value::Null))
            };
            return change_everywhere(session, ("RULE", &self.names), OutputView::Table, remove)
                .await;
        };
        for name in &self.names {
            client.delete_rule(name, self.message.as_deref()).await?;
            print::print(format!("deleted {name}"))?;
        }
        Ok(())
    }
}

fn done(verb: &'static str, answer: Value) -> Done {
    Done {
        verb,
        places: String::new(),
        warnings: Vec::new(),
        ns_per_packet: None,
        answer,
    }
}

/// Makes a table of the rules of daemons. It has the names of the daemons if there are several.
fn table(lists: &[(Option<&str>, &Vec<RuleStatus>)], screen: Screen) -> String {
    if lists.iter().all(|(_, rules)| rules.is_empty()) {
        return "no rules\n".to_owned();
    }
    let mut table = TextTable::default();
    for (node, rule) in lists
        .iter()
        .flat_map(|(node, rules)| rules.iter().map(move |rule| (node, rule)))
    {
        let mut row = table.row();
        if let Some(node) = node {
            row.text("NODE", node);
        }
        row.text("NAME", &rule.name);
        row.text("WATCHES", &rule.rule.watch);
        row.text("STATE", &rule.state);
        row.number("WINDOW", &rule.window.to_string());
        row.text(
            "LAST FIRED",
            &rule
                .firings
                .last()
                .map(|firing| times::precise(&firing.time))
                .unwrap_or_default(),
        );
        row.text("PROBES", &rule.probes.join(", "));
    }
    table.render(screen)
}

fn describe(status: &RuleStatus, screen: Screen) -> String {
    let mut text = table(&[(None, &vec![status.clone()])], screen);
    match (&status.reason, &status.last_error) {
        (Some(reason), _) => text.push_str(&format!("stopped: {reason}\n")),
        (None, Some(error)) => text.push_str(&format!("last error: {error}\n")),
        (None, None) => {}
    }
    for waiting in &status.notifications {
        let RuleNotification {
            window,
            action,
            attempts,
            error,
        } = waiting;
        let error = error
            .as_ref()
            .map(|error| format!(": {error}"))
            .unwrap_or_default();
        text.push_str(&format!(
            "notification do[{action}] of window {window} has not arrived after {attempts} attempts{error}\n"
        ));
    }
    if let Some(no_value) = &status.no_value {
        text.push_str(&format!("window {}: {no_value}\n", status.window));
    }
    if !status.gone.is_empty() {
        text.push_str(&format!(
            "not there any more (lease over, or deleted): {}\n",
            status.gone.join(", ")
        ));
    }
    let most = status
        .rule
        .max_actions_per_hour
        .unwrap_or(RuleDocument::DEFAULT_ACTIONS_PER_HOUR);
    text.push_str(&format!(
        "actions left in this hour: {} of {most}\n",
        status.actions_left
    ));
    if status.missed > 0 {
        text.push_str(&format!(
            "{} windows were removed before they could be judged\n",
            status.missed
        ));
    }
    if !status.firings.is_empty() {
        text.push('\n');
        text.push_str(&firings(status).render(screen));
    }
    text
}

/// Makes a table of the last firings of a rule.
fn firings(status: &RuleStatus) -> TextTable {
    let mut table = TextTable::default();
    for firing in &status.firings {
        let mut row = table.row();
        row.number("WINDOW", &firing.window.to_string());
        row.text("TIME", &times::precise(&firing.time));
        let actions: Vec<_> = firing.actions.iter().map(super::test::action).collect();
        row.text("ACTIONS", &actions.join("; "));
        let state = match (&firing.error, &firing.ended, &firing.done) {
            (Some(error), ..) => error,
            (None, Some(_), _) => "ended",
            (None, None, Some(_)) => "taken",
            (None, None, None) if status.waits(firing.window) => "notifying",
            (None, None, None) => "acting",
        };
        row.text("STATE", state);
    }
    table
}
