//! The preparation of a rule's probes, before the rule deploys them. Once the rule runs, the daemon
//! compiles and tries these probes and keeps the objects on disk. The probe of the first action
//! stays loaded until the rule fires. None of these probes is attached.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use twinprobe_access::Principal;
use twinprobe_api::{ConfigDocument, RuleAction, RuleProbe};
use twinprobe_faults::crash;

use crate::engine::deploy::admission::check_rules_budget;
use crate::engine::deploy::loaded::LoadedAhead;
use crate::engine::engine::Engine;
use crate::engine::error::{EngineError, describe};
use crate::limits::spare::SpareShare;
use crate::rules::actions::RuleActions;
use crate::rules::probes::configuration;
use crate::store::rules::StoredRule;

/// The most memory of the maps of a probe that stays loaded, in bytes.
const READY_BYTES: u64 = 64 << 20;

/// A loaded probe that waits for its rule to fire. It is unloaded if another probe needs its share
/// of the limits.
#[derive(Debug, Default)]
struct ReadyProbe(Mutex<Option<Box<LoadedAhead>>>);

impl ReadyProbe {
    fn take(&self) -> Option<Box<LoadedAhead>> {
        self.0.lock().take()
    }
}

impl SpareShare for ReadyProbe {
    fn give_up(&self) -> bool {
        self.take().is_some()
    }
}

/// The preparation of the probes of a rule.
#[derive(Debug, Default)]
pub struct Preparation {
    ready: Arc<ReadyProbe>,
    /// The watched probe for which the preparation began: its instance, and the revision of its
    /// configuration.
    begun_for: Option<(String, u64)>,
    task: Option<JoinHandle<()>>,
}

impl Preparation {
    /// Prepares all probes that the rule may deploy and whose configuration does not depend on a
    /// window. Does this once for each configuration of the watched probe, and again after a
    /// firing.
    pub fn begin(&mut self, actions: &RuleActions, stored: &Arc<Mutex<StoredRule>>) {
        // Without the watched probe the rule waits, and its own probes have no interfaces.
        let Ok(watched) = actions.engine.registry.get(&actions.watched) else {
            return self.end();
        };
        let present = Some((watched.origin.instance.clone(), watched.stored.revision));
        if self.begun_for != present {
            self.end();
            self.begun_for = present;
            self.task = Some(tokio::spawn(
                actions.prepare(Arc::clone(stored), Arc::clone(&self.ready)),
            ));
        }
    }

    /// Takes the probe of the first action, if the probe is loaded.
    fn take(&mut self) -> Option<Box<LoadedAhead>> {
        let ready = self.ready.take();
        if ready.is_some() {
            self.begun_for = None;
        }
        ready
    }

    /// Ends the preparation, and removes everything that is prepared.
    pub fn end(&mut self) {
        self.begun_for = None;
        self.task.take().inspect(JoinHandle::abort);
        drop(self.ready.take());
    }
}

impl Drop for Preparation {
    fn drop(&mut self) {
        self.end();
    }
}

impl RuleActions {
    /// Returns the loaded probe of an action, if the action deploys a probe that does not exist:
    /// loads it, or takes the prepared one. A failure is not reported here, because the action
    /// itself reports it.
    pub async fn ahead(
        &self,
        action: Option<&RuleAction>,
        preparation: &mut Preparation,
    ) -> Option<Box<LoadedAhead>> {
        let Some(RuleAction::Apply(probe)) = action else {
            return None;
        };
        if self.engine.registry.get(&probe.name).is_ok() {
            return None;
        }
        let ready = preparation.take();
        let loaded = load(&self.engine, probe, &self.watched, &self.principal(), ready)
            .await
            .ok()?;
        crash::point("rule_loaded");
        Some(loaded)
    }

    /// Prepares the probes of a rule, and leaves the first one in `ready`. If a probe can't be
    /// deployed now, the rule's status shows the reason.
    fn prepare(
        &self,
        stored: Arc<Mutex<StoredRule>>,
        ready: Arc<ReadyProbe>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (engine, rule, by) = (
            Arc::clone(&self.engine),
            self.rule.clone(),
            self.principal(),
        );
        let watched = self.watched.clone();
        async move {
            let (mut elfs, actions) = (Vec::new(), stored.lock().document.actions.clone());
            for (index, action) in actions.iter().enumerate() {
                let RuleAction::Apply(probe) = action else {
                    continue;
                };
                if probe.template.is_some()
                    || serde_json::to_string(probe).is_ok_and(|text| text.contains("{{"))
                {
                    continue;
                }
                let loaded = load(&engine, probe, &watched, &by, None).await;
                match loaded.and_then(|ahead| affordable(&engine, probe, ahead)) {
                    Ok(ahead) => {
                        elfs.extend(ahead.loaded.objects.values().cloned());
                        if index == 0 {
                            leave_ready(&engine, &rule, &probe.name, ahead, &ready);
                        }
                    }
                    Err(error) => {
                        let (probe, reason) = (&probe.name, describe(&error));
                        tracing::warn!(
                            rule,
                            probe,
                            reason,
                            "the rule could not deploy this probe now"
                        );
                        stored.lock().last_error = Some(format!(
                            "do[{index}]: {probe} could not be deployed now: {reason}"
                        ));
                    }
                }
            }
            let of = rule.clone();
            let kept = tokio::task::spawn_blocking(move || {
                engine.deployer.store.keep_objects_for(&of, &elfs)
            });
            if let Ok(Err(error)) = kept.await {
                tracing::warn!(rule, %error, "the programs of the rule's probes are not kept ready");
            }
        }
    }
}

/// Leaves a loaded probe in `ready`, unless the probe takes too much memory or exists already.
fn leave_ready(
    engine: &Engine,
    rule: &str,
    probe: &str,
    ahead: Box<LoadedAhead>,
    ready: &Arc<ReadyProbe>,
) {
    let is_small = ahead.loaded.cost.map_bytes <= READY_BYTES;
    if is_small && engine.registry.get(probe).is_err() {
        *ready.0.lock() = Some(ahead);
        tracing::info!(rule, probe, "the rule's probe is loaded and waits");
        let spare: Arc<dyn SpareShare> = ready.clone();
        engine.deployer.ledger.offer(&spare);
    }
}

async fn load(
    engine: &Engine,
    probe: &RuleProbe,
    watched: &str,
    by: &Principal,
    ready: Option<Box<LoadedAhead>>,
) -> Result<Box<LoadedAhead>, EngineError> {
    let watched = engine.registry.get(watched)?;
    let config: ConfigDocument = configuration(probe, &watched.stored.config)?;
    engine.load_ahead(&probe.name, &config, by, ready).await
}

/// Refuses a probe that exceeds the budget of rules.
fn affordable(
    engine: &Engine,
    probe: &RuleProbe,
    ahead: Box<LoadedAhead>,
) -> Result<Box<LoadedAhead>, EngineError> {
    let limit = engine.deployer.ledger.limits.max_rule_ns_per_packet;
    check_rules_budget(
        &probe.name,
        &ahead.loaded.cost,
        &engine.registry.list(),
        limit,
    )?;
    Ok(ahead)
}
