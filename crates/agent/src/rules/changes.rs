//! The changes that rules make to existing probes: a rule sets other definitions and variables of a
//! probe, and later reverts the change.

use axum::http::StatusCode;
use twinprobe_api::{ConfigDocument, RuleChange};
use twinprobe_ebpf_common::finding::{Finding, Rejection};
use twinprobe_library::ChoiceError;

use crate::engine::conditions::{Conditions, tag};
use crate::engine::error::EngineError;
use crate::rules::actions::{ActionError, FiringContext, RuleActions, announce, ended, fault};
use crate::store::rules::{ChangedProbe, StoredRule};

/// Returns a configuration with the definitions and variables of a change.
pub fn chosen(config: &ConfigDocument, change: &RuleChange) -> Result<ConfigDocument, Rejection> {
    twinprobe_library::changed(config, change).map_err(|error| {
        let field = if matches!(error, ChoiceError::Sample(_)) {
            "sample"
        } else {
            ""
        };
        Rejection::from(Finding::config(field, error.to_string()))
    })
}

/// Tells whether two configurations are the same, except for the name in them: a probe is
/// identified by its path.
fn is_same(one: &ConfigDocument, other: &ConfigDocument) -> bool {
    let nameless = |config: &ConfigDocument| ConfigDocument {
        name: None,
        ..config.clone()
    };
    nameless(one) == nameless(other)
}

impl RuleActions {
    /// Returns the configurations of a probe before and after a change.
    pub fn changed(&self, change: &RuleChange) -> Result<ChangedProbe, ActionError> {
        let probe = self.engine.registry.get(&change.name).map_err(fault)?;
        let before = probe.stored.config.clone();
        let after =
            chosen(&before, change).map_err(|rejection| fault(EngineError::Rejected(rejection)))?;
        Ok(ChangedProbe { before, after })
    }

    /// Makes a change that is already in the record of the rule.
    pub async fn change(
        &self,
        name: &str,
        changed: Option<&ChangedProbe>,
        firing: &FiringContext,
    ) -> Result<(), ActionError> {
        let done = match changed {
            Some(ChangedProbe { before, after }) => {
                self.reconfigure(name, before, after, firing).await?
            }
            None => false,
        };
        let reason = || format!("somebody has changed or deleted the probe {name} meanwhile");
        if done {
            Ok(())
        } else {
            Err(ActionError {
                reason: reason(),
                again: false,
            })
        }
    }

    /// Replaces the configuration `from` of a probe with `to`. Returns false if the probe has
    /// neither of the two configurations, or was deleted.
    pub async fn reconfigure(
        &self,
        name: &str,
        from: &ConfigDocument,
        to: &ConfigDocument,
        firing: &FiringContext,
    ) -> Result<bool, ActionError> {
        let Ok(probe) = self.engine.registry.get(name) else {
            return Ok(false);
        };
        let present = &probe.stored.config;
        if is_same(present, to) {
            return Ok(true);
        }
        if !is_same(present, from) {
            return Ok(false);
        }
        let mut record = self.record(format!("PUT /v1/probes/{name}"), name, firing);
        record.notes.set(name, to);
        announce(&mut record)?;
        let unchanged = Conditions {
            if_match: Some(tag(probe.stored.revision, &probe.stored.created)),
            ..Conditions::default()
        };
        match self
            .engine
            .put(name, to.clone(), self.author(firing), &unchanged)
            .await
        {
            Ok(_) => {
                record.end(StatusCode::OK);
                Ok(true)
            }
            Err(error @ EngineError::Precondition(_)) => {
                drop(ended(record, error));
                Ok(false)
            }
            Err(error) => Err(ended(record, error)),
        }
    }

    /// Reverts the rule's changes of probes. Returns the reason if a probe stays as it is. After an
    /// error the caller must try again, because nothing else does.
    pub async fn change_back(&self, stored: &StoredRule) -> Result<Option<String>, EngineError> {
        let mut failed = None;
        let window = stored.state.window;
        let firing = FiringContext { window };
        for (probe, ChangedProbe { before, after }) in &stored.changed {
            match self.reconfigure(probe, after, before, &firing).await {
                Ok(true) => {}
                Ok(false) => {
                    tracing::info!(rule = self.rule, probe, "somebody has changed it since");
                }
                Err(error) if error.again => return Err(EngineError::Conflict(error.reason)),
                Err(error) => {
                    failed = Some(format!(
                        "probe {probe} can't be changed back: {}",
                        error.reason
                    ));
                }
            }
        }
        Ok(failed)
    }
}
