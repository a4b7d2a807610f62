//! `twinprobe rules test`.

use std::collections::HashMap;
use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use serde_json::Value;
use twinprobe_api::{RuleAction, RuleDecision, RuleDocument, RuleTrial, masked_url};
use twinprobe_client::{Captures, Client, ClientError, WindowQuery};
use twinprobe_ebpf_common::window::WindowEntry;
use twinprobe_rules::{Decision, Rule, RuleState, Templates, WindowView};

use crate::commands::rules::document::{RuleChoice, RuleFile};
use crate::error::CommandError;
use crate::files::files;
use crate::files::sources::Sources;
use crate::fleet::session::Session;
use crate::output::print;
use crate::output::screen::Screen;
use crate::output::table::TextTable;
use crate::output::times;
use crate::output::view::ViewOption;

/// Shows at which windows a rule would have fired, and its actions. No action is taken.
///
/// The windows are those that a daemon retains. With CAPTURE, they are the windows that the probe
/// would have had over these packets. The exit status is 0 if the rule would have fired, 3 if not,
/// and 1 if the test failed.
#[derive(Debug, Args)]
pub struct RuleTest {
    #[command(flatten)]
    choice: RuleChoice,
    /// Judge the windows of this probe instead of the one that the rule watches
    #[arg(long, value_name = "NAME")]
    probe: Option<String>,
    /// Packets in pcap, pcapng or snoop, perhaps compressed by gzip or zstd. A probe that runs, or
    /// one of the library, sees them
    #[arg(value_name = "CAPTURE")]
    capture: Option<PathBuf>,
    /// Packets of the egress
    #[arg(long, value_name = "FILE")]
    egress_capture: Option<PathBuf>,
    /// Address (IPv4, IPv6, Ethernet) of the host where the packets were captured
    #[arg(long, value_name = "ADDRESS")]
    local: Vec<String>,
    /// Length of the windows over the packets, as 500ms or 10s; by default that of the probe's
    /// configuration, else 1s
    #[arg(long, value_name = "TIME")]
    interval: Option<String>,
    /// Let the probe of this configuration see the packets
    #[arg(long, value_name = "FILE", conflicts_with = "probe")]
    config: Option<PathBuf>,
    #[command(flatten)]
    view: ViewOption,
}

/// A window that was judged.
struct JudgedWindow {
    seq: u64,
    document: Value,
}

impl RuleTest {
    pub async fn run(self, session: &Session) -> Result<(), CommandError> {
        let file = self.choice.read()?;
        let client = session.fleet.one()?;
        if file.document.scope.as_deref() == Some("fleet") {
            print::complain(
                "note: the rule is over a fleet; the test judges the windows of this daemon alone",
            );
        }
        let report = match self.capture.is_some() || self.egress_capture.is_some() {
            true => self.over_packets(client, &file).await?,
            false => self.over_windows(client, &file).await?,
        };
        self.view
            .output
            .show(&report, |screen| render(&report, screen))?;
        if firings(&report) == 0 {
            Err(CommandError::NotFired)
        } else {
            Ok(())
        }
    }

    async fn over_packets(
        &self,
        client: &Client,
        file: &RuleFile,
    ) -> Result<RuleTrial, CommandError> {
        let mut config = None;
        let mut sources = Sources::default();
        if let Some(path) = &self.config {
            let mut probes = files::read(path)?;
            let total = probes.len();
            let probe = probes.pop().filter(|_| total == 1);
            let probe = probe.ok_or_else(|| CommandError::OneProbe {
                path: path.clone(),
                total,
            })?;
            (config, sources) = (Some(probe.config), probe.sources);
        }
        let captures = Captures {
            capture: self.capture.clone(),
            egress_capture: self.egress_capture.clone(),
            local: self.local.clone(),
            ..Captures::default()
        };
        let query = [("interval", &self.interval), ("probe", &self.probe)];
        let query: Vec<_> = query
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.clone()?)))
            .collect();
        let answer = client
            .try_rule(&file.document, config.as_ref(), &captures, &query)
            .await;
        Ok(answer
            .map_err(|error| CommandError::Probe {
                error,
                sources: Box::new(sources),
            })?
            .read()?)
    }

    async fn over_windows(
        &self,
        client: &Client,
        file: &RuleFile,
    ) -> Result<RuleTrial, CommandError> {
        let name = self.probe.as_ref().unwrap_or(&file.document.watch);
        let query = WindowQuery {
            after: None,
            wait: None,
            collector: None,
        };
        let windows = client.windows(name, query).await?.read()?.windows;
        let templates = templates(client, &file.document).await?;
        let mut report = RuleTrial {
            probe: name.clone(),
            ..RuleTrial::default()
        };
        let (mut rules, mut state, mut previous) =
            (HashMap::new(), RuleState::default(), None::<JudgedWindow>);
        for entry in &windows {
            let (digest, document) = window(client, name, entry.seq).await?;
            if !rules.contains_key(&digest) {
                let shape = client.shape(name, entry.seq).await?.read()?;
                let rule = Rule::new(file.document.clone(), shape);
                rules.insert(
                    digest.clone(),
                    rule.map_err(|rejection| file.refused(&rejection))?,
                );
            }
            let before = previous.filter(|before| before.seq + 1 == entry.seq);
            let before = before.as_ref().map(|before| &before.document);
            let decided = judge(
                (&rules[&digest], &templates),
                &mut state,
                entry,
                (&document, before),
            );
            report.decisions.extend(decided);
            report.windows += 1;
            previous = Some(JudgedWindow {
                seq: entry.seq,
                document,
            });
        }
        report.stopped = state.stopped;
        Ok(report)
    }
}

