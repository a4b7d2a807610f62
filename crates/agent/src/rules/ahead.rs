//! The probes of a rule, before the rule deploys them: compiled, tried and kept on disk once the rule runs, and loaded while
//! the store writes that the rule fires. Nothing of this is attached.

use std::sync::Arc;

use twinprobe_access::Principal;
use twinprobe_api::{ConfigDocument, RuleAction, RuleDocument, RuleProbe};
use twinprobe_faults::crash;

use crate::engine::deploy::loaded::LoadedAhead;
use crate::engine::engine::Engine;
use crate::engine::error::{EngineError, describe};
use crate::rules::actions::RuleActions;
use crate::rules::probes::configuration;

impl RuleActions {
    /// Loads the probe of an action, if the action deploys one that is not there. A failure is left to the action itself.
    pub async fn ahead(&self, action: Option<&RuleAction>) -> Option<Box<LoadedAhead>> {
        let Some(RuleAction::Apply(probe)) = action else { return None };
        if self.engine.registry.get(&probe.name).is_ok() {
            return None;
        }
        let loaded = load(&self.engine, probe, &self.watched, &self.principal()).await.ok()?;
        crash::point("rule_loaded");
        Some(Box::new(loaded))
    }

    /// Prepares all probes that the rule may deploy, as far as they follow from no window. So the first firing finds them
    /// compiled and tried.
    pub fn prepare(&self, document: &RuleDocument) -> impl Future<Output = ()> + Send + use<> {
        let (engine, rule, by) = (Arc::clone(&self.engine), self.rule.clone(), self.principal());
        let (watched, actions) = (self.watched.clone(), document.actions.clone());
        async move {
            // Without the watched probe the rule waits, and there is no place for its own.
            if engine.registry.get(&watched).is_err() {
                return;
            }
            let mut elfs = Vec::new();
            for action in &actions {
                let RuleAction::Apply(probe) = action else { continue };
                if probe.template.is_some()
                    || serde_json::to_string(probe).is_ok_and(|text| text.contains("{{"))
                {
                    continue;
                }
                match load(&engine, probe, &watched, &by).await {
                    Ok(ahead) => elfs.extend(ahead.loaded.objects.into_values()),
                    Err(error) => {
                        let (probe, reason) = (&probe.name, describe(&error));
                        tracing::warn!(rule, probe, reason, "the rule could not deploy this probe now");
                    }
                }
            }
            let of = rule.clone();
            let kept =
                tokio::task::spawn_blocking(move || engine.deployer.store.keep_objects_for(&of, &elfs));
            if let Ok(Err(error)) = kept.await {
                tracing::warn!(rule, %error, "the programs of the rule's probes are not kept ready");
            }
        }
    }
}

async fn load(
    engine: &Engine,
    probe: &RuleProbe,
    watched: &str,
    by: &Principal,
) -> Result<LoadedAhead, EngineError> {
    let watched = engine.registry.get(watched)?;
    let config: ConfigDocument = configuration(probe, &watched.stored.config)?;
    engine.load_ahead(&probe.name, &config, by).await
}
