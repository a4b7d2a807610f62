//! The table `rules`: a record for each rule, with its state after the windows that it has judged.
//! A decision and the position in the windows are stored in one commit, so that a rule judges each
//! window once.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use twinprobe_api::{ConfigDocument, RuleAction, RuleDocument, RuleFiring, RuleNotification};
use twinprobe_rules::RuleState;
use twinprobe_store::{Connection, Durable, params};

use crate::store::Store;
use crate::store::error::StoreError;

/// The number of firings that a rule remembers.
const FIRINGS: usize = 50;
/// The word with which a rule refers to the previous window.
const PREVIOUS: &str = "previous";
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
    /// The name of the role with which the rule takes its actions.
    pub role: String,
    pub document: RuleDocument,
    /// The instance of the probe whose windows have the numbers in `state`.
    pub instance: String,
    pub state: RuleState,
    /// The last window that the rule has judged; `None` before the first one.
    #[serde(default)]
    pub judged: Option<u64>,
    /// The actions of the last firing, unless all of them are taken.
    pub pending: Option<PendingActions>,
    /// True if the daemon must remove the probes in `made` and revert the changes of the probes in
    /// `changed`.
    pub is_ending: bool,
    /// The probes that the rule has deployed and not removed yet.
    pub made: BTreeSet<String>,
    /// The probes that the rule has changed, or is about to change. Their changes are not reverted
    /// yet.
    #[serde(default)]
    pub changed: BTreeMap<String, ChangedProbe>,
    /// The number of windows that were removed before the rule could judge them.
    pub missed: u64,
    pub last_error: Option<String>,
    /// The reason why a condition had no value in the last window.
    #[serde(default)]
    pub no_value: Option<String>,
    /// The notifications that have not arrived yet, oldest first.
    #[serde(default)]
    pub outbox: Vec<StoredNotification>,
    pub firings: Vec<RuleFiring>,
}

/// A notification that has not arrived yet. It has the identity of its firing, so that receivers
/// recognize repeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredNotification {
    /// The name of the watched probe, and its instance.
    pub probe: String,
    pub instance: String,
    pub window: u64,
    /// The end of the window.
    pub time: String,
    /// The number of the action in the rule.
    pub index: usize,
    pub url: String,
    /// The number of attempts that have failed.
    pub attempts: u32,
    pub error: Option<String>,
}

/// The configurations of a probe before and after a change. The record contains them before the
/// change is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangedProbe {
    pub before: ConfigDocument,
    pub after: ConfigDocument,
}

/// Actions of a firing that are being taken. After a crash the daemon takes the first unfinished
/// action again: the second attempt changes nothing, or carries the identity of the firing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingActions {
    /// The number of the window.
    pub window: u64,
    pub actions: Vec<RuleAction>,
    /// The number of actions that have been taken.
    pub done: usize,
}

impl StoredRule {
    /// Creates the record of a rule that judges the windows of `instance` after `newest`.
    pub fn new(
        document: RuleDocument,
        pushed_by: String,
        role: &str,
        instance: String,
        newest: u64,
    ) -> Self {
        Self {
            version: VERSION,
            revision: 1,
            created: jiff::Timestamp::now().to_string(),
            pushed_by,
            role: role.to_owned(),
            document,
            instance,
            state: RuleState {
                window: newest,
                ..RuleState::default()
            },
            judged: None,
            pending: None,
            is_ending: false,
            made: BTreeSet::new(),
            changed: BTreeMap::new(),
            missed: 0,
            last_error: None,
            no_value: None,
            outbox: Vec::new(),
            firings: Vec::new(),
        }
    }

    /// Returns the number of the window before the window `seq`, if the rule compares windows and
    /// has judged that window.
    pub fn before(&self, seq: u64) -> Option<u64> {
        self.judged
            .filter(|judged| judged + 1 == seq)
            .filter(|_| self.compares())
    }

    /// Tells whether a condition or an action may refer to the previous window.
    fn compares(&self) -> bool {
        serde_json::to_string(&self.document).is_ok_and(|text| text.contains(PREVIOUS))
    }

    /// Returns the number of the last window that the rule no longer needs.
    pub fn unneeded(&self) -> u64 {
        let window = self.state.window;
        self.before(window + 1).map_or(window, |before| before - 1)
    }

    /// Returns the probes that the rule has deployed, or may have deployed.
    pub fn begun(&self) -> BTreeSet<String> {
        let pending = self.pending.iter().flat_map(|pending| &pending.actions);
        let pending = pending.filter_map(|action| match action {
            RuleAction::Apply(probe) => Some(probe.name.clone()),
            RuleAction::Change(_)
            | RuleAction::Notify(_)
            | RuleAction::Delete(_)
            | RuleAction::Mark(_) => None,
        });
        self.made.iter().cloned().chain(pending).collect()
    }

