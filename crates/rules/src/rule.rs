//! A rule that obeys every rule for rules.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;
use twinprobe_api::{RuleAction, RuleChange, RuleDocument, RuleNodes, RuleProbe, masked_url};
use twinprobe_ebpf_common::finding::{Finding, Rejection};

use crate::expression::budget::ExpressionBudget;
use crate::expression::expression::{Expression, NoValue};
use crate::expression::fault::ExpressionFault;
use crate::expression::reading::Kind;
use crate::template::{self, JudgedWindows, Templates};
use crate::view::WindowView;
use twinprobe_ebpf_common::window::shape::WindowShape;

const WINDOWS: RangeInclusive<u32> = 1..=1000;
const ACTIONS: RangeInclusive<usize> = 1..=8;
const ACTIONS_PER_HOUR: RangeInclusive<u32> = 1..=1000;
pub const DEFAULT_ACTIONS_PER_HOUR: u32 = RuleDocument::DEFAULT_ACTIONS_PER_HOUR;
/// The scope of rules over the windows of many nodes.
pub const FLEET: &str = RuleDocument::FLEET;
const DEFAULT_COOLDOWN: Duration = Duration::from_mins(1);
/// The valid sampling rates: one packet of this many.
const SAMPLES: RangeInclusive<u64> = 1..=u32::MAX as u64;
/// The longest URL of a notification, in bytes.
const LONGEST_URL: usize = 2048;
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// A rule, checked against the windows of the probe that it watches.
#[derive(Clone, Debug)]
pub struct Rule {
    document: RuleDocument,
    shape: WindowShape,
    when: Expression,
    until: Option<Expression>,
    /// The number of consecutive windows for which the condition must be true.
    pub windows: u32,
    /// The time after a firing in which the rule can't fire again.
    pub cooldown: Duration,
    pub max_actions_per_hour: u32,
}

/// The outcome of a rule's conditions for a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub when: bool,
    /// The rule's actions must end.
    pub until: bool,
    /// The condition that has no value, if there is one. It counts as false.
    pub missing: Option<MissingValue>,
}

/// A condition that has no value in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingValue {
    /// `when` or `until`.
    pub condition: &'static str,
    pub why: NoValue,
}

impl fmt::Display for MissingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has no value: {}", self.condition, self.why)
    }
}

impl Rule {
    /// Checks a rule. It reports all mistakes together.
    pub fn new(document: RuleDocument, shape: WindowShape) -> Result<Self, Rejection> {
        let (mut findings, mut budget) = (Vec::new(), ExpressionBudget::default());
        let mut condition =
            |field: &str, text: &str| match Expression::condition(text, &shape, &mut budget) {
                Ok(expression) => Some(expression),
                Err(fault) => {
                    findings.push(finding(field, fault));
                    None
                }
            };
        let when = condition("when", &document.when);
        let until = document
            .until
            .as_ref()
            .and_then(|text| condition("until", text));
        let bounds = Bounds::of(&document, &mut findings);
        check_actions(&document, Some(&shape), &mut budget, &mut findings);
        match when {
            Some(when) if findings.is_empty() => {
                let Bounds {
                    windows,
                    cooldown,
                    max_actions_per_hour,
                } = bounds;
                Ok(Self {
                    when,
                    until,
                    windows,
                    cooldown,
                    max_actions_per_hour,
                    document,
                    shape,
                })
            }
            _ => Err(findings.into()),
        }
    }

    /// Checks the parts of a rule that do not depend on the windows of its probe: everything except
    /// the names and types in expressions.
    pub fn check(document: &RuleDocument) -> Result<(), Rejection> {
        let (mut findings, mut budget) = (Vec::new(), ExpressionBudget::default());
        let conditions = [
            ("when", Some(&document.when)),
            ("until", document.until.as_ref()),
        ];
        for (field, text) in conditions
            .into_iter()
            .filter_map(|(field, text)| Some((field, text?)))
        {
            if let Err(fault) = Expression::check(text, None, &mut budget) {
                findings.push(finding(field, fault));
            }
        }
        Bounds::of(document, &mut findings);
        check_actions(document, None, &mut budget, &mut findings);
        if findings.is_empty() {
            Ok(())
        } else {
            Err(findings.into())
        }
    }

    pub const fn document(&self) -> &RuleDocument {
        &self.document
    }

