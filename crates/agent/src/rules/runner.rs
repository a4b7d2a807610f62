//! One rule that runs: it takes the windows of its probe one after the other, and takes its actions.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use twinprobe_api::{RuleAction, RuleFiring};
use twinprobe_ebpf_common::window::WindowEntry;
use twinprobe_faults::crash;
use twinprobe_rules::{Decision, Rule};
use twinprobe_store::Durable;

use crate::engine::deploy::loaded::LoadedAhead;
use crate::engine::error::{EngineError, describe};
use crate::engine::probe::retained::RetainedWindows;
use crate::rules::actions::{ActionError, FiringContext, RuleActions};
use crate::rules::judge::{self, Judged, ShapedRule};
use crate::store::rules::{PendingActions, StoredRule};

/// The attempts at an action that may succeed later, and the time before the second one. It doubles each time.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);
/// The time after which a store that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// A rule and its position.
pub struct RuleRunner {
    pub actions: RuleActions,
    pub stored: Arc<Mutex<StoredRule>>,
    /// True once the rule must end: it was replaced or deleted, or the daemon stops.
    pub stop: watch::Receiver<bool>,
    pub shaped: ShapedRule,
    /// The window before, if it was the last one that was judged.
    pub previous: Option<(u64, Arc<Value>)>,
    /// The probe of the first action that is to be taken, if it is loaded already.
    pub ahead: Option<Box<LoadedAhead>>,
}

