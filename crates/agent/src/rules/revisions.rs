//! The revisions of a rule, and the rollback to one of them.

use std::sync::Arc;

use twinprobe_api::{RuleRevision, RuleStatus};

use crate::engine::conditions::Conditions;
use crate::engine::deploy::cause::ChangeAuthor;
use crate::engine::error::EngineError;
use crate::rules::book::{RuleBook, missing};
use crate::rules::check::check_expressions;

impl RuleBook {
    /// Returns the present and earlier documents of a rule, oldest first.
    pub async fn revisions(&self, name: &str) -> Result<Vec<RuleRevision>, EngineError> {
        let stored = self.stored(name).ok_or_else(|| missing(name))?;
        let (engine, of) = (Arc::clone(&self.engine), name.to_owned());
        let read = move || engine.deployer.store.rule_revisions(&of, &stored);
        Ok(tokio::task::spawn_blocking(read).await??)
    }

    /// Puts an earlier document again, as a new revision: the revision `to`, or else the revision
    /// before the present one.
    pub async fn roll_back(
        &self,
        name: &str,
        to: Option<u64>,
        author: ChangeAuthor,
        when: &Conditions,
    ) -> Result<RuleStatus, EngineError> {
        let wanted = self.wanted(name, to).await?;
        let checked = check_expressions(&self.engine, &wanted.rule).await;
        let _change = self.changes.lock().await;
        if self.wanted(name, to).await? != wanted {
            let message = format!("rule {name} has changed meanwhile; send the rollback again");
            return Err(EngineError::Conflict(message));
        }
        let author = author.explained(|| format!("back to revision {}", wanted.revision));
        let (_, status) = self
            .put_alone(name, wanted.rule, checked, author, when)
            .await?;
        Ok(status)
    }

    /// Returns the revision of a rule that a rollback chooses.
    async fn wanted(&self, name: &str, to: Option<u64>) -> Result<RuleRevision, EngineError> {
        let revisions = self.revisions(name).await?;
        let known: Vec<_> = revisions
            .iter()
            .map(|revision| revision.revision.to_string())
            .collect();
        let wanted = match to {
            Some(to) => revisions
                .into_iter()
                .find(|revision| revision.revision == to),
            None => revisions
                .into_iter()
                .rev()
                .find(|revision| !revision.current),
        };
        match (wanted, to) {
            (Some(wanted), _) => Ok(wanted),
            (None, Some(to)) => Err(EngineError::Missing(format!(
                "rule {name} has no revision {to}; it has {}",
                known.join(", ")
            ))),
            (None, None) => Err(EngineError::Conflict(format!(
                "rule {name} has had one document only; there is none to go back to"
            ))),
        }
    }
}
