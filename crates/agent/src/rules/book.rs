//! All rules of this daemon: they are put, shown, deleted, and started again after a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use twinprobe_access::{AuditLog, Role};
use twinprobe_api::{RuleDocument, RuleStatus};
use twinprobe_config::is_probe_name;
use twinprobe_ebpf_common::finding::{Finding, Rejection};

use crate::engine::conditions::{Conditions, tag};
use crate::engine::deploy::cause::ChangeAuthor;
use crate::engine::engine::Engine;
use crate::engine::error::EngineError;
use crate::rules::actions::{FiringContext, RuleActions};
use crate::rules::ahead::Preparation;
use crate::rules::check::{self, CheckedExpressions, check_expressions};
use crate::rules::judge::ShapedRule;
use crate::rules::options::RuleOptions;
use crate::rules::outbox::courier::Courier;
use crate::rules::runner::RuleRunner;
use crate::store::rule_revisions::StoredRuleRevision;
use crate::store::rules::StoredRule;

/// The rules. Each of them has its own task.
pub struct RuleBook {
    pub engine: Arc<Engine>,
    audit: Option<Arc<AuditLog>>,
    options: Arc<RuleOptions>,
    rules: Mutex<BTreeMap<String, LiveRule>>,
    /// The lock for putting and deleting rules.
    pub changes: tokio::sync::Mutex<()>,
}

/// The name of the holder that keeps windows until the rules have started. No rule has this name.
const START: &str = "";

/// A rule and the task that runs it.
struct LiveRule {
    stored: Arc<Mutex<StoredRule>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// The outcome of a PUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    Created,
    Replaced,
    Unchanged,
}

impl std::fmt::Debug for RuleBook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuleBook")
            .field("rules", &self.rules.lock().len())
            .finish_non_exhaustive()
    }
}

impl RuleBook {
    pub fn new(engine: Arc<Engine>, audit: Option<Arc<AuditLog>>, options: RuleOptions) -> Self {
        let (rules, changes) = (Mutex::default(), tokio::sync::Mutex::default());
        // A collector may be faster than the start of the rules.
        engine
            .readings
            .windows
            .all()
            .iter()
            .for_each(|windows| windows.hold(START, Some(0)));
        Self {
            engine,
            audit,
            options: Arc::new(options),
            rules,
            changes,
        }
    }

    /// Starts the rules in the store. Each of them continues where it stopped.
    pub async fn start(&self) -> Result<(), EngineError> {
        let _change = self.changes.lock().await;
        let engine = Arc::clone(&self.engine);
        for (name, stored) in
            tokio::task::spawn_blocking(move || engine.deployer.store.rules()).await??
        {
            self.spawn(&name, stored);
        }
        let windows = self.engine.readings.windows.all();
        let released = move || windows.iter().for_each(|windows| windows.hold(START, None));
        Ok(tokio::task::spawn_blocking(released).await?)
    }

    /// Stops all rules. The next start continues them.
    pub async fn stop(&self) {
        let rules = std::mem::take(&mut *self.rules.lock());
        for rule in rules.values() {
            rule.stop.send_replace(true);
        }
        for (_, rule) in rules {
            // A task that has panicked has ended as well.
            let _ = rule.task.await;
        }
    }

    fn spawn(&self, name: &str, stored: StoredRule) {
        let telemetry = &self.engine.telemetry.rules;
        telemetry.set_stopped(name, stored.state.stopped.is_some());
        if let Ok(watched) = self.engine.retained(&stored.document.watch)
            && stored.state.stopped.is_none()
        {
            let is_same = watched.origin.instance == stored.instance;
            watched
                .windows
                .hold(name, Some(if is_same { stored.state.window } else { 0 }));
        }
        let actions = self.actions(name, &stored);
        let stored = Arc::new(Mutex::new(stored));
        let (stop, stopped) = watch::channel(false);
        let runner = RuleRunner {
            actions,
            stored: Arc::clone(&stored),
            stop: stopped,
            shaped: ShapedRule::default(),
            previous: None,
            ahead: None,
            preparation: Preparation::default(),
            courier: Courier::default(),
        };
        let task = tokio::spawn(runner.run());
        self.rules
            .lock()
            .insert(name.to_owned(), LiveRule { stored, stop, task });
    }

