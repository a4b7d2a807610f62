//! The table `rules`: a record for each rule, with its memory of the windows that it has judged. One commit
//! holds a decision and the position in the windows, so that a rule judges each window once.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use twinprobe_api::{ConfigDocument, RuleAction, RuleDocument, RuleFiring};
use twinprobe_rules::RuleState;
use twinprobe_store::{Connection, Durable, params};

use crate::store::Store;
use crate::store::error::StoreError;

/// The number of firings that a rule remembers.
const FIRINGS: usize = 50;
/// The version of records.
const VERSION: u64 = 1;

/// A rule as the store has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredRule {
    version: u64,
    pub revision: u64,
    /// The time when the rule was first put, RFC 3339.
    pub created: String,
    pub pushed_by: String,
    /// The name of the role that the actions have.
    pub role: String,
    pub document: RuleDocument,
    /// The probe whose windows have the numbers in `state`.
    pub instance: String,
    pub state: RuleState,
    /// The actions of the last firing, if they are not all taken.
    pub pending: Option<PendingActions>,
    /// True if the daemon must remove the probes of `made` and change those of `changed` back.
    pub is_ending: bool,
    /// The probes that the rule has deployed and not ended.
    pub made: BTreeSet<String>,
    /// The probes that the rule has changed, or is about to change, and not changed back.
    #[serde(default)]
    pub changed: BTreeMap<String, ChangedProbe>,
    /// The windows that were removed before the rule could judge them.
    pub missed: u64,
    pub last_error: Option<String>,
    pub firings: Vec<RuleFiring>,
}

/// A probe before and after a change. The record has it before the change is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangedProbe {
    pub before: ConfigDocument,
    pub after: ConfigDocument,
}

/// Actions that are being taken. After a crash the first one that is not done is taken again: either a repeat
/// of it changes nothing, or it carries the identity of the firing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingActions {
    /// The number of the window.
    pub window: u64,
    pub actions: Vec<RuleAction>,
    /// The number of actions that are taken.
    pub done: usize,
}

impl StoredRule {
    /// Creates the record of a rule that judges the windows of `instance` after `newest`.
    pub fn new(document: RuleDocument, pushed_by: String, role: &str, instance: String, newest: u64) -> Self {
        Self {
            version: VERSION,
            revision: 1,
            created: jiff::Timestamp::now().to_string(),
            pushed_by,
            role: role.to_owned(),
            document,
            instance,
            state: RuleState { window: newest, ..RuleState::default() },
            pending: None,
            is_ending: false,
            made: BTreeSet::new(),
            changed: BTreeMap::new(),
            missed: 0,
            last_error: None,
            firings: Vec::new(),
        }
    }

    /// Returns the probes that the rule has deployed, or may have.
    pub fn begun(&self) -> BTreeSet<String> {
        let pending = self.pending.iter().flat_map(|pending| &pending.actions);
        let pending = pending.filter_map(|action| match action {
            RuleAction::Apply(probe) => Some(probe.name.clone()),
            RuleAction::Change(_) | RuleAction::Notify(_) | RuleAction::Delete(_) | RuleAction::Mark(_) => {
                None
            }
        });
        self.made.iter().cloned().chain(pending).collect()
    }

    /// Takes the place of an earlier rule of the name. The actions of the earlier rule end.
    pub fn follow(&mut self, earlier: &Self) {
        self.revision = earlier.revision + 1;
        self.created.clone_from(&earlier.created);
        self.state.taken.clone_from(&earlier.state.taken);
        self.firings.clone_from(&earlier.firings);
        self.made = earlier.begun();
        self.changed.clone_from(&earlier.changed);
        self.is_ending = !self.made.is_empty() || !self.changed.is_empty();
    }

    /// Remembers a firing, and forgets the oldest.
    pub fn fired(&mut self, firing: RuleFiring) {
        self.firings.push(firing);
        let too_many = self.firings.len().saturating_sub(FIRINGS);
        self.firings.drain(..too_many);
    }

    /// Stops the rule for good, and ends its actions.
    pub fn stop(&mut self, reason: String) {
        self.last_error = Some(reason.clone());
        self.state.stopped = Some(reason);
        self.state.firing = None;
        self.pending = None;
        self.is_ending = true;
    }
}

impl Store {
    /// Reads all rules, sorted by name. A record that can't be read is left as it is, and its rule does not run.
    pub fn rules(&self) -> Result<Vec<(String, StoredRule)>, StoreError> {
        let records = self.read("the rules", |connection| {
            let mut statement = connection.prepare("SELECT name, record FROM rules ORDER BY name")?;
            let rows =
                statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?)))?;
            rows.collect::<twinprobe_store::Result<Vec<_>>>()
        })?;
        let mut found = Vec::new();
        for (name, record) in records {
            match serde_json::from_slice::<StoredRule>(&record) {
                Ok(rule) if rule.version <= VERSION => found.push((name, rule)),
                Ok(rule) => tracing::error!(
                    rule = name,
                    version = rule.version,
                    "a later version of twinprobe has stored the rule, which does not run; PUT it again"
                ),
                Err(error) => {
                    tracing::error!(rule = name, %error, "a rule can't be read and does not run; PUT it again");
                }
            }
        }
        Ok(found)
    }

    /// Stores a rule. A loss of power may undo a write with [`Durable::Soon`]: then the rule judges the same windows
    /// again.
    pub fn keep_rule(&self, name: &str, rule: &StoredRule, durable: Durable) -> Result<(), StoreError> {
        let what = format!("rule {name}");
        let encoded = serde_json::to_vec(rule);
        let record =
            encoded.map_err(|error| StoreError::Write { what: what.clone(), source: error.into() })?;
        let name = name.to_owned();
        let change = move |connection: &Connection| write(connection, &name, &record);
        let written = self.database.commit(durable, false, Box::new(change));
        written.map_err(|source| StoreError::Write { what, source })
    }

    /// Removes a rule, with the documents that it has had.
    pub fn forget_rule(&self, name: &str) -> Result<(), StoreError> {
        let of = name.to_owned();
        let change = move |connection: &Connection| {
            connection.prepare_cached("DELETE FROM rule_revisions WHERE name = ?1")?.execute([&of])?;
            connection.prepare_cached("DELETE FROM rules WHERE name = ?1")?.execute([&of]).map(drop)
        };
        let written = self.database.commit(Durable::Now, true, Box::new(change));
        written.map_err(|source| StoreError::Write { what: format!("the removal of rule {name}"), source })
    }
}

/// Writes the record of a rule, as part of a commit.
pub fn write(connection: &Connection, name: &str, record: &[u8]) -> twinprobe_store::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO rules VALUES (?1, ?2)")?
        .execute(params![name, record])
        .map(drop)
}