/// Returns the existing templates that a rule names.
async fn templates(client: &Client, rule: &RuleDocument) -> Result<Templates, CommandError> {
    let mut found = Templates::new();
    for name in rule.templates() {
        match client.template(name).await {
            Ok(answer) => drop(found.insert(name.to_owned(), answer.read()?.config)),
            Err(ClientError::Refused(problem)) if problem.status == 404 => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// Returns the document of a window, and the digest of its shape.
async fn window(client: &Client, name: &str, seq: u64) -> Result<(String, Value), CommandError> {
    let answer = client.shaped_window(name, seq, "application/json").await?;
    Ok((answer.shape.clone().unwrap_or_default(), answer.json()?))
}

fn judge(
    (rule, templates): (&Rule, &Templates),
    state: &mut RuleState,
    entry: &WindowEntry,
    (document, before): (&Value, Option<&Value>),
) -> Option<RuleDecision> {
    let views = WindowView::new(document)
        .and_then(|window| Ok((window, before.map(WindowView::new).transpose()?)));
    let judgement = views.as_ref().map_err(Clone::clone);
    let judgement = judgement.and_then(|(window, before)| rule.judge(window, before.as_ref()));
    let end = entry
        .end
        .parse::<Timestamp>()
        .map_or(0, Timestamp::as_nanosecond);
    let end = i64::try_from(end).unwrap_or(i64::MAX);
    let decision = state.step(rule, entry.seq, end, judgement)?;
    let (decision, actions) = match decision {
        Decision::Fire { .. } => (
            "fire",
            views.and_then(|(window, before)| {
                rule.actions(&window, before.as_ref(), Some(templates))
            }),
        ),
        Decision::End { .. } => ("end", Ok(Vec::new())),
    };
    let (actions, error) = match actions {
        Ok(actions) => (actions.into_iter().map(RuleAction::masked).collect(), None),
        Err(error) => (Vec::new(), Some(error)),
    };
    Some(RuleDecision {
        window: entry.seq,
        time: entry.end.clone(),
        decision: decision.into(),
        actions,
        error,
    })
}

/// Returns how often the rule would have fired.
fn firings(report: &RuleTrial) -> usize {
    report
        .decisions
        .iter()
        .filter(|decision| decision.decision == "fire")
        .count()
}

fn render(report: &RuleTrial, screen: Screen) -> String {
    let mut table = TextTable::default();
    for decision in &report.decisions {
        let mut row = table.row();
        row.number("WINDOW", &decision.window.to_string());
        row.text("TIME", &times::precise(&decision.time));
        row.text("DECISION", &decision.decision);
        let actions = decision
            .actions
            .iter()
            .map(action)
            .chain(decision.error.clone());
        let actions: Vec<_> = actions.collect();
        row.text("ACTIONS", &actions.join("; "));
    }
    let mut text = if table.is_empty() {
        String::new()
    } else {
        table.render(screen)
    };
    let (fired, probe, windows) = (firings(report), &report.probe, report.windows);
    text.push_str(&format!(
        "the rule would have fired {fired} times in {windows} windows of {probe}\n"
    ));
    if let Some(reason) = &report.stopped {
        text.push_str(&format!("it would have stopped: {reason}\n"));
    }
    text
}

pub fn action(action: &RuleAction) -> String {
    match action {
        RuleAction::Apply(probe) => format!("apply {} for {}", probe.name, probe.expires),
        RuleAction::Change(change) => format!("change {}", change.name),
        RuleAction::Notify(url) => format!("notify {}", masked_url(url)),
        RuleAction::Delete(name) => format!("delete {name}"),
        RuleAction::Mark(text) => format!("mark {text}"),
    }
}