    fn actions(&self, name: &str, stored: &StoredRule) -> RuleActions {
        RuleActions {
            engine: Arc::clone(&self.engine),
            audit: self.audit.clone(),
            options: Arc::clone(&self.options),
            rule: name.to_owned(),
            watched: stored.document.watch.clone(),
            role: Role::from_name(&stored.role),
        }
    }

    /// Puts a rule. After an error nothing has changed.
    pub async fn put(
        &self,
        name: &str,
        document: RuleDocument,
        author: ChangeAuthor,
        when: &Conditions,
    ) -> Result<(PutOutcome, RuleStatus), EngineError> {
        if !is_probe_name(name) {
            let message =
                format!("{name:?} is not a name of a rule; the rules for names of probes apply");
            return Err(Rejection::from(Finding::config("name", message)).into());
        }
        let checked = check_expressions(&self.engine, &document).await;
        let _change = self.changes.lock().await;
        self.put_alone(name, document, checked, author, when).await
    }

    /// Puts a rule while the caller prevents other puts.
    pub async fn put_alone(
        &self,
        name: &str,
        document: RuleDocument,
        checked: Result<CheckedExpressions, EngineError>,
        author: ChangeAuthor,
        when: &Conditions,
    ) -> Result<(PutOutcome, RuleStatus), EngineError> {
        let by = &author.principal;
        let known = self.stored(name);
        check(when, known.as_ref())?;
        if let Some(known) = known.as_ref().filter(|known| known.document == document)
            && known.state.stopped.is_none()
            && by.role.is_some_and(|role| role.name() == known.role)
        {
            return Ok((PutOutcome::Unchanged, self.status(name, known)));
        }
        let probe = self.engine.registry.get(&document.watch).map_err(|_| {
            let message = format!(
                "there is no probe named {}; deploy it first",
                document.watch
            );
            EngineError::Rejected(Finding::config("watch", message).into())
        })?;
        let mut others = self.documents();
        others.retain(|(other, _)| other != name);
        let (rule, watched) = ((name, &document), &probe.stored.config);
        check::check(&self.engine, rule, &others, checked, watched, by).await?;
        let retained = self.engine.retained(&document.watch)?;
        let newest = retained.windows.newest().map_or(0, |newest| newest.seq());
        let role = by.role.map_or("", Role::name);
        let instance = retained.origin.instance.clone();
        let mut stored = StoredRule::new(document, by.who.to_string(), role, instance, newest);
        let outcome = match &known {
            Some(known) => {
                self.halt(name).await;
                // The task may have continued meanwhile.
                let known = self.stored(name).unwrap_or_else(|| known.clone());
                if known.document.watch != stored.document.watch {
                    self.actions(name, &known).hold(None).await?;
                }
                stored.follow(&known);
                PutOutcome::Replaced
            }
            None => PutOutcome::Created,
        };
        self.keep(name, &stored, author.message).await?;
        tracing::info!(
            rule = name,
            revision = stored.revision,
            pushed_by = stored.pushed_by,
            "a rule runs"
        );
        let shown = self.status(name, &stored);
        self.spawn(name, stored);
        Ok((outcome, shown))
    }

    /// Stores a rule. After an error the previous rule continues.
    async fn keep(
        &self,
        name: &str,
        stored: &StoredRule,
        message: Option<String>,
    ) -> Result<(), EngineError> {
        let (engine, of, record) = (Arc::clone(&self.engine), name.to_owned(), stored.clone());
        let revision = StoredRuleRevision::now(stored, message);
        let kept = move || engine.deployer.store.put_rule(&of, &record, &revision);
        let kept = tokio::task::spawn_blocking(kept).await?;
        if kept.is_err()
            && let Some(known) = self.stored(name)
        {
            self.spawn(name, known);
        }
        Ok(kept?)
    }

    /// Returns the documents of all rules, by the names of the rules.
    pub fn documents(&self) -> Vec<(String, RuleDocument)> {
        let rules = self.rules.lock();
        rules
            .iter()
            .map(|(name, rule)| (name.clone(), rule.stored.lock().document.clone()))
            .collect()
    }

    pub fn stored(&self, name: &str) -> Option<StoredRule> {
        self.rules
            .lock()
            .get(name)
            .map(|rule| rule.stored.lock().clone())
    }

    /// Stops the task of a rule and waits for its end.
    async fn halt(&self, name: &str) {
        let task = {
            let mut rules = self.rules.lock();
            let Some(rule) = rules.get_mut(name) else {
                return;
            };
            rule.stop.send_replace(true);
            std::mem::replace(&mut rule.task, tokio::spawn(async {}))
        };
        let _ = task.await;
    }

