//! A rule over the windows of many nodes: those that end in the same period count as one window.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use twinprobe_api::{ConfigDocument, RuleAction, RuleDocument, RuleNodes};
use twinprobe_ebpf_common::finding::{Finding, Rejection};
use twinprobe_ebpf_common::window::shape::WindowShape;

use crate::fleet::merged::merged;
use crate::rule::{Judgement, MissingValue, Rule};
use crate::state::{Decision, RuleState};
use crate::view::WindowView;

/// A window of a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeWindow<'a> {
    pub node: &'a str,
    pub document: &'a Value,
    /// The labels of the watched probe at this node.
    pub labels: &'a BTreeMap<String, String>,
}

/// A decision of a rule. Daemons remember it: their histories have it as the reason of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FleetEvent {
    /// The end of the period, nanoseconds since the Unix epoch.
    pub end: i64,
    /// True for a firing, false for the end of its actions.
    pub has_begun: bool,
}

/// The actions of a rule at the end of a period.
#[derive(Debug)]
pub struct PeriodDecision {
    pub decision: Option<Decision>,
    /// The actions; empty unless the rule fires. They contain the names of templates, because each
    /// node has its own templates.
    pub actions: Result<Vec<RuleAction>, String>,
    /// The values for templates, if the rule fires.
    pub values: Option<Arc<PeriodValues>>,
    /// The nodes at which the rule takes actions.
    pub nodes: BTreeSet<String>,
    /// The condition that has no value in the period, if there is one.
    pub missing: Option<MissingValue>,
}

/// A rule with its state.
#[derive(Debug)]
pub struct FleetRule {
    rule: Rule,
    length: Duration,
    pub state: RuleState,
    previous: Option<JudgedPeriod>,
}

/// The period at which a rule fires, for the templates of nodes.
#[derive(Debug)]
pub struct PeriodValues {
    rule: Rule,
    whole: Arc<Value>,
    before: Option<Arc<Value>>,
}

/// The results of a period: for all nodes together, and for each node.
#[derive(Debug)]
struct JudgedPeriod {
    period: u64,
    whole: Arc<Value>,
    nodes: BTreeMap<String, Value>,
}

impl FleetRule {
    /// Checks everything that needs no windows.
    pub fn check(document: &RuleDocument) -> Result<(), Rejection> {
        Rule::check(document)?;
        let mut findings = Vec::new();
        for (index, action) in document.actions.iter().enumerate() {
            let field = format!("do[{index}]");
            match action {
                RuleAction::Apply(probe) if probe.name.contains("{{") => {
                    let message = "over a fleet the name of a probe has no value of a window in it";
                    findings.push(Finding::config(format!("{field}.apply.name"), message));
                }
                RuleAction::Change(change) if change.name.contains("{{") => {
                    let message = "over a fleet the name of a probe has no value of a window in it";
                    findings.push(Finding::config(format!("{field}.change.name"), message));
                }
                RuleAction::Apply(_)
                | RuleAction::Change(_)
                | RuleAction::Notify(_)
                | RuleAction::Delete(_)
                | RuleAction::Mark(_) => {}
            }
        }
        if findings.is_empty() {
            Ok(())
        } else {
            Err(findings.into())
        }
    }

    /// Makes a rule over windows of this shape and length, which continues from `state`.
    pub fn new(
        document: RuleDocument,
        shape: WindowShape,
        length: Duration,
        state: RuleState,
    ) -> Result<Self, Rejection> {
        Self::check(&document)?;
        let rule = Rule::new(document, shape)?;
        Ok(Self {
            rule,
            length,
            state,
            previous: None,
        })
    }

