//! One running rule: it judges the windows of its probe one after the other, and takes its actions.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use twinprobe_api::{RuleAction, RuleFiring};
use twinprobe_ebpf_common::window::WindowEntry;
use twinprobe_faults::crash;
use twinprobe_rules::{Decision, Judgement};
use twinprobe_store::Durable;

use crate::engine::deploy::loaded::LoadedAhead;
use crate::engine::error::{EngineError, describe};
use crate::engine::probe::retained::RetainedWindows;
use crate::rules::actions::{ActionError, FiringContext, RuleActions};
use crate::rules::ahead::Preparation;
use crate::rules::judge::{self, JudgedPair, ShapedRule, reasons};
use crate::rules::outbox::courier::Courier;
use crate::store::rules::{PendingActions, StoredRule};

/// The number of attempts at an action that may succeed later, and the pause before the second
/// attempt. The pause doubles each time.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);
/// The pause before another attempt to use the store after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// A rule with its position in the windows.
pub struct RuleRunner {
    pub actions: RuleActions,
    pub stored: Arc<Mutex<StoredRule>>,
    /// True once the rule must end: it was replaced or deleted, or the daemon stops.
    pub stop: watch::Receiver<bool>,
    pub shaped: ShapedRule,
    /// The previous window, if the rule has judged that window last.
    pub previous: Option<(u64, Arc<Value>)>,
    /// The probe of the next action, if the probe is already loaded.
    pub ahead: Option<Box<LoadedAhead>>,
    pub preparation: Preparation,
    pub courier: Courier,
}