    /// Evaluates the conditions over a window and the one before it. An error says why there is no
    /// result.
    pub fn judge(
        &self,
        window: &WindowView<'_>,
        previous: Option<&WindowView<'_>>,
    ) -> Result<Judgement, String> {
        let when = self.when.holds(window, previous)?;
        let until = match &self.until {
            Some(until) => until.holds(window, previous)?,
            None => when.map(|when| !when),
        };
        let missing = match (when, until) {
            (Err(why), _) => Some(MissingValue {
                condition: "when",
                why,
            }),
            (_, Err(why)) => Some(MissingValue {
                condition: "until",
                why,
            }),
            (Ok(_), Ok(_)) => None,
        };
        Ok(Judgement {
            when: when == Ok(true),
            until: until == Ok(true),
            missing,
        })
    }

    /// Returns the actions with the values of the window in their texts, and the configurations of
    /// templates in them. Without `templates` actions keep the names of templates only.
    pub fn actions(
        &self,
        window: &WindowView<'_>,
        previous: Option<&WindowView<'_>>,
        templates: Option<&Templates>,
    ) -> Result<Vec<RuleAction>, String> {
        let filled = |action: &RuleAction| {
            let mut value = serde_json::to_value(action).map_err(|error| error.to_string())?;
            if let (RuleAction::Apply(probe), Some(templates)) = (action, templates)
                && let Some(name) = &probe.template
            {
                let config = templates.get(name);
                let config = config
                    .ok_or_else(|| format!("there is no template named {name}; put it first"))?;
                value["apply"]["config"] =
                    serde_json::to_value(config).map_err(|error| error.to_string())?;
            }
            self.fill(&value, (window, previous))
        };
        self.document.actions.iter().map(filled).collect()
    }

    /// Returns the value with the values of windows in its texts.
    pub fn fill<T: DeserializeOwned>(
        &self,
        value: &Value,
        windows: JudgedWindows<'_>,
    ) -> Result<T, String> {
        let value = template::fill(value, &self.shape, windows)?;
        serde_json::from_value(value).map_err(|error| error.to_string())
    }
}

/// The limits for how often a rule fires.
struct Bounds {
    windows: u32,
    cooldown: Duration,
    max_actions_per_hour: u32,
}

impl Bounds {
    fn of(document: &RuleDocument, findings: &mut Vec<Finding>) -> Self {
        let windows = document.windows.unwrap_or(1);
        if !WINDOWS.contains(&windows) {
            findings.push(Finding::config(
                "for",
                format!("{windows} is not a number of windows; use 1 to 1000"),
            ));
        }
        let max_actions_per_hour = document
            .max_actions_per_hour
            .unwrap_or(DEFAULT_ACTIONS_PER_HOUR);
        if !ACTIONS_PER_HOUR.contains(&max_actions_per_hour) {
            let message =
                format!("{max_actions_per_hour} is not a limit of actions; use 1 to 1000");
            findings.push(Finding::config("max_actions_per_hour", message));
        }
        let cooldown = document
            .cooldown
            .as_deref()
            .map_or(Ok(DEFAULT_COOLDOWN), duration);
        let cooldown = cooldown.unwrap_or_else(|message| {
            findings.push(Finding::config("cooldown", message));
            DEFAULT_COOLDOWN
        });
        Self {
            windows,
            cooldown,
            max_actions_per_hour,
        }
    }
}

fn finding(field: &str, fault: ExpressionFault) -> Finding {
    Finding::config(field, fault.message).at(fault.line, Some(fault.column))
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text
        .parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|duration| Duration::try_from(duration).ok());
    let possible = parsed.filter(|duration| *duration <= LONGEST);
    possible
        .ok_or_else(|| format!("{text:?} is not a duration of at most a year such as 10s, 5m, 1h"))
}

fn check_actions(
    document: &RuleDocument,
    shape: Option<&WindowShape>,
    budget: &mut ExpressionBudget,
    findings: &mut Vec<Finding>,
) {
    if !ACTIONS.contains(&document.actions.len()) {
        let message = format!("{} actions; a rule has 1 to 8", document.actions.len());
        findings.push(Finding::config("do", message));
    }
    check_scope(document, findings);
    for (index, action) in document.actions.iter().enumerate() {
        let field = format!("do[{index}]");
        let value = serde_json::to_value(action).unwrap_or(Value::Null);
        if let Err(finding) = template::check(&value, shape, budget) {
            findings.push(template::below(&field, finding));
        }
        match action {
            RuleAction::Apply(probe) => check_probe(&field, probe, &document.watch, findings),
            RuleAction::Change(change) => check_change(&field, change, document, shape, findings),
            RuleAction::Notify(url) => {
                if let Some(message) = fault_of_url(url) {
                    findings.push(Finding::config(format!("{field}.notify"), message));
                }
            }
            RuleAction::Delete(name) if *name == document.watch => {
                let message =
                    "the rule would delete the probe that it watches, and never see a window again";
                findings.push(Finding::config(format!("{field}.delete"), message));
            }
            RuleAction::Delete(_) | RuleAction::Mark(_) => {}
        }
    }
}

