//! Templates: configurations that rules deploy with values from windows filled in. A template is
//! put before the rules that name it, and can't be deleted while a rule names it.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use twinprobe_access::Principal;
use twinprobe_api::{ConfigDocument, RuleDocument, TemplateStatus};
use twinprobe_config::is_probe_name;
use twinprobe_ebpf_common::finding::{Finding, Rejection};
use twinprobe_ebpf_common::window::shape::WindowShape;
use twinprobe_rules::check_template;

use crate::engine::conditions::{Conditions, tag};
use crate::engine::deploy::cause::ChangeAuthor;
use crate::engine::engine::permitted;
use crate::engine::error::EngineError;
use crate::engine::probe::probe::Probe;
use crate::rules::book::{PutOutcome, RuleBook};
use crate::store::templates::StoredTemplate;

/// The largest number of templates.
const MOST_TEMPLATES: usize = 64;
/// An interface that every machine has. It serves the check of a template that names no interface.
const SOME_INTERFACE: &str = "lo";

impl RuleBook {
    /// Returns all templates without their sources, ordered by name.
    pub async fn templates(&self) -> Result<Vec<TemplateStatus>, EngineError> {
        let engine = Arc::clone(&self.engine);
        let read = tokio::task::spawn_blocking(move || engine.deployer.store.templates()).await??;
        let shown = read
            .into_iter()
            .map(|(name, stored)| self.shown(&name, stored).without_sources());
        Ok(shown.collect())
    }

    pub async fn template(&self, name: &str) -> Result<TemplateStatus, EngineError> {
        let stored = self
            .stored_template(name)
            .await?
            .ok_or_else(|| missing(name))?;
        Ok(self.shown(name, stored))
    }

    /// Puts a template. Rules that name it deploy this configuration from their next firing on.
    pub async fn put_template(
        &self,
        name: &str,
        config: ConfigDocument,
        author: &ChangeAuthor,
        when: &Conditions,
    ) -> Result<(PutOutcome, TemplateStatus), EngineError> {
        if !is_probe_name(name) {
            let message = format!(
                "{name:?} is not a name of a template; the rules for names of probes apply"
            );
            return Err(Rejection::from(Finding::config("name", message)).into());
        }
        // The check of the expressions takes a while, so it holds no lock.
        let shapes = self.shapes(name).await;
        let (of, over) = (config.clone(), shapes.clone());
        let checked = tokio::task::spawn_blocking(move || check_expressions(&of, &over)).await?;
        let _change = self.changes.lock().await;
        let known = self.stored_template(name).await?;
        when.check_tag(
            known
                .as_ref()
                .map(|known| tag(known.revision, &known.created)),
        )?;
        if let Some(known) = known.as_ref().filter(|known| known.config == config) {
            return Ok((PutOutcome::Unchanged, self.shown(name, known.clone())));
        }
        self.check_template(name, &config, &author.principal)
            .await?;
        checked?;
        if self.shapes(name).await != shapes {
            let message =
                "the rules that name the template have changed meanwhile; put the template again";
            return Err(EngineError::Conflict(message.to_owned()));
        }
        let now = Timestamp::now().to_string();
        let stored = StoredTemplate {
            revision: known.as_ref().map_or(1, |known| known.revision + 1),
            created: known
                .as_ref()
                .map_or_else(|| now.clone(), |known| known.created.clone()),
            changed: now,
            pushed_by: author.principal.who.to_string(),
            config,
        };
        let (engine, of, record) = (Arc::clone(&self.engine), name.to_owned(), stored.clone());
        let kept = move || engine.deployer.store.keep_template(&of, &record);
        tokio::task::spawn_blocking(kept).await??;
        let outcome = if known.is_some() {
            PutOutcome::Replaced
        } else {
            PutOutcome::Created
        };
        Ok((outcome, self.shown(name, stored)))
    }

    /// Refuses a template that can't be deployed.
    async fn check_template(
        &self,
        name: &str,
        config: &ConfigDocument,
        by: &Principal,
    ) -> Result<(), EngineError> {
        let engine = Arc::clone(&self.engine);
        let all = tokio::task::spawn_blocking(move || engine.deployer.store.templates()).await??;
        if all.iter().filter(|(known, _)| known != name).count() >= MOST_TEMPLATES {
            let message = format!("there are {MOST_TEMPLATES} templates, which is the limit");
            return Err(EngineError::Conflict(message));
        }
        let mut placed = ConfigDocument {
            name: Some(name.to_owned()),
            ..config.clone()
        };
        if placed.goes_nowhere() {
            placed.interface = Some(SOME_INTERFACE.to_owned());
        }
        permitted(name, &placed, by).map(drop)
    }

    /// Returns the rules that name a template, each with the shape of its windows.
    async fn shapes(&self, name: &str) -> Vec<(String, WindowShape)> {
        let mut shapes = Vec::new();
        for (rule, document) in self.documents() {
            if document.templates().any(|named| named == name)
                && let Ok(shape) = self.engine.in_turn(&document.watch, Probe::shape).await
            {
                shapes.push((rule, shape));
            }
        }
        shapes
    }

    pub async fn delete_template(&self, name: &str, when: &Conditions) -> Result<(), EngineError> {
        let _change = self.changes.lock().await;
        let known = self
            .stored_template(name)
            .await?
            .ok_or_else(|| missing(name))?;
        when.check_tag(Some(tag(known.revision, &known.created)))?;
        if let Some(rule) = self.users(name).first() {
            let message = format!("rule {rule} names the template {name}; change the rule first");
            return Err(EngineError::Conflict(message));
        }
        let (engine, of) = (Arc::clone(&self.engine), name.to_owned());
        Ok(
            tokio::task::spawn_blocking(move || engine.deployer.store.forget_template(&of))
                .await??,
        )
    }

    async fn stored_template(&self, name: &str) -> Result<Option<StoredTemplate>, EngineError> {
        let (engine, of) = (Arc::clone(&self.engine), name.to_owned());
        Ok(tokio::task::spawn_blocking(move || engine.deployer.store.template(&of)).await??)
    }

    /// Returns the rules that name a template.
    fn users(&self, name: &str) -> Vec<String> {
        let naming = |document: &RuleDocument| document.templates().any(|named| named == name);
        let users = self
            .documents()
            .into_iter()
            .filter(|(_, document)| naming(document));
        users.map(|(rule, _)| rule).collect()
    }

    fn shown(&self, name: &str, stored: StoredTemplate) -> TemplateStatus {
        let StoredTemplate {
            revision,
            created,
            changed,
            pushed_by,
            config,
        } = stored;
        let rules = self.users(name);
        TemplateStatus {
            name: name.to_owned(),
            revision,
            created,
            changed,
            pushed_by,
            rules,
            config,
        }
    }
}

/// Checks the expressions of a template. The windows of each rule that names the template must have
/// the values in the expressions.
fn check_expressions(
    config: &ConfigDocument,
    rules: &[(String, WindowShape)],
) -> Result<(), Rejection> {
    check_template(config, None)?;
    let mut known = BTreeSet::new();
    for (rule, shape) in rules
        .iter()
        .filter(|(_, shape)| known.insert(&shape.digest))
    {
        check_template(config, Some(shape)).map_err(|mut finding| {
            finding.message = format!("rule {rule} names the template: {}", finding.message);
            finding
        })?;
    }
    Ok(())
}

fn missing(name: &str) -> EngineError {
    EngineError::Missing(format!(
        "there is no template named {name}; GET /v1/templates lists them"
    ))
}