impl RuleRunner {
    /// Runs until the rule must end.
    pub async fn run(mut self) {
        let mut disturbed = self.actions.engine.registry.disturbed.subscribe();
        let mut told = None;
        while !self.has_to_end() {
            disturbed.borrow_and_update();
            let watched = self.actions.engine.retained(&self.actions.watched).ok();
            self.prepare_probes();
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
                            "a rule can't continue; the daemon tries again"
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
                () = self.courier.wait() => {}
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    }

    /// Starts the preparation of the rule's probes, while the rule has made none of them.
    fn prepare_probes(&mut self) {
        let (is_stopped, is_idle) = {
            let stored = self.stored.lock();
            (
                stored.state.stopped.is_some(),
                stored.pending.is_none() && stored.made.is_empty(),
            )
        };
        if is_stopped {
            self.preparation.end();
        } else if is_idle {
            self.preparation.begin(&self.actions, &self.stored);
        }
    }

    fn has_to_end(&self) -> bool {
        *self.stop.borrow()
    }

    /// Takes one step. Returns false if there is nothing to do now.
    async fn advance(&mut self, watched: Option<&RetainedWindows>) -> Result<bool, EngineError> {
        self.deliver().await?;
        let (pending, is_ending, is_stopped) = {
            let stored = self.stored.lock();
            (
                stored.pending.clone(),
                stored.is_ending,
                stored.state.stopped.is_some(),
            )
        };
        if let Some(pending) = pending {
            return self.act(pending).await.map(|()| true);
        }
        if is_ending {
            return self.end().await.map(|()| true);
        }
        let Some(watched) = watched else {
            return self.end_without_probe().await;
        };
        if is_stopped {
            self.actions.hold(None).await?;
            return Ok(false);
        }
        let next = self.next(watched);
        let unneeded = self.stored.lock().unneeded();
        self.actions.hold(Some(unneeded)).await?;
        let Some(entry) = next else { return Ok(false) };
        self.judge(&entry).await.map(|()| true)
    }

    /// Returns the next window, and counts windows that were removed before the rule could read
    /// them.
    fn next(&mut self, watched: &RetainedWindows) -> Option<WindowEntry> {
        let mut stored = self.stored.lock();
        if stored.instance != watched.origin.instance {
            // Another probe of this name counts its windows from the beginning.
            stored.instance.clone_from(&watched.origin.instance);
            (stored.state.window, stored.state.holds) = (0, 0);
            (stored.judged, self.previous) = (None, None);
        }
        let entry = watched.windows.next_after(stored.state.window)?;
        let missed = entry.seq - stored.state.window - 1;
        if missed > 0 {
            stored.missed += missed;
            self.actions
                .engine
                .telemetry
                .rules
                .missed(&self.actions.rule, missed);
            stored.state.window = entry.seq - 1;
        }
        Some(entry)
    }

    async fn judge(&mut self, entry: &WindowEntry) -> Result<(), EngineError> {
        let read = match judge::read(&self.actions.engine, &self.actions.watched, entry.seq).await {
            Ok(read) => read,
            // A limit has removed the window meanwhile, or it is damaged.
            Err(EngineError::Missing(_) | EngineError::NotFound { .. }) => {
                self.actions
                    .engine
                    .telemetry
                    .rules
                    .missed(&self.actions.rule, 1);
                let mut stored = self.stored.lock();
                stored.missed += 1;
                stored.state.window = entry.seq;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let document = self.stored.lock().document.clone();
        let rule = match self.shaped.of(&document, read.shape).await? {
            Ok(rule) => rule,
            Err(rejection) => {
                let reason = reasons(&rejection);
                let reason = format!(
                    "window {} is not one that the rule can judge: {reason}",
                    entry.seq
                );
                return self
                    .commit(Durable::Now, |stored| {
                        stored.state.window = entry.seq;
                        stored.stop(reason);
                    })
                    .await;
            }
        };
        let known = self
            .previous
            .take()
            .filter(|(seq, _)| seq + 1 == entry.seq)
            .map(|(_, window)| window);
        let before = judge::before(&self.actions, &self.stored, entry.seq, known).await;
        let pair = JudgedPair {
            rule,
            window: read.document,
            before,
        };
        let judgement = pair.judge().await?;
        self.previous = pair
            .window
            .clone()
            .ok()
            .map(|document| (read.seq, document));
        let end = judge::nanoseconds(&entry.end);
        crash::point("rule_judged");
        self.decide(&pair, entry, end, judgement).await?;
        crash::point("rule_decided");
        Ok(())
    }

    /// Makes the decision about a window, and stores it together with the rule's position.
    async fn decide(
        &mut self,
        pair: &JudgedPair,
        entry: &WindowEntry,
        end: i64,
        judgement: Result<Judgement, String>,
    ) -> Result<(), EngineError> {
        let mut next = self.stored.lock().clone();
        let missing = judgement.as_ref().ok().and_then(|judged| judged.missing);
        next.no_value = missing.map(|missing| missing.to_string());
        if let Err(error) = &judgement {
            next.last_error = Some(format!("window {}: {error}", entry.seq));
        }
        let decision = next.state.step(&pair.rule, entry.seq, end, judgement);
        next.judged = Some(entry.seq);
        if next.state.stopped.is_some() {
            next.last_error.clone_from(&next.state.stopped);
            next.is_ending = true;
        }
        let durable = if decision.is_some() || next.is_ending {
            Durable::Now
        } else {
            Durable::Soon
        };
        match decision {
            Some(Decision::Fire { window }) => match pair.actions(&self.actions.engine).await? {
                Ok(actions) => {
                    tracing::info!(rule = self.actions.rule, window, "fires");
                    begin_firing(&mut next, window, entry.end.clone(), actions);
                }
                Err(reason) => {
                    next.stop(format!(
                        "the actions can't be made of window {window}: {reason}"
                    ));
                }
            },
            Some(Decision::End { .. }) => next.is_ending = true,
            None => {}
        }
        let pending = next.pending.as_ref();
        let first = pending.and_then(|pending| pending.actions.first().cloned());
        let has_fired = first.is_some();
        // Loading touches no packet, so it need not wait for the disk.
        let mut preparation = std::mem::take(&mut self.preparation);
        let loading = self.actions.ahead(first.as_ref(), &mut preparation);
        let (kept, ahead) = tokio::join!(self.commit(durable, |stored| *stored = next), loading);
        self.preparation = preparation;
        kept?;
        self.ahead = ahead;
        let telemetry = &self.actions.engine.telemetry.rules;
        telemetry.judged(&self.actions.rule, has_fired);
        Ok(())
    }

    /// Takes the actions of a firing that are not taken yet.
    async fn act(&mut self, pending: PendingActions) -> Result<(), EngineError> {
        let PendingActions {
            window,
            actions,
            done,
        } = pending;
        let time = self.stored.lock().time_of(window);
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
                        match action {
                            RuleAction::Apply(probe) => {
                                stored.made.insert(probe.name.clone());
                            }
                            RuleAction::Notify(url) => stored.send(window, index, url),
                            RuleAction::Change(_) | RuleAction::Delete(_) | RuleAction::Mark(_) => {
                            }
                        }
                        stored.pending = stored.pending.take().filter(|_| !is_last);
                        stored
                            .pending
                            .iter_mut()
                            .for_each(|pending| pending.done = index + 1);
                        stored.settle(window, &time);
                    })
                    .await?;
                }
                Err(ActionError { reason, .. }) => {
                    let reason = format!("do[{index}] of window {window}: {reason}");
                    return self
                        .commit(Durable::Now, |stored| {
                            stored
                                .mark(window, &time, |firing| firing.error = Some(reason.clone()));
                            stored.stop(reason);
                        })
                        .await;
                }
            }
        }
        Ok(())
    }

    /// Stores a probe's configuration before the change, so that the change can be reverted in any
    /// case.
    async fn prepare(&self, action: &RuleAction) -> Result<Result<(), ActionError>, EngineError> {
        let RuleAction::Change(change) = action else {
            return Ok(Ok(()));
        };
        if self.stored.lock().changed.contains_key(&change.name) {
            return Ok(Ok(()));
        }
        let changed = match self.actions.changed(change) {
            Ok(changed) => changed,
            Err(error) => return Ok(Err(error)),
        };
        let name = change.name.clone();
        self.commit(Durable::Now, |stored| {
            stored.changed.insert(name, changed);
        })
        .await?;
        crash::point("rule_prepared");
        Ok(Ok(()))
    }

    /// Takes an action. After a failure that may be temporary, it tries again, after longer and
    /// longer pauses.
    async fn attempt(
        &mut self,
        action: &RuleAction,
        window: u64,
        index: usize,
    ) -> Result<(), ActionError> {
        let firing = FiringContext { window };
        let (mut attempt, mut ahead) = (1, self.ahead.take());
        loop {
            let ahead = ahead.take();
            let taken = match action {
                // The courier sends the notification, because a receiver may answer slowly.
                RuleAction::Notify(_) => return Ok(()),
                RuleAction::Change(change) => {
                    let changed = self.stored.lock().changed.get(&change.name).cloned();
                    self.actions
                        .change(&change.name, changed.as_ref(), &firing)
                        .await
                }
                _ => self.actions.take(action, &firing, ahead).await,
            };
            self.actions
                .engine
                .telemetry
                .rules
                .acted(&self.actions.rule, taken.is_ok());
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

    /// Changes the record, and waits until the store has the change. After an error nothing has
    /// changed.
    pub(super) async fn commit(
        &self,
        durable: Durable,
        change: impl FnOnce(&mut StoredRule),
    ) -> Result<(), EngineError> {
        let mut next = self.stored.lock().clone();
        change(&mut next);
        let (engine, name, record) = (
            Arc::clone(&self.actions.engine),
            self.actions.rule.clone(),
            next.clone(),
        );
        let kept = move || engine.deployer.store.keep_rule(&name, &record, durable);
        tokio::task::spawn_blocking(kept).await??;
        *self.stored.lock() = next;
        Ok(())
    }
}

/// Records a firing at a window that ends at `time`, and the actions that the rule takes next.
fn begin_firing(next: &mut StoredRule, window: u64, time: String, actions: Vec<RuleAction>) {
    let shown = |action: &RuleAction| action.clone().without_sources().masked();
    let (done, ended, error) = (None, None, None);
    next.fired(RuleFiring {
        window,
        time,
        actions: actions.iter().map(shown).collect(),
        done,
        ended,
        error,
    });
    next.pending = Some(PendingActions {
        window,
        actions,
        done: 0,
    });
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
