//! `twinprobe rules test`.

use std::collections::HashMap;
use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use twinprobe_api::RuleAction;
use twinprobe_client::{Client, WindowQuery};
use twinprobe_ebpf_common::window::WindowEntry;
use twinprobe_rules::{Decision, Rule, RuleState, WindowView};

use crate::commands::rules::document::RuleFile;
use crate::error::CommandError;
use crate::fleet::session::Session;
use crate::output::screen::Screen;
use crate::output::table::TextTable;
use crate::output::times;
use crate::output::view::ViewOption;

/// Says at which of the windows that a daemon retains a rule would have fired, and what it would have done. Nothing is done.
#[derive(Debug, Args)]
pub struct RuleTest {
    /// Rule in YAML or JSON; - reads standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Judge the windows of this probe, not of the one that the rule watches
    #[arg(long, value_name = "NAME")]
    probe: Option<String>,
    #[command(flatten)]
    view: ViewOption,
}

/// What a rule would have done.
#[derive(Debug, Default, Serialize)]
struct RuleReport {
    probe: String,
    /// The number of windows that were judged.
    windows: u64,
    decisions: Vec<DecisionReport>,
    /// Why the rule would have stopped itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<String>,
}

#[derive(Debug, Serialize)]
struct DecisionReport {
    window: u64,
    /// The end of the window.
    time: String,
    /// `fire` or `end`.
    decision: &'static str,
    #[serde(rename = "do", skip_serializing_if = "Vec::is_empty")]
    actions: Vec<RuleAction>,
    /// Why the actions could not be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// A window that was judged.
struct Judged {
    seq: u64,
    document: Value,
}

impl RuleTest {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let file = RuleFile::read(&self.file)?;
        let client = session.fleet.one()?;
        let name = self.probe.as_ref().unwrap_or(&file.document.watch);
        let query = WindowQuery { after: None, wait: None, collector: None };
        let windows = client.windows(name, query).await?.read()?.windows;
        let mut report = RuleReport { probe: name.clone(), ..RuleReport::default() };
        let (mut rules, mut state, mut previous) = (HashMap::new(), RuleState::default(), None::<Judged>);
        for entry in &windows {
            let (digest, document) = window(client, name, entry.seq).await?;
            if !rules.contains_key(&digest) {
                let shape = client.shape(name, entry.seq).await?.read()?;
                let rule = Rule::new(file.document.clone(), shape);
                rules.insert(digest.clone(), rule.map_err(|rejection| file.refused(&rejection))?);
            }
            let before = previous.filter(|before| before.seq + 1 == entry.seq);
            let before = before.as_ref().map(|before| &before.document);
            let decided = judge(&rules[&digest], &mut state, entry, &document, before);
            report.decisions.extend(decided);
            report.windows += 1;
            previous = Some(Judged { seq: entry.seq, document });
        }
        report.stopped = state.stopped;
        self.view.output.show(&report, |screen| render(&report, screen))
    }
}

/// Returns the document of a window, and the digest of its shape.
async fn window(client: &Client, name: &str, seq: u64) -> Result<(String, Value), CommandError> {
    let answer = client.shaped_window(name, seq, "application/json").await?;
    Ok((answer.shape.clone().unwrap_or_default(), answer.json()?))
}

fn judge(
    rule: &Rule,
    state: &mut RuleState,
    entry: &WindowEntry,
    document: &Value,
    before: Option<&Value>,
) -> Option<DecisionReport> {
    let views =
        WindowView::new(document).and_then(|window| Ok((window, before.map(WindowView::new).transpose()?)));
    let judgement = views.as_ref().map_err(Clone::clone);
    let judgement = judgement.and_then(|(window, before)| rule.judge(window, before.as_ref()));
    let end = entry.end.parse::<Timestamp>().map_or(0, Timestamp::as_nanosecond);
    let end = i64::try_from(end).unwrap_or(i64::MAX);
    let decision = state.step(rule, entry.seq, end, judgement)?;
    let (decision, actions) = match decision {
        Decision::Fire { .. } => {
            ("fire", views.and_then(|(window, before)| rule.actions(&window, before.as_ref())))
        }
        Decision::End { .. } => ("end", Ok(Vec::new())),
    };
    let (actions, error) = match actions {
        Ok(actions) => (actions, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    Some(DecisionReport { window: entry.seq, time: entry.end.clone(), decision, actions, error })
}

fn render(report: &RuleReport, screen: Screen) -> String {
    let mut table = TextTable::default();
    for decision in &report.decisions {
        let mut row = table.row();
        row.number("WINDOW", &decision.window.to_string());
        row.text("TIME", &times::precise(&decision.time));
        row.text("DECISION", decision.decision);
        let actions = decision.actions.iter().map(action).chain(decision.error.clone());
        let actions: Vec<_> = actions.collect();
        row.text("ACTIONS", &actions.join("; "));
    }
    let mut text = if table.is_empty() { String::new() } else { table.render(screen) };
    let fired = report.decisions.iter().filter(|decision| decision.decision == "fire").count();
    let (probe, windows) = (&report.probe, report.windows);
    text.push_str(&format!("the rule would have fired {fired} times in {windows} windows of {probe}\n"));
    if let Some(reason) = &report.stopped {
        text.push_str(&format!("it would have stopped: {reason}\n"));
    }
    text
}

pub fn action(action: &RuleAction) -> String {
    match action {
        RuleAction::Apply(probe) => format!("apply {} for {}", probe.name, probe.expires),
        RuleAction::Notify(url) => format!("notify {url}"),
        RuleAction::Delete(name) => format!("delete {name}"),
        RuleAction::Mark(text) => format!("mark {text}"),
    }
}