    /// Judges the windows of a period together.
    pub fn step(&mut self, period: u64, windows: &[NodeWindow<'_>]) -> PeriodDecision {
        let all: Vec<&Value> = windows.iter().map(|window| window.document).collect();
        let whole = Arc::new(merged(&all, period, self.length));
        let mut nodes: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
        for window in windows {
            nodes
                .entry(window.node.to_owned())
                .or_default()
                .push(window.document);
        }
        let nodes = nodes
            .into_iter()
            .map(|(node, own)| (node, merged(&own, period, self.length)));
        let judged = JudgedPeriod {
            period,
            whole,
            nodes: nodes.collect(),
        };
        let previous = self
            .previous
            .take()
            .filter(|previous| previous.period + 1 == period);
        let before = previous.as_ref().map(|previous| &previous.whole);
        let judgement = self.judge(&judged.whole, before.map(|before| &**before));
        let end = end_of(period, self.length);
        let missing = judgement
            .as_ref()
            .ok()
            .and_then(|judgement| judgement.missing);
        let decision = self.state.step(&self.rule, period, end, judgement);
        let (mut actions, mut values, mut chosen) = (Ok(Vec::new()), None, BTreeSet::new());
        if let Some(Decision::Fire { .. }) = decision {
            let (rule, whole) = (self.rule.clone(), Arc::clone(&judged.whole));
            let fired = PeriodValues {
                rule,
                whole,
                before: before.cloned(),
            };
            actions = fired.with(|rule, window, before| rule.actions(window, before, None));
            values = Some(Arc::new(fired));
            chosen = self.chosen(windows, &judged, previous.as_ref());
        }
        self.previous = Some(judged);
        PeriodDecision {
            decision,
            actions,
            values,
            nodes: chosen,
            missing,
        }
    }

    fn judge(&self, window: &Value, before: Option<&Value>) -> Result<Judgement, String> {
        let before = before.map(WindowView::new).transpose()?;
        self.rule.judge(&WindowView::new(window)?, before.as_ref())
    }

    /// Returns the nodes that the actions are for. By default these are the nodes where the
    /// condition holds. If the condition holds only for all nodes together, these are all nodes.
    fn chosen(
        &self,
        windows: &[NodeWindow<'_>],
        judged: &JudgedPeriod,
        previous: Option<&JudgedPeriod>,
    ) -> BTreeSet<String> {
        let all = || {
            windows
                .iter()
                .map(|window| window.node.to_owned())
                .collect()
        };
        match &self.rule.document().on {
            Some(RuleNodes::Labels(wanted)) => {
                let fits = |window: &&NodeWindow<'_>| {
                    wanted
                        .iter()
                        .all(|(name, value)| window.labels.get(name) == Some(value))
                };
                windows
                    .iter()
                    .filter(fits)
                    .map(|window| window.node.to_owned())
                    .collect()
            }
            Some(RuleNodes::Named(name)) if name == RuleNodes::ALL => all(),
            Some(RuleNodes::Named(_)) | None => {
                let holds = |(node, window): (&String, &Value)| {
                    let before = previous.and_then(|previous| previous.nodes.get(node));
                    let judgement = self.judge(window, before);
                    judgement
                        .is_ok_and(|judgement| judgement.when)
                        .then(|| node.clone())
                };
                let own: BTreeSet<String> = judged.nodes.iter().filter_map(holds).collect();
                if own.is_empty() { all() } else { own }
            }
        }
    }
}

impl PeriodValues {
    /// Returns a template with the values in its texts.
    pub fn fill(&self, template: &ConfigDocument) -> Result<ConfigDocument, String> {
        let template = serde_json::to_value(template).map_err(|error| error.to_string())?;
        self.with(|rule, window, before| rule.fill(&template, (window, before)))
    }

    fn with<T>(
        &self,
        of: impl FnOnce(&Rule, &WindowView<'_>, Option<&WindowView<'_>>) -> Result<T, String>,
    ) -> Result<T, String> {
        let before = self.before.as_deref().map(WindowView::new).transpose()?;
        of(&self.rule, &WindowView::new(&self.whole)?, before.as_ref())
    }
}

/// Returns the period that a window belongs to: the one whose end is the nearest to that of the
/// window.
pub fn period_of(end: i64, length: Duration) -> u64 {
    let (end, length) = (u128::try_from(end).unwrap_or(0), length.as_nanos().max(1));
    u64::try_from((end + length / 2) / length).unwrap_or(u64::MAX)
}

/// Returns the end of a period in nanoseconds since the Unix epoch.
pub fn end_of(period: u64, length: Duration) -> i64 {
    i64::try_from(u128::from(period).saturating_mul(length.as_nanos())).unwrap_or(i64::MAX)
}

/// Returns the state of a rule before a period, from the decisions that daemons have stored.
/// `actions` is the number of its actions.
pub fn state_before(
    events: &[FleetEvent],
    period: u64,
    length: Duration,
    actions: usize,
) -> RuleState {
    let mut state = RuleState {
        window: period.saturating_sub(1),
        ..RuleState::default()
    };
    let before: BTreeSet<&FleetEvent> = events
        .iter()
        .filter(|event| period_of(event.end, length) < period)
        .collect();
    for event in before {
        if event.has_begun {
            state.firing = Some(period_of(event.end, length));
            state.fired = Some(event.end);
            state.taken.extend(std::iter::repeat_n(event.end, actions));
        } else {
            state.firing = None;
        }
    }
    state
}

/// Returns the reason that daemons record for a rule's actions. The next process recognizes the
/// actions by it.
pub fn reason(rule: &str, end: i64) -> String {
    let time = Timestamp::from_nanosecond(end.into()).unwrap_or_default();
    format!("fleet rule {rule}, {time}")
}

/// The end of the reason for a change that the rule has reverted.
const BACK: &str = ", taken back";

/// Returns the reason that daemons record when a rule reverts a change.
pub fn reason_back(rule: &str, end: i64) -> String {
    reason(rule, end) + BACK
}

impl FleetEvent {
    /// Parses the reason of a change; `None` for a change by somebody else. `is_put` is true if a
    /// probe was created or replaced.
    pub fn of_reason(reason: &str, rule: &str, is_put: bool) -> Option<Self> {
        let time = reason
            .strip_prefix("fleet rule ")?
            .strip_prefix(rule)?
            .strip_prefix(", ")?;
        let back = time.strip_suffix(BACK);
        let time: Timestamp = back.unwrap_or(time).parse().ok()?;
        let end = i64::try_from(time.as_nanosecond()).ok()?;
        Some(Self {
            end,
            has_begun: is_put && back.is_none(),
        })
    }
}

#[cfg(test)]
mod tests;
