//! The configurations that a probe has had, and the way back to one of them.

use std::sync::Arc;

use twinprobe_client::{ConfigDocument, ProbeStatus, Revision};

use crate::engine::conditions::Conditions;
use crate::engine::deploy::cause::{Cause, Deployed};
use crate::engine::deploy::loaded::LoadedProbe;
use crate::engine::engine::{Engine, permitted};
use crate::engine::error::EngineError;
use crate::store::room::{Dropped, Wanted};
use twinprobe_ebpf_common::finding::Finding;
use twinprobe_serve::Principal;

impl Engine {
    /// Finds room on the disk for a configuration that is about to be deployed. Warns of revisions that go for it.
    pub fn find_room(
        &self,
        name: &str,
        revision: u64,
        document: &ConfigDocument,
        loaded: &mut LoadedProbe,
    ) -> Result<Dropped, EngineError> {
        let config = serde_json::to_vec(document).map_or(0, |text| text.len() as u64);
        let objects = loaded.objects.values().map(Vec::as_slice).collect();
        let wanted = Wanted { name, revision, config, objects };
        let dropped = self.store.find_room(&wanted, &self.ledger.limits)?;
        for (probe, last) in &dropped.0 {
            tracing::warn!(probe, last, "revisions are dropped for lack of room");
            let message = format!(
                "the revisions of probe {probe} up to {last} are dropped for lack of room: see --max-stored-bytes and --keep-free-bytes"
            );
            loaded.warnings.push(Finding { field: None, ..Finding::config("", message) });
        }
        Ok(dropped)
    }

    /// Returns the configurations of a probe so far, oldest first.
    pub async fn revisions(self: &Arc<Self>, name: &str) -> Result<Vec<Revision>, EngineError> {
        let (engine, name) = (Arc::clone(self), name.to_owned());
        let current = self.get(&name)?.stored.revision;
        Ok(tokio::task::spawn_blocking(move || engine.store.revisions(&name, current)).await??)
    }

    /// Deploys an earlier configuration again, as a new revision: the one before the present one, or `to`. Hands the
    /// configuration to `seen` before anything is done.
    pub async fn roll_back(
        self: &Arc<Self>,
        name: &str,
        to: Option<u64>,
        by: &Principal,
        message: Option<String>,
        when: &Conditions,
        seen: impl FnOnce(&ConfigDocument),
    ) -> Result<(Deployed, ProbeStatus), EngineError> {
        let revisions = self.revisions(name).await?;
        let known: Vec<u64> = revisions.iter().map(|revision| revision.revision).collect();
        let wanted = match to {
            Some(to) => revisions.into_iter().find(|revision| revision.revision == to),
            None => revisions.into_iter().rev().find(|revision| !revision.current),
        };
        match (wanted, to) {
            (Some(Revision { config: document, revision, .. }), _) => {
                seen(&document);
                let config = permitted(name, &document, by)?;
                let turn = self.turns.request(name).await?;
                when.check(Some(&self.get(name)?.stored))?;
                let message = message.unwrap_or_else(|| format!("back to revision {revision}"));
                self.deploy(config, document, Cause::Request(by.who.clone(), Some(message)), turn).await
            }
            (None, Some(to)) => Err(EngineError::Missing(format!(
                "probe {name} has no revision {to}; it has {}",
                known.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
            ))),
            (None, None) => Err(EngineError::Conflict(format!(
                "probe {name} has had one configuration only; there is none to go back to"
            ))),
        }
    }
}