impl RuleRunner {
    /// Runs until the rule must end.
    pub async fn run(mut self) {
        let mut disturbed = self.actions.engine.registry.disturbed.subscribe();
        let mut told = None;
        let document = self.stored.lock().document.clone();
        let prepared = tokio::spawn(self.actions.prepare(&document));
        while !self.has_to_end() {
            disturbed.borrow_and_update();
            let watched = self.actions.engine.retained(&self.actions.watched).ok();
            // Windows that are closed from here on wake the rule.
            let changed = watched.as_ref().map(|watched| watched.windows.changed());
            let pause = match self.advance(watched.as_ref()).await {
                Ok(true) => continue,
                Ok(false) => None,
                Err(error) => {
                    let reason = describe(&error);
                    if told.as_ref() != Some(&reason) {
                        tracing::error!(
                            rule = self.actions.rule,
                            reason,
                            "a rule can't continue; it tries again"
                        );
                        told = Some(reason);
                    }
                    Some(RETRY)
                }
            };
            tokio::select! {
                _ = self.stop.changed() => {}
                _ = disturbed.changed() => {}
                () = window(changed) => {}
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
        prepared.abort();
    }

    fn has_to_end(&self) -> bool {
        *self.stop.borrow()
    }

    /// Takes one step. Returns false if there is nothing to do now.
    async fn advance(&mut self, watched: Option<&RetainedWindows>) -> Result<bool, EngineError> {
        let (pending, is_ending, is_stopped) = {
            let stored = self.stored.lock();
            (stored.pending.clone(), stored.is_ending, stored.state.stopped.is_some())
        };
        if let Some(pending) = pending {
            return self.act(pending).await.map(|()| true);
        }
        if is_ending {
            return self.end().await.map(|()| true);
        }
        let Some(watched) = watched else { return Ok(false) };
        if is_stopped {
            self.actions.hold(None).await?;
            return Ok(false);
        }
        let next = self.next(watched);
        let judged = self.stored.lock().state.window;
        self.actions.hold(Some(judged)).await?;
        let Some(entry) = next else { return Ok(false) };
        self.judge(&entry).await.map(|()| true)
    }

    /// Returns the next window, and counts those that were removed unread.
    fn next(&mut self, watched: &RetainedWindows) -> Option<WindowEntry> {
        let mut stored = self.stored.lock();
        if stored.instance != watched.origin.instance {
            // Another probe of this name counts its windows from the beginning.
            stored.instance.clone_from(&watched.origin.instance);
            (stored.state.window, stored.state.holds) = (0, 0);
            self.previous = None;
        }
        let entry = watched.windows.next_after(stored.state.window)?;
        let missed = entry.seq - stored.state.window - 1;
        if missed > 0 {
            stored.missed += missed;
            self.actions.engine.telemetry.rules.missed(&self.actions.rule, missed);
            stored.state.window = entry.seq - 1;
        }
        Some(entry)
    }

    async fn judge(&mut self, entry: &WindowEntry) -> Result<(), EngineError> {
        let read = match judge::read(&self.actions.engine, &self.actions.watched, entry.seq).await {
            Ok(read) => read,
            // A limit has removed the window meanwhile, or it is damaged.
            Err(EngineError::Missing(_) | EngineError::NotFound { .. }) => {
                self.actions.engine.telemetry.rules.missed(&self.actions.rule, 1);
                let mut stored = self.stored.lock();
                stored.missed += 1;
                stored.state.window = entry.seq;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let document = self.stored.lock().document.clone();
        let rule = match self.shaped.of(&document, &read.shape) {
            Ok(rule) => rule,
            Err(reason) => {
                let reason = format!("window {} is not one that the rule can judge: {reason}", entry.seq);
                return self
                    .commit(Durable::Now, |stored| {
                        stored.state.window = entry.seq;
                        stored.stop(reason);
                    })
                    .await;
            }
        };
        let before = self.previous.take().filter(|(seq, _)| seq + 1 == entry.seq).map(|(_, window)| window);
        let Judged { judgement, actions } =
            judge::judge(&self.actions.engine, Arc::clone(&rule), read.document.clone(), before).await?;
        self.previous = read.document.ok().map(|document| (read.seq, document));
        let end = judge::nanoseconds(&entry.end);
        crash::point("rule_judged");
        self.decide(&rule, entry, end, Judged { judgement, actions }).await?;
        crash::point("rule_decided");
        Ok(())
    }

    /// Makes the decision about a window, and stores it together with the position.
    async fn decide(
        &mut self,
        rule: &Rule,
        entry: &WindowEntry,
        end: i64,
        Judged { judgement, actions }: Judged,
    ) -> Result<(), EngineError> {
        let mut next = self.stored.lock().clone();
        if let Err(error) = &judgement {
            next.last_error = Some(format!("window {}: {error}", entry.seq));
        }
        let decision = next.state.step(rule, entry.seq, end, judgement);
        if next.state.stopped.is_some() {
            next.last_error.clone_from(&next.state.stopped);
            next.is_ending = true;
        }
        let durable = if decision.is_some() || next.is_ending { Durable::Now } else { Durable::Soon };
        match (decision, actions) {
            (Some(Decision::Fire { window }), Ok(actions)) => {
                tracing::info!(rule = self.actions.rule, window, "fires");
                let taken = actions.iter().cloned().map(RuleAction::without_sources).collect();
                let time = entry.end.clone();
                next.pending = Some(PendingActions { window, actions, done: 0 });
                let (done, ended, error) = (None, None, None);
                next.fired(RuleFiring { window, time, actions: taken, done, ended, error });
            }
            (Some(Decision::Fire { window }), Err(reason)) => {
                next.stop(format!("the actions can't be made of window {window}: {reason}"));
            }
            (Some(Decision::End { .. }), _) => next.is_ending = true,
            (None, _) => {}
        }
        let first = next.pending.as_ref().and_then(|pending| pending.actions.first().cloned());
        let has_fired = first.is_some();
        // Loading touches no packet, so it need not wait for the disk.
        let loading = self.actions.ahead(first.as_ref());
        let (kept, ahead) = tokio::join!(self.commit(durable, |stored| *stored = next), loading);
        kept?;
        self.ahead = ahead;
        self.actions.engine.telemetry.rules.judged(&self.actions.rule, has_fired);
        Ok(())
    }

    /// Takes the actions of a firing that are not taken yet.
    async fn act(&mut self, pending: PendingActions) -> Result<(), EngineError> {
        let PendingActions { window, actions, done } = pending;
        for (index, action) in actions.iter().enumerate().skip(done) {
            let taken = match self.prepare(action).await? {
                Ok(()) => self.attempt(action, window, index).await,
                Err(error) => Err(error),
            };
            if taken.is_err() && self.has_to_end() {
                return Ok(());
            }
            crash::point("rule_acted");
            let is_last = index + 1 == actions.len();
            match taken {
                Ok(()) => {
                    self.commit(Durable::Now, |stored| {
                        if let RuleAction::Apply(probe) = action {
                            stored.made.insert(probe.name.clone());
                        }
                        stored.pending = stored.pending.take().filter(|_| !is_last);
                        stored.pending.iter_mut().for_each(|pending| pending.done = index + 1);
                        if is_last {
                            mark(stored, window, |firing| firing.done = Some(Timestamp::now().to_string()));
                        }
                    })
                    .await?;
                }
                Err(ActionError { reason, .. }) => {
                    let reason = format!("do[{index}] of window {window}: {reason}");
                    return self
                        .commit(Durable::Now, |stored| {
                            mark(stored, window, |firing| firing.error = Some(reason.clone()));
                            stored.stop(reason);
                        })
                        .await;
                }
            }
        }
        Ok(())
    }

    /// Stores a probe's configuration before the change, so that it can be changed back in any case.
    async fn prepare(&self, action: &RuleAction) -> Result<Result<(), ActionError>, EngineError> {
        let RuleAction::Change(change) = action else { return Ok(Ok(())) };
        if self.stored.lock().changed.contains_key(&change.name) {
            return Ok(Ok(()));
        }
        let changed = match self.actions.changed(change) {
            Ok(changed) => changed,
            Err(error) => return Ok(Err(error)),
        };
        let name = change.name.clone();
        self.commit(Durable::Now, |stored| drop(stored.changed.insert(name, changed))).await?;
        crash::point("rule_prepared");
        Ok(Ok(()))
    }

    /// Takes an action. After a failure that may pass it tries again, each time after a longer pause.
    async fn attempt(&mut self, action: &RuleAction, window: u64, index: usize) -> Result<(), ActionError> {
        let (instance, time) = {
            let stored = self.stored.lock();
            let time = stored.firings.iter().rev().find(|firing| firing.window == window);
            (stored.instance.clone(), time.map(|firing| firing.time.clone()).unwrap_or_default())
        };
        let firing = FiringContext { instance: &instance, window, time: &time, index };
        let (mut attempt, mut ahead) = (1, self.ahead.take());
        loop {
            let ahead = ahead.take();
            let taken = match action {
                // A receiver may keep a message waiting. Changes of probes end soon, and their outcome must be known.
                RuleAction::Notify(_) => tokio::select! {
                    taken = self.actions.take(action, &firing, None) => taken,
                    _ = self.stop.changed() => {
                        Err(ActionError { reason: "the rule ends".to_owned(), again: false })
                    }
                },
                RuleAction::Change(change) => {
                    let changed = self.stored.lock().changed.get(&change.name).cloned();
                    self.actions.change(&change.name, changed.as_ref(), &firing).await
                }
                _ => self.actions.take(action, &firing, ahead).await,
            };
            self.actions.engine.telemetry.rules.acted(&self.actions.rule, taken.is_ok());
            match taken {
                Err(error) if error.again && attempt < ATTEMPTS && !self.has_to_end() => {
                    tracing::warn!(
                        rule = self.actions.rule,
                        window,
                        index,
                        error.reason,
                        "an action is tried again"
                    );
                    tokio::select! {
                        () = tokio::time::sleep(PAUSE * 2_u32.pow(attempt - 1)) => {}
                        _ = self.stop.changed() => {}
                    }
                    attempt += 1;
                }
                taken => return taken,
            }
        }
    }

    /// Ends the actions of the rule.
    async fn end(&mut self) -> Result<(), EngineError> {
        let (instance, made) = {
            let stored = self.stored.lock();
            (stored.instance.clone(), stored.made.clone())
        };
        let window = self.stored.lock().state.window;
        let firing = FiringContext { instance: &instance, window, time: "", index: 0 };
        let stored = self.stored.lock().clone();
        let mut failed = self.actions.change_back(&stored).await?;
        for name in &made {
            if let Err(error) = self.actions.delete(name, &firing, true).await {
                failed = Some(format!("probe {name} can't be removed: {}", error.reason));
            }
        }
        crash::point("rule_ended");
        // A probe that stays ends with its lease.
        self.commit(Durable::Now, |stored| {
            stored.made.clear();
            stored.changed.clear();
            stored.is_ending = false;
            let ended = Timestamp::now().to_string();
            if let Some(firing) = stored.firings.last_mut() {
                firing.ended.get_or_insert(ended);
            }
            stored.last_error = failed.or(stored.last_error.take());
        })
        .await?;
        let stopped = self.stored.lock().state.stopped.clone();
        if let Some(reason) = stopped {
            tracing::error!(
                rule = self.actions.rule,
                reason,
                "the rule has stopped; PUT it again to start it"
            );
            self.actions.engine.telemetry.rules.set_stopped(&self.actions.rule, true);
            self.actions.note_stop(&reason, &firing);
        }
        Ok(())
    }

    /// Changes the record, and waits until the store has it. After an error nothing has changed.
    async fn commit(
        &self,
        durable: Durable,
        change: impl FnOnce(&mut StoredRule),
    ) -> Result<(), EngineError> {
        let mut next = self.stored.lock().clone();
        change(&mut next);
        let (engine, name, record) =
            (Arc::clone(&self.actions.engine), self.actions.rule.clone(), next.clone());
        let kept = move || engine.deployer.store.keep_rule(&name, &record, durable);
        tokio::task::spawn_blocking(kept).await??;
        *self.stored.lock() = next;
        Ok(())
    }
}

/// Waits for the next window.
async fn window(changed: Option<watch::Receiver<u64>>) {
    match changed {
        Some(mut changed) => {
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        None => std::future::pending().await,
    }
}

/// Changes the record of the firing at a window.
fn mark(stored: &mut StoredRule, window: u64, change: impl FnOnce(&mut RuleFiring)) {
    stored.firings.iter_mut().rev().find(|firing| firing.window == window).map(change);
}