    /// Replaces an earlier rule of the same name. The actions of the earlier rule end.
    pub fn follow(&mut self, earlier: &Self) {
        self.revision = earlier.revision + 1;
        self.created.clone_from(&earlier.created);
        self.state.taken.clone_from(&earlier.state.taken);
        self.firings.clone_from(&earlier.firings);
        self.made = earlier.begun();
        self.changed.clone_from(&earlier.changed);
        self.outbox.clone_from(&earlier.outbox);
        self.is_ending = !self.made.is_empty() || !self.changed.is_empty();
    }

    /// Changes the record of the firing at a window.
    pub fn mark(&mut self, window: u64, time: &str, change: impl FnOnce(&mut RuleFiring)) {
        let mut firings = self.firings.iter_mut().rev();
        firings
            .find(|firing| firing.window == window && firing.time == time)
            .map(change);
    }

    /// Returns the time of the firing at a window.
    pub fn time_of(&self, window: u64) -> String {
        let firing = self
            .firings
            .iter()
            .rev()
            .find(|firing| firing.window == window);
        firing.map(|firing| firing.time.clone()).unwrap_or_default()
    }

    /// Notes the end of a firing's actions, once all actions are taken and all notifications have
    /// arrived.
    pub fn settle(&mut self, window: u64, time: &str) {
        let is_pending = self
            .pending
            .as_ref()
            .is_some_and(|pending| pending.window == window);
        let is_waiting = self
            .outbox
            .iter()
            .any(|waiting| waiting.window == window && waiting.time == time);
        if !is_pending && !is_waiting {
            self.mark(window, time, |firing| {
                if firing.error.is_none() {
                    firing
                        .done
                        .get_or_insert_with(|| jiff::Timestamp::now().to_string());
                }
            });
        }
    }

    /// Returns the notifications that have not arrived yet, in the form for clients.
    pub fn notifications(&self) -> Vec<RuleNotification> {
        let shown = |waiting: &StoredNotification| RuleNotification {
            window: waiting.window,
            action: waiting.index,
            attempts: waiting.attempts,
            error: waiting.error.clone(),
        };
        self.outbox.iter().map(shown).collect()
    }

    /// Records a firing, and forgets the oldest one if there are too many.
    pub fn fired(&mut self, firing: RuleFiring) {
        self.firings.push(firing);
        let too_many = self.firings.len().saturating_sub(FIRINGS);
        self.firings.drain(..too_many);
    }

    /// Stops the rule permanently, and ends its actions.
    pub fn stop(&mut self, reason: String) {
        self.last_error = Some(reason.clone());
        self.state.stopped = Some(reason);
        self.state.firing = None;
        self.pending = None;
        self.is_ending = true;
    }
}

impl Store {
    /// Reads all rules, sorted by name. A record that can't be read stays unchanged, and its rule
    /// does not run.
    pub fn rules(&self) -> Result<Vec<(String, StoredRule)>, StoreError> {
        let records = self.read("the rules", |connection| {
            let mut statement =
                connection.prepare("SELECT name, record FROM rules ORDER BY name")?;
            let rows = statement.query_map([], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?))
            })?;
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

    /// Stores a rule. A power failure may undo a write with [`Durable::Soon`]: then the rule judges
    /// the same windows again.
    pub fn keep_rule(
        &self,
        name: &str,
        rule: &StoredRule,
        durable: Durable,
    ) -> Result<(), StoreError> {
        let what = format!("rule {name}");
        let encoded = serde_json::to_vec(rule);
        let record = encoded.map_err(|error| StoreError::Write {
            what: what.clone(),
            source: error.into(),
        })?;
        let name = name.to_owned();
        let change = move |connection: &Connection| write(connection, &name, &record);
        let written = self.database.commit(durable, false, Box::new(change));
        written.map_err(|source| StoreError::Write { what, source })
    }

    /// Removes a rule, together with its present and earlier documents.
    pub fn forget_rule(&self, name: &str) -> Result<(), StoreError> {
        let of = name.to_owned();
        let change = move |connection: &Connection| {
            connection
                .prepare_cached("DELETE FROM rule_revisions WHERE name = ?1")?
                .execute([&of])?;
            connection
                .prepare_cached("DELETE FROM rules WHERE name = ?1")?
                .execute([&of])
                .map(drop)
        };
        let written = self.database.commit(Durable::Now, true, Box::new(change));
        written.map_err(|source| StoreError::Write {
            what: format!("the removal of rule {name}"),
            source,
        })
    }
}

/// Writes the record of a rule, as part of a commit.
pub fn write(connection: &Connection, name: &str, record: &[u8]) -> twinprobe_store::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO rules VALUES (?1, ?2)")?
        .execute(params![name, record])
        .map(drop)
}