    pub fn get(&self, name: &str) -> Result<RuleStatus, EngineError> {
        let stored = self.stored(name).ok_or_else(|| missing(name))?;
        Ok(self.status(name, &stored))
    }

    /// Returns all rules, ordered by name.
    pub fn list(&self) -> Vec<RuleStatus> {
        self.rules
            .lock()
            .iter()
            .map(|(name, rule)| self.status(name, &rule.stored.lock()))
            .collect()
    }

    /// Deletes a rule, together with the probes that the rule has made.
    pub async fn delete(&self, name: &str, when: &Conditions) -> Result<(), EngineError> {
        let _change = self.changes.lock().await;
        let known = self.stored(name).ok_or_else(|| missing(name))?;
        check(when, Some(&known))?;
        self.halt(name).await;
        let stored = self.stored(name).unwrap_or(known);
        match self.actions(name, &stored).change_back(&stored).await {
            Ok(None) => {}
            Ok(Some(reason)) => tracing::error!(
                rule = name,
                reason,
                "changes of the rule were not taken back; the rule is deleted"
            ),
            Err(error) => {
                self.spawn(name, stored);
                return Err(error);
            }
        }
        let (engine, of) = (Arc::clone(&self.engine), name.to_owned());
        let forgotten =
            tokio::task::spawn_blocking(move || engine.deployer.store.forget_rule(&of)).await?;
        if let Err(error) = forgotten {
            self.spawn(name, stored);
            return Err(error.into());
        }
        self.rules.lock().remove(name);
        self.actions(name, &stored).hold(None).await?;
        self.engine.telemetry.rules.forget(name);
        self.engine.deployer.store.release_objects(name);
        let actions = self.actions(name, &stored);
        let firing = FiringContext {
            window: stored.state.window,
        };
        for probe in &stored.begun() {
            if let Err(error) = actions.delete(probe, &firing, true).await {
                tracing::warn!(
                    rule = name,
                    probe,
                    error.reason,
                    "a probe of a deleted rule stays until its lease ends"
                );
            }
        }
        if !stored.outbox.is_empty() {
            let notifications = stored.outbox.len();
            tracing::warn!(
                rule = name,
                notifications,
                "the deleted rule had notifications that never arrived; they are dropped"
            );
        }
        tracing::info!(rule = name, "the rule is deleted");
        Ok(())
    }

    /// Returns the status of a rule for clients.
    fn status(&self, name: &str, stored: &StoredRule) -> RuleStatus {
        let exists = |probe: &str| self.engine.registry.get(probe).is_ok();
        let state = match (&stored.state.stopped, stored.state.firing) {
            (Some(_), _) => "stopped",
            (None, Some(_)) => "firing",
            // The rule's probes still exist.
            (None, None) if stored.is_ending => "firing",
            (None, None) if exists(&stored.document.watch) => "watching",
            (None, None) => "waiting",
        };
        let now = i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX);
        RuleStatus {
            name: name.to_owned(),
            state: state.into(),
            reason: stored.state.stopped.clone(),
            revision: stored.revision,
            created: stored.created.clone(),
            pushed_by: stored.pushed_by.clone(),
            role: stored.role.clone().into(),
            window: stored.state.window,
            holds: stored.state.holds,
            missed: stored.missed,
            actions_left: stored.state.actions_left(&stored.document, now),
            last_error: stored.last_error.clone(),
            no_value: stored.no_value.clone(),
            notifications: stored.notifications(),
            probes: stored
                .made
                .iter()
                .filter(|probe| exists(probe))
                .cloned()
                .collect(),
            gone: stored
                .made
                .iter()
                .filter(|probe| !exists(probe))
                .cloned()
                .collect(),
            changed: stored.changed.keys().cloned().collect(),
            firings: stored.firings.clone(),
            rule: stored.document.clone(),
        }
    }
}

pub fn missing(name: &str) -> EngineError {
    EngineError::Missing(format!(
        "there is no rule named {name}; GET /v1/rules lists them"
    ))
}

/// Checks the conditions of a request against the present state of the rule.
fn check(when: &Conditions, known: Option<&StoredRule>) -> Result<(), EngineError> {
    when.check_tag(known.map(|known| tag(known.revision, &known.created)))
}
