//! A rule: a condition over the windows of a probe, and the actions that follow.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::status::Word;

/// A rule as a client sends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleDocument {
    /// The probe whose windows the rule judges.
    pub watch: String,
    /// The place where windows are judged: `node`, the default, or `fleet`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The nodes that a rule over a fleet acts on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<RuleNodes>,
    /// The condition, in CEL.
    pub when: String,
    /// The number of windows in a row for which the condition must hold.
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<u32>,
    /// The condition that ends the actions of the rule. Without it, they end when `when` no longer
    /// holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    #[serde(rename = "do")]
    pub actions: Vec<RuleAction>,
    /// The time after a firing in which the rule does not fire again, such as `1m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooldown: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_actions_per_hour: Option<u32>,
}

/// The nodes that a rule over a fleet acts on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RuleNodes {
    /// `where`, the default: the nodes at which the condition holds; or `all`.
    Named(String),
    /// Nodes whose watched probe has these labels.
    Labels(BTreeMap<String, String>),
}

impl RuleNodes {
    pub const ALL: &str = "all";
    pub const NAMES: [&str; 2] = ["where", Self::ALL];
}

impl RuleDocument {
    /// The scope of rules over the windows of many nodes.
    pub const FLEET: &str = "fleet";

    pub const DEFAULT_ACTIONS_PER_HOUR: u32 = 20;

    /// Returns the names of the templates that the rule deploys.
    pub fn templates(&self) -> impl Iterator<Item = &str> {
        self.actions.iter().filter_map(|action| match action {
            RuleAction::Apply(probe) => probe.template.as_deref(),
            RuleAction::Change(_)
            | RuleAction::Notify(_)
            | RuleAction::Delete(_)
            | RuleAction::Mark(_) => None,
        })
    }

    /// Tells whether a configuration in the rule may decide about packets. A text may change when
    /// the rule fires, so every verdict counts but `observe`.
    pub fn may_enforce(&self) -> bool {
        let decides = |config: &Map<String, Value>| {
            let verdict = |direction| config.get(direction)?.get("verdict");
            ["ingress", "egress"]
                .into_iter()
                .filter_map(verdict)
                .any(|verdict| verdict != "observe")
        };
        self.actions.iter().any(|action| match action {
            RuleAction::Apply(probe) => probe.config.as_ref().is_some_and(decides),
            RuleAction::Change(_)
            | RuleAction::Notify(_)
            | RuleAction::Delete(_)
            | RuleAction::Mark(_) => false,
        })
    }
}

/// One action of a rule: an object with one field, the name of the action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ActionFields", into = "ActionFields")]
pub enum RuleAction {
    /// Deploys a probe as a lease of the rule.
    Apply(Box<RuleProbe>),
    /// Gives an existing probe other definitions and variables, until the rule ends its actions.
    Change(RuleChange),
    /// Sends the firing to this URL.
    Notify(String),
    /// Deletes the probe of this name.
    Delete(String),
    /// Writes this text to the audit log.
    Mark(String),
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    apply: Option<Box<RuleProbe>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    change: Option<RuleChange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    notify: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delete: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mark: Option<String>,
}

impl TryFrom<ActionFields> for RuleAction {
    type Error = &'static str;

    fn try_from(fields: ActionFields) -> Result<Self, Self::Error> {
        let ActionFields {
            apply,
            change,
            notify,
            delete,
            mark,
        } = fields;
        let given = [
            apply.map(Self::Apply),
            change.map(Self::Change),
            notify.map(Self::Notify),
            delete.map(Self::Delete),
            mark.map(Self::Mark),
        ];
        let mut given = given.into_iter().flatten();
        match (given.next(), given.next()) {
            (Some(action), None) => Ok(action),
            _ => Err("an action has one of the fields apply, change, notify, delete and mark"),
        }
    }
}

impl RuleAction {
    /// Removes the programs of an inline configuration, which may be large. Stored firings have no
    /// programs.
    #[must_use]
    pub fn without_sources(mut self) -> Self {
        if let Self::Apply(probe) = &mut self
            && let Some(config) = &mut probe.config
        {
            for direction in ["ingress", "egress"] {
                let Some(Value::Object(direction)) = config.get_mut(direction) else {
                    continue;
                };
                for program in ["source", "object", "files"] {
                    direction.remove(program);
                }
            }
        }
        self
    }
}

