//! The revisions of a probe, and the rollback to one of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use twinprobe_api::{ConfigDocument, HistoryEntry, ProbeStatus, Revision};

use crate::engine::conditions::Conditions;
use crate::engine::deploy::cause::{ChangeAuthor, DeployCause, Deployed};
use crate::engine::deploy::loaded::LoadedProbe;
use crate::engine::engine::{Engine, permitted};
use crate::engine::error::EngineError;
use crate::store::room::{Dropped, WantedRoom};
use twinprobe_ebpf_common::finding::Finding;
use twinprobe_ebpf_common::request::Fills;

/// The number of changes that an answer has at most.
const SHOWN_CHANGES: usize = 1000;

impl Engine {
    /// Makes room on the disk for a configuration that is about to be deployed. Warns of revisions
    /// that are removed for this.
    pub fn find_room(
        &self,
        name: &str,
        revision: u64,
        document: &ConfigDocument,
        loaded: &mut LoadedProbe,
    ) -> Result<Dropped, EngineError> {
        let config = serde_json::to_vec(document).map_or(0, |text| text.len() as u64);
        let objects = loaded.objects.values().map(Vec::as_slice).collect();
        let wanted = WantedRoom {
            name,
            revision,
            config,
            objects,
        };
        let dropped = self
            .deployer
            .store
            .find_room(&wanted, &self.deployer.ledger.limits)?;
        for (probe, last) in &dropped.0 {
            tracing::warn!(probe, last, "revisions are dropped for lack of room");
            let message = format!(
                "the revisions of probe {probe} up to {last} are dropped for lack of room: see --max-stored-bytes and --keep-free-bytes"
            );
            loaded.warnings.push(Finding {
                field: None,
                ..Finding::config("", message)
            });
        }
        Ok(dropped)
    }

    /// Returns the configurations of a probe so far, oldest first.
    pub async fn revisions(self: &Arc<Self>, name: &str) -> Result<Vec<Revision>, EngineError> {
        let (engine, name) = (Arc::clone(self), name.to_owned());
        let current = self.registry.get(&name)?.stored.revision;
        Ok(
            tokio::task::spawn_blocking(move || engine.deployer.store.revisions(&name, current))
                .await??,
        )
    }

    /// Returns the newest changes, oldest first: of the probe with this name, or of all probes.
    /// Deleted probes are included.
    pub async fn history(
        self: &Arc<Self>,
        name: Option<String>,
    ) -> Result<Vec<HistoryEntry>, EngineError> {
        let engine = Arc::clone(self);
        let of = name.clone();
        let read = move || engine.deployer.store.history(of.as_deref(), SHOWN_CHANGES);
        let history = tokio::task::spawn_blocking(read).await??;
        match name {
            // A probe of an earlier version may have no change yet.
            Some(name) if history.is_empty() => self.registry.get(&name).map(|_| history),
            _ => Ok(history),
        }
    }

    /// Deploys an earlier configuration again, as a new revision: the revision `to`, or else the
    /// revision before the present one. Calls `seen` with the configuration before anything is
    /// changed.
    pub async fn roll_back(
        self: &Arc<Self>,
        name: &str,
        to: Option<u64>,
        author: ChangeAuthor,
        when: &Conditions,
        seen: impl FnOnce(&ConfigDocument),
    ) -> Result<(Deployed, ProbeStatus), EngineError> {
        let revisions = self.revisions(name).await?;
        let known: Vec<u64> = revisions.iter().map(|revision| revision.revision).collect();
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
            (
                Some(Revision {
                    config: document,
                    revision,
                    ..
                }),
                _,
            ) => {
                seen(&document);
                let config = permitted(name, &document, &author.principal)?;
                let turn = self.registry.turns.request(name).await?;
                when.check(Some(&self.registry.get(name)?.stored))?;
                let author = author.explained(|| format!("back to revision {revision}"));
                // The present revision does not have the entries that another revision has put into
                // the maps.
                let anew = changed_fills(&self.registry.get(name)?.stored.config, &document);
                self.deploy(
                    config,
                    document,
                    DeployCause::Request { author, anew },
                    turn,
                    None,
                )
                .await
            }
            (None, Some(to)) => Err(EngineError::Missing(format!(
                "probe {name} has no revision {to}; it has {}",
                known
                    .iter()
                    .map(u64::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            ))),
            (None, None) => Err(EngineError::Conflict(format!(
                "probe {name} has had only one configuration; a rollback needs an earlier one"
            ))),
        }
    }
}

/// Returns the maps that two configurations fill in different ways.
fn changed_fills(before: &ConfigDocument, after: &ConfigDocument) -> BTreeSet<String> {
    let none = Fills::new();
    let [before, after] = [before, after].map(|config| config.fill.as_ref().unwrap_or(&none));
    let names = before.keys().chain(after.keys());
    names
        .filter(|name| before.get(*name) != after.get(*name))
        .cloned()
        .collect()
}
