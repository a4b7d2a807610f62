//! The actions of rules.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use twinprobe_access::{AuditLog, Principal, Record, Role, Who};
use twinprobe_api::{RuleAction, RuleProbe};
use twinprobe_client::{Notification, NotifyFault};

use crate::api::error::ProblemAnswer;
use crate::engine::conditions::Conditions;
use crate::engine::deploy::cause::ChangeAuthor;
use crate::engine::deploy::loaded::LoadedAhead;
use crate::engine::engine::Engine;
use crate::engine::error::{EngineError, describe};
use crate::rules::options::RuleOptions;
use crate::rules::probes::configuration;
use crate::store::rules::StoredNotification;

/// The most probes that rules may deploy at the same time.
const MOST_PROBES: usize = 16;
/// The longest wait for the answer of a receiver of notifications.
const PATIENCE: Duration = Duration::from_secs(5);

/// The object that takes the actions of one rule.
pub struct RuleActions {
    pub engine: Arc<Engine>,
    pub audit: Option<Arc<AuditLog>>,
    pub options: Arc<RuleOptions>,
    pub rule: String,
    pub watched: String,
    pub role: Option<Role>,
}

/// The error of an action.
#[derive(Debug)]
pub struct ActionError {
    pub reason: String,
    /// True if a later attempt may succeed.
    pub again: bool,
}

/// The firing that an action belongs to.
#[derive(Clone, Copy, Debug)]
pub struct FiringContext {
    pub window: u64,
}

impl RuleActions {
    /// Takes an action. `ahead` is the probe of the action, if it is already loaded. A second
    /// attempt changes nothing, or carries the identity of the same firing.
    pub async fn take(
        &self,
        action: &RuleAction,
        firing: &FiringContext,
        ahead: Option<Box<LoadedAhead>>,
    ) -> Result<(), ActionError> {
        match action {
            RuleAction::Apply(probe) => self.apply(probe, firing, ahead).await,
            RuleAction::Change(change) => self.change(&change.name, None, firing).await,
            RuleAction::Delete(name) => self.delete(name, firing, false).await,
            // The outbox of the rule already contains the notification.
            RuleAction::Notify(_) => Ok(()),
            RuleAction::Mark(text) => {
                let record = self.record(
                    format!("MARK /v1/rules/{}", self.rule),
                    &self.watched,
                    firing,
                );
                record.notes.explain(text);
                record.end(StatusCode::OK);
                tracing::info!(
                    rule = self.rule,
                    window = firing.window,
                    text,
                    "a rule marks a window"
                );
                Ok(())
            }
        }
    }

    async fn apply(
        &self,
        probe: &RuleProbe,
        firing: &FiringContext,
        ahead: Option<Box<LoadedAhead>>,
    ) -> Result<(), ActionError> {
        let watched = self.engine.registry.get(&self.watched).map_err(fault)?;
        let config = configuration(probe, &watched.stored.config);
        let config = config.map_err(|rejection| fault(EngineError::Rejected(rejection)))?;
        let of_rules =
            |by: &Option<String>| by.as_deref().is_some_and(|by| by.starts_with("rule:"));
        let probes = self.engine.registry.list();
        match probes.iter().find(|known| known.name == probe.name) {
            Some(known) if known.stored.pushed_by.as_ref() != Some(&self.who().to_string()) => {
                let reason = format!(
                    "there is a probe {} that this rule has not made",
                    probe.name
                );
                return Err(ActionError {
                    reason,
                    again: false,
                });
            }
            None if probes
                .iter()
                .filter(|known| of_rules(&known.stored.pushed_by))
                .count()
                >= MOST_PROBES =>
            {
                let reason = format!("rules have made {MOST_PROBES} probes, which is the limit");
                return Err(ActionError {
                    reason,
                    again: false,
                });
            }
            _ => {}
        }
        let mut record = self.record(
            format!("PUT /v1/probes/{}", probe.name),
            &probe.name,
            firing,
        );
        record.notes.set(&probe.name, &config);
        announce(&mut record)?;
        let (author, when) = (self.author(firing), Conditions::default());
        match self
            .engine
            .put_ahead(&probe.name, config, author, &when, ahead)
            .await
        {
            Ok(_) => {
                record.end(StatusCode::OK);
                Ok(())
            }
            Err(error) => Err(ended(record, error)),
        }
    }