impl From<RuleAction> for ActionFields {
    fn from(action: RuleAction) -> Self {
        match action {
            RuleAction::Apply(probe) => Self {
                apply: Some(probe),
                ..Self::default()
            },
            RuleAction::Change(change) => Self {
                change: Some(change),
                ..Self::default()
            },
            RuleAction::Notify(url) => Self {
                notify: Some(url),
                ..Self::default()
            },
            RuleAction::Delete(name) => Self {
                delete: Some(name),
                ..Self::default()
            },
            RuleAction::Mark(text) => Self {
                mark: Some(text),
                ..Self::default()
            },
        }
    }
}

/// The probe that a rule deploys: one of the library, a configuration, or a template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleProbe {
    pub name: String,
    /// The name of a probe of the library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Map<String, Value>>,
    /// The name of a template. In a firing, `config` is the template with its values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The time after which the probe ends, such as `5m`.
    pub expires: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub defines: BTreeMap<String, String>,
}

/// Changes to an existing probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleChange {
    pub name: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub defines: BTreeMap<String, String>,
    /// N: the probe sees one packet in N, in each direction that it has. It is a number, or an
    /// expression for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Value>,
}

/// The answer to `GET /v1/rules`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RuleList {
    pub rules: Vec<RuleStatus>,
}

/// The answer to `GET /v1/rules/{name}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RuleStatus {
    pub name: String,
    /// `watching`, `waiting` (there is no such probe), `firing` (the actions of the rule continue)
    /// or `stopped`.
    pub state: Word,
    /// The reason why the rule has stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of documents that the rule has had.
    pub revision: u64,
    /// The time when the rule was first put, RFC 3339.
    pub created: String,
    pub pushed_by: String,
    /// The role that the actions of the rule have.
    pub role: Word,
    /// The number of the last window that the rule has judged, or of the last window before the
    /// rule was put.
    pub window: u64,
    /// The windows in a row for which the condition holds.
    pub holds: u32,
    /// The windows that were removed before the rule could judge them.
    pub missed: u64,
    /// The actions that the rule may still take in this hour.
    pub actions_left: u32,
    /// The last error of an action or a judgement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The reason why a condition had no value in the last window; `None` if each had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_value: Option<String>,
    /// The notifications that have not arrived yet, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notifications: Vec<RuleNotification>,
    /// The probes that the rule has deployed and not ended.
    pub probes: Vec<String>,
    /// The probes of the present firing that are not there any more: their lease is over, or
    /// somebody has deleted them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
    /// The probes that the rule has changed and not changed back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// The last firings, oldest first.
    pub firings: Vec<RuleFiring>,
    pub rule: RuleDocument,
}

impl RuleStatus {
    /// Tells whether a notification of the firing at this window has not arrived yet.
    pub fn waits(&self, window: u64) -> bool {
        self.notifications
            .iter()
            .any(|waiting| waiting.window == window)
    }
}

/// A notification that is sent until it arrives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleNotification {
    /// The number of the window at which the rule has fired.
    pub window: u64,
    /// The number of the action in the rule, from 0.
    pub action: usize,
    /// The attempts that have failed.
    pub attempts: u32,
    /// The failure of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A firing of a rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleFiring {
    /// The number of the window.
    pub window: u64,
    /// The end of the window, RFC 3339.
    pub time: String,
    /// The actions with the values of the window in them.
    #[serde(rename = "do")]
    pub actions: Vec<RuleAction>,
    /// The time when all actions were taken and all notifications had arrived, RFC 3339; `None`
    /// while that is not so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<String>,
    /// The time when the actions were ended, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The outcome of a rule's trial over windows, by `POST /v1/replay/rule`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RuleTrial {
    /// The probe whose windows were judged.
    pub probe: String,
    /// The number of windows that were judged.
    pub windows: u64,
    pub decisions: Vec<RuleDecision>,
    /// The reason why the rule would have stopped itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// The effect that a rule would have had at the end of a window.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RuleDecision {
    /// The number of the window.
    pub window: u64,
    /// The end of the window, RFC 3339.
    pub time: String,
    /// `fire`; or `end`: the rule would have ended its actions.
    pub decision: Word,
    /// The actions with the values of the window in them.
    #[serde(rename = "do", default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<RuleAction>,
    /// The reason why the actions could not be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