/// Returns the mistake in the URL of a notification. The message shows no password.
fn fault_of_url(url: &str) -> Option<String> {
    if !url.starts_with("https://") && !url.starts_with("http://") {
        let shown = masked_url(url);
        return Some(format!(
            "{shown:?} is not a URL that begins with https:// or http://"
        ));
    }
    (url.len() > LONGEST_URL).then(|| {
        format!(
            "the URL has {} bytes; the limit is {LONGEST_URL}",
            url.len()
        )
    })
}

fn check_scope(document: &RuleDocument, findings: &mut Vec<Finding>) {
    if let Some(scope) = &document.scope
        && !["node", FLEET].contains(&scope.as_str())
    {
        findings.push(Finding::config(
            "scope",
            format!("{scope:?} is not a scope; use node or fleet"),
        ));
    }
    match &document.on {
        Some(_) if document.scope.as_deref() != Some(FLEET) => {
            findings.push(Finding::config(
                "on",
                "only a rule with `scope: fleet` chooses nodes",
            ));
        }
        Some(RuleNodes::Named(name)) if !RuleNodes::NAMES.contains(&name.as_str()) => {
            let message = format!(
                "{name:?} is not a choice of nodes; use where, all, or labels such as {{rack: a}}"
            );
            findings.push(Finding::config("on", message));
        }
        _ => {}
    }
}

fn check_probe(field: &str, probe: &RuleProbe, watched: &str, findings: &mut Vec<Finding>) {
    let field = format!("{field}.apply");
    if probe.name == watched {
        let message = "the rule watches the probe of this name: it would react to itself; choose another name";
        findings.push(Finding::config(format!("{field}.name"), message));
    }
    let given = [
        probe.probe.is_some(),
        probe.config.is_some(),
        probe.template.is_some(),
    ];
    if given.into_iter().filter(|is_given| *is_given).count() != 1 {
        let message = "give one of `probe`, the name of a probe of the library, `config`, a configuration, and `template`, the \
                       name of a template";
        findings.push(Finding::config(&*field, message));
    }
    if let Err(message) = duration(&probe.expires) {
        findings.push(Finding::config(format!("{field}.expires"), message));
    }
}

fn check_change(
    field: &str,
    change: &RuleChange,
    document: &RuleDocument,
    shape: Option<&WindowShape>,
    findings: &mut Vec<Finding>,
) {
    let field = format!("{field}.change");
    if change.variables.is_empty() && change.defines.is_empty() && change.sample.is_none() {
        findings.push(Finding::config(
            &*field,
            "changes nothing; give variables, defines or sample",
        ));
    }
    if let Some(message) = change
        .sample
        .as_ref()
        .and_then(|sample| fault_of_sample(sample, shape))
    {
        findings.push(Finding::config(format!("{field}.sample"), message));
    }
    let others = document.actions.iter().filter(|action| match action {
        RuleAction::Apply(probe) => probe.name == change.name,
        RuleAction::Delete(name) => *name == change.name,
        RuleAction::Change(other) => other.name == change.name,
        RuleAction::Notify(_) | RuleAction::Mark(_) => false,
    });
    if others.count() > 1 {
        let message =
            "another action of the rule deploys, deletes or changes this probe; put both into one";
        findings.push(Finding::config(format!("{field}.name"), message));
    }
}

/// Returns the mistake in a rate of samples: it is a number, or one expression for a number.
fn fault_of_sample(sample: &Value, shape: Option<&WindowShape>) -> Option<String> {
    if let Some(expression) = sample.as_str().and_then(template::only_expression) {
        // Another check has found the mistakes in the expression itself.
        let kind = shape
            .and_then(|shape| Expression::value(expression, shape).ok())?
            .kind();
        let message = || format!("{sample} is {}; a number is needed", kind.name());
        return (kind != Kind::Number).then(message);
    }
    let is_possible = sample
        .as_u64()
        .is_some_and(|one_in| SAMPLES.contains(&one_in));
    let message = || {
        format!(
            "{sample} packets; the probe can see one packet in 1 to 4294967295: write this number, or one {{{{...}}}} for it"
        )
    };
    (!is_possible).then(message)
}

#[cfg(test)]
mod tests;