    /// Deletes a probe. With `is_own`, deletes it only if the rule has made it.
    pub async fn delete(
        &self,
        name: &str,
        firing: &FiringContext,
        is_own: bool,
    ) -> Result<(), ActionError> {
        let Ok(probe) = self.engine.registry.get(name) else {
            return Ok(());
        };
        if name == self.watched {
            let reason = format!("a rule may not delete the probe {name} that it watches");
            return Err(ActionError {
                reason,
                again: false,
            });
        }
        if is_own && probe.stored.pushed_by.as_ref() != Some(&self.who().to_string()) {
            return Ok(());
        }
        let mut record = self.record(format!("DELETE /v1/probes/{name}"), name, firing);
        announce(&mut record)?;
        match self
            .engine
            .delete(name, self.author(firing), &Conditions::default())
            .await
        {
            Ok(()) | Err(EngineError::NotFound { .. }) => {
                record.end(StatusCode::NO_CONTENT);
                Ok(())
            }
            Err(error) => Err(ended(record, error)),
        }
    }

    /// Writes into the audit log what the rule does in addition to its actions, and why.
    pub fn note(&self, what: &str, reason: &str, firing: &FiringContext) {
        let record = self.record(
            format!("{what} /v1/rules/{}", self.rule),
            &self.watched,
            firing,
        );
        record.notes.explain(reason);
        record.end(StatusCode::OK);
    }

    /// Sends a notification; makes a single attempt.
    pub fn notify(
        &self,
        notification: StoredNotification,
    ) -> impl Future<Output = Result<(), NotifyFault>> + Send + use<> {
        let StoredNotification {
            probe,
            instance,
            window,
            time,
            index,
            url,
            ..
        } = notification;
        let identity = format!(
            "{}/{}/{instance}/{window}/{index}",
            self.engine.node, self.rule
        );
        let body = json!({
            "rule": self.rule, "node": self.engine.node, "probe": probe, "instance": instance,
            "window": window, "time": time, "identity": identity,
        });
        let options = Arc::clone(&self.options);
        async move {
            let again = |reason| NotifyFault {
                reason,
                again: true,
            };
            let keys = tokio::task::spawn_blocking(move || options.keys()).await;
            let keys = keys
                .map_err(|error| again(error.to_string()))?
                .map_err(again)?;
            let (url, identity, body, keys) = (&*url, &*identity, &body, keys.as_ref());
            twinprobe_client::notify(&Notification {
                url,
                identity,
                body,
                keys,
                patience: PATIENCE,
            })
            .await
        }
    }

    /// Makes the daemon keep the windows after `judged`, the last window that the rule has judged,
    /// even if all collectors have acknowledged them. With `None`, the daemon no longer keeps them
    /// for the rule.
    pub async fn hold(&self, judged: Option<u64>) -> Result<(), EngineError> {
        let Ok(watched) = self.engine.retained(&self.watched) else {
            return Ok(());
        };
        let rule = self.rule.clone();
        Ok(tokio::task::spawn_blocking(move || watched.windows.hold(&rule, judged)).await?)
    }

    fn who(&self) -> Who {
        Who::Rule(self.rule.clone())
    }

    fn from(&self, firing: &FiringContext) -> Value {
        json!({ "rule": self.rule, "window": firing.window })
    }

    /// Returns the rule as a client with the rights of the rule's author.
    pub fn principal(&self) -> Principal {
        Principal {
            who: self.who(),
            role: self.role,
        }
    }

    pub fn author(&self, firing: &FiringContext) -> ChangeAuthor {
        let principal = self.principal();
        let message = format!(
            "rule {}, window {} of {}",
            self.rule, firing.window, self.watched
        );
        ChangeAuthor {
            principal,
            from: self.from(firing),
            message: Some(message),
        }
    }

    pub fn record(&self, what: String, probe: &str, firing: &FiringContext) -> Record {
        Record::of_own(
            self.audit.clone(),
            &self.principal(),
            self.from(firing),
            what,
            probe,
        )
    }
}

pub fn announce(record: &mut Record) -> Result<(), ActionError> {
    record.announce().map_err(|error| {
        let reason = format!("the action can't be recorded in the file of --audit-log: {error}");
        ActionError {
            reason,
            again: true,
        }
    })
}

pub fn ended(record: Record, error: EngineError) -> ActionError {
    let (action, status) = told(error);
    record.end(status);
    action
}

/// Converts the error, and returns it with the status that a request would have had.
fn told(error: EngineError) -> (ActionError, StatusCode) {
    let reason = describe(&error);
    let status = ProblemAnswer::from(error).status();
    let again = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    (ActionError { reason, again }, status)
}

pub fn fault(error: EngineError) -> ActionError {
    told(error).0
}
